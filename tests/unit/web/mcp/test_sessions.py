"""What a client is told of a call, in the form of MCP."""

from __future__ import annotations

import base64
from typing import Any

from caxton_host.core.calls import Completed, Failed, Outcome
from caxton_host.service.sessions import Asked
from caxton_host.web.mcp.sessions import APPROVAL, CODE, STATUS, result_of


def told_of(found: Outcome | Asked) -> Any:  # noqa: ANN401 -- JSON
    return result_of(found)


RED = b"\x89PNG red"


def test_an_answer_is_that_of_the_tool() -> None:
    data = {
        "content": [{"type": "text", "text": "clear"}],
        "structuredContent": {"sky": "clear"},
    }
    done = Completed(message="clear", data=data)  # type: ignore[arg-type]  # JSON
    assert told_of(done) == {**data, "isError": False}


def test_parts_that_the_log_keeps_apart_are_whole_for_the_client() -> None:
    name = {"sha256": "r", "bytes": len(RED), "media_type": "image/png"}
    content = [
        {"type": "image", "data": name, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a:b", "blob": name}},
        {"type": "image", "data": {"sha256": "unknown"}},
    ]
    done = Completed(data={"content": content}, contents={"r": RED})  # type: ignore[dict-item]
    image, resource, unknown = told_of(done)["content"]
    text = base64.b64encode(RED).decode()
    assert image["data"] == text
    assert resource["resource"]["blob"] == text
    assert unknown == content[2]


def test_an_answer_without_data_is_its_message() -> None:
    assert told_of(Completed(message="3 found", data=None))["content"] == [
        {"type": "text", "text": "3 found"}
    ]


def test_a_failure_says_so_and_is_an_error() -> None:
    told = told_of(Failed(kind="timeout", sent="unknown", message="too slow"))
    assert told["isError"] is True
    assert told["content"] == [{"type": "text", "text": "failed (timeout): too slow"}]
    assert told["_meta"] == {STATUS: "failed", CODE: "timeout"}


def test_a_call_that_waits_names_the_approval_and_who_gives_it() -> None:
    told = told_of(Asked(run_id="0198", call=3, seq=7, by=("ops", "lead")))
    (text,) = told["content"]
    assert "approval of ops or lead" in text["text"]
    assert "event 7 of run 0198" in text["text"]
    assert told["_meta"][APPROVAL] == 7
