"""What a client says of itself, bounded."""

from __future__ import annotations

import json

from caxton_host.core.clients import Client


def test_what_a_client_says_of_itself_is_bounded_and_can_be_shown() -> None:
    client = Client.said("a\x1b[31m" + "x" * 1_000, "1\n2", "2026-07-28")
    assert (client.name, client.version) == ("a[31m" + "x" * 122, "12")
    assert client.input["protocol"] == "2026-07-28"


def test_clients_of_another_name_have_another_module() -> None:
    one, other = Client(name="a"), Client(name="b")
    assert one.module != other.module
    assert json.loads(one.module)["$type"] == "caxton.client/v1"
