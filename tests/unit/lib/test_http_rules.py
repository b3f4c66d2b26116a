"""Rules that hold for every HTTP request, whichever library sends it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from types import ModuleType

import httpcore2
import httpx
import pytest

from caxton_host.errors import ToolError
from caxton_host.lib.http_rules import (
    Lost,
    NoTls,
    Unreachable,
    failure,
    is_public,
    read_body,
)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104 -- to be refused
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "172.16.0.1",
        "192.168.1.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::a9fe:a9fe",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%2",
        "fec0::1",
        "ff02::1",
    ],
)
def test_address_that_is_not_of_the_open_internet_is_refused(address: str) -> None:
    # attack 35
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["9.9.9.9", "::ffff:9.9.9.9", "2620:fe::fe", "64:ff9b::909:909"]
)
def test_address_of_the_open_internet_is_taken(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("library", [httpx, httpcore2])
@pytest.mark.parametrize(
    ("name", "kind", "sent", "of"),
    [
        ("ConnectError", "transport", "no", Unreachable),
        ("ProxyError", "transport", "no", Unreachable),
        ("ConnectTimeout", "timeout", "no", ToolError),
        ("LocalProtocolError", "protocol", "no", ToolError),
        ("UnsupportedProtocol", "protocol", "no", ToolError),
        ("RemoteProtocolError", "protocol", "unknown", Lost),
        ("ReadError", "transport", "unknown", Lost),
        ("WriteTimeout", "transport", "unknown", Lost),
    ],
)
def test_an_error_means_the_same_for_each_library(
    library: ModuleType, name: str, kind: str, sent: str, of: type[ToolError]
) -> None:
    found = failure(getattr(library, name)("with-a-canary"), "host", "unknown")
    assert (found.kind, found.sent, type(found)) == (kind, sent, of)
    assert "canary" not in str(found)


@pytest.mark.parametrize("library", [httpx, httpcore2])
@pytest.mark.parametrize(
    ("cause", "said", "of"),
    [
        (ssl.SSLCertVerificationError("x"), "certificate is not trusted", Unreachable),
        (ssl.SSLError("x"), "speaks no TLS", NoTls),
    ],
)
def test_a_failed_handshake_is_told_from_a_host_that_is_down(
    library: ModuleType, cause: Exception, said: str, of: type[ToolError]
) -> None:
    error = library.ConnectError("x")
    error.__context__ = cause
    found = failure(error, "host", "unknown")
    assert said in str(found)
    assert (found.sent, type(found)) == ("no", of)


async def test_a_body_has_a_cap_whatever_its_head_says() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"12345"
        yield b"678"

    assert await read_body(chunks(), {"content-length": "8"}, 8) == b"12345678"
    for headers in ({}, {"content-length": "2"}, {"content-length": "9" * 40}):
        with pytest.raises(ToolError, match="over 7 bytes") as caught:
            await read_body(chunks(), headers, 7)
        assert (caught.value.kind, caught.value.sent) == ("too_large", "yes")
    with pytest.raises(ToolError, match="encoded"):
        await read_body(chunks(), {"content-encoding": "gzip"}, 8)
