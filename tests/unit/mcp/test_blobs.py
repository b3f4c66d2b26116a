"""Large binary parts are kept by digest; whatever else there is stays."""

from __future__ import annotations

import base64

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.text.redact import Redactor
from caxton_host.lib.codec import sha256
from caxton_host.mcp.blobs import set_apart

PICTURE = bytes(range(256))
TEXT = base64.b64encode(PICTURE).decode()
NAME: dict[str, JSON] = {
    "sha256": sha256(PICTURE),
    "bytes": 256,
    "media_type": "image/png",
}


def apart(*content: JSON, over: int | None = 100) -> Completed:
    return set_apart(Completed(data={"content": [*content]}), over, Redactor())


def test_a_part_is_named_where_it_stood_and_its_bytes_go_along() -> None:
    block: JSON = {"type": "image", "data": TEXT, "mimeType": "image/png", "x": 1}

    done = apart(block, {"type": "text", "text": "look"}, block)

    named: JSON = {"type": "image", "data": NAME, "mimeType": "image/png", "x": 1}
    assert done.data == {"content": [named, {"type": "text", "text": "look"}, named]}
    assert (done.blobs, done.contents) == ((NAME,), {sha256(PICTURE): PICTURE})


def test_a_part_is_as_large_as_its_bytes() -> None:
    block: JSON = {"type": "image", "data": TEXT, "mimeType": "image/png"}

    assert apart(block, over=258).blobs == ()
    assert apart(block, over=255).blobs == (NAME,)


@pytest.mark.parametrize(
    "data", [None, "text", {"structuredContent": {}}, {"content": "text"}]
)
def test_what_has_no_content_stays(data: JSON) -> None:
    done = Completed(data=data)
    assert set_apart(done, 0, Redactor()) is done


@pytest.mark.parametrize(
    "block",
    [
        "text",
        {"type": "image"},
        {"type": "image", "data": 7},
        {"type": "image", "data": TEXT[:-1]},
        {"type": "image", "data": "*" * 400},
        {"type": "resource", "resource": {"text": TEXT}},
        {"type": "text", "text": TEXT},
    ],
)
def test_what_is_no_base64_stays(block: JSON) -> None:
    done = apart(block)
    assert (done.data, done.blobs) == ({"content": [block]}, ())


def test_a_type_of_no_bound_is_cut() -> None:  # law 9
    done = apart({"type": "image", "data": TEXT, "mimeType": "x\n" * 9000})
    (name,) = done.blobs
    assert len(str(name["media_type"])) < 300
    assert str(name["media_type"]).isprintable()
