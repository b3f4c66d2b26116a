"""Agents as tools, and the ends of runs as their results."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, RunCancelled, RunCompleted, RunFailed
from caxton_host.runs.agent_tools import AgentTool
from caxton_host.runs.modules import AgentDescription
from caxton_host.web.mcp.agents import RUN_ID, STATE, ended, listed


def tool(
    takes: Mapping[str, JSON] | None = None, gives: Mapping[str, JSON] | None = None
) -> AgentTool:
    return AgentTool(
        AgentDescription(
            name="weather",
            tool="sky",
            description="",
            version="",
            input_schema=takes,
            output_schema=gives,
        )
    )


def completed(output: JSON) -> RunCompleted:
    return RunCompleted(output=output, output_sha256="00", fuel=1)


def text(end: Event | None, of: AgentTool | None = None) -> str:
    (content,) = ended(of or tool(), "r1", end).content
    assert content.type == "text"
    return content.text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"city": {"type": "string"}}},
        {"type": ["object", "null"]},
        {"properties": {"city": {}}},
    ],
)
def test_an_agent_that_takes_an_object_takes_the_arguments(
    schema: Mapping[str, JSON],
) -> None:
    it = tool(schema)

    assert it.input_schema == {**schema, "type": "object"}
    assert it.input({"city": "Oslo"}) == {"city": "Oslo"}
    assert not it.mismatch({"city": "Oslo"})


def test_an_agent_that_says_nothing_takes_any_object() -> None:
    assert tool().input_schema == {"type": "object"}
    assert tool().input({}) == {}


def test_an_agent_that_takes_something_else_takes_it_as_input() -> None:
    it = tool({"type": "string", "minLength": 2})

    assert it.input({"input": "Oslo"}) == "Oslo"
    assert it.mismatch({"input": "O"})
    assert it.mismatch({})
    assert it.mismatch({"input": "Oslo", "more": 1})


def test_references_hold_where_a_schema_is_moved_to() -> None:
    it = tool(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "array",
            "items": {"$ref": "#/$defs/city"},
            "$defs": {"city": {"enum": ["Oslo", ["#/$defs/city"]]}},
        }
    )

    assert it.input_schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert not it.mismatch({"input": ["Oslo"]})
    assert it.mismatch({"input": ["Bergen"]})
    assert listed(it).input_schema["type"] == "object"


def test_the_output_is_the_result_as_text_and_as_an_object() -> None:
    result = ended(tool(), "r1", completed({"sky": "ä"}))

    assert text(completed({"sky": "ä"})) == '{"sky": "ä"}'
    assert result.structured_content == {"sky": "ä"}
    assert result.meta == {RUN_ID: "r1", STATE: "completed"}
    assert not result.is_error


def test_a_text_is_told_as_it_is() -> None:
    result = ended(tool(), "r1", completed("clear"))

    assert text(completed("clear")) == "clear"
    assert result.structured_content is None


def test_what_is_promised_is_an_object_too() -> None:
    it = tool(gives={"type": "string"})

    assert it.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "string"}},
        "required": ["result"],
        "additionalProperties": False,
    }
    assert ended(it, "r1", completed("x")).structured_content == {"result": "x"}


@pytest.mark.parametrize("output", [7, {"sky": 7}, None])
def test_an_output_that_breaks_the_promise_is_an_error(output: JSON) -> None:
    promised: Mapping[str, JSON] = {
        "type": "object",
        "required": ["sky"],
        "properties": {"sky": {"type": "string"}},
    }

    result = ended(tool(gives=promised), "r1", completed(output))

    assert result.is_error
    assert result.structured_content is None
    assert "not match the output schema" in text(
        completed(output), tool(gives=promised)
    )


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("agent_error", True), ("limit", True), ("worker", False), ("trap", False)],
)
def test_a_failure_names_its_kind_and_run_and_nothing_of_the_host(
    kind: str, *, shown: bool
) -> None:
    end = RunFailed(kind=kind, message="at frame 7", fuel=None)

    result = ended(tool(), "r1", end)

    assert result.is_error
    assert result.meta == {RUN_ID: "r1", STATE: "failed"}
    assert kind in text(end)
    assert ("frame 7" in text(end)) is shown
    assert "r1" in text(end)


def test_a_cancelled_run_and_an_erased_one_are_errors() -> None:
    cancelled = RunCancelled(actor={"kind": "token", "id": "ann"}, reason="secret")

    assert ended(tool(), "r1", cancelled).is_error
    assert "secret" not in text(cancelled)
    assert ended(tool(), "r1", None).is_error


IMAGE: dict[str, JSON] = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
BLOB: dict[str, JSON] = {"uri": "x://y", "blob": "aGk=", "mimeType": "a/b"}


def test_an_output_may_be_content_blocks() -> None:
    blocks: list[JSON] = [
        {"type": "text", "text": "look"},
        IMAGE,
        {**IMAGE, "type": "audio", "mimeType": "audio/wav"},
        {"type": "resource", "resource": BLOB},
        {"type": "resource_link", "uri": "x://z", "name": "z"},
    ]
    result = ended(
        tool(), "r1", completed({"$content": blocks, "structured": {"n": 1}})
    )

    assert [
        one.model_dump(by_alias=True, exclude_none=True) for one in result.content
    ] == (blocks)
    assert result.structured_content == {"n": 1}
    assert not result.is_error


def test_the_structured_part_of_content_keeps_the_promise() -> None:
    it = tool(gives={"type": "integer"})
    output: JSON = {"$content": [IMAGE], "structured": 1}

    assert ended(it, "r1", completed(output)).structured_content == {"result": 1}
    assert ended(it, "r1", completed({"$content": [IMAGE]})).is_error
    # Without a promise it may be missing.
    assert (
        ended(tool(), "r1", completed({"$content": [IMAGE]})).content[0].type == "image"
    )
    assert text(completed({"$content": []})) == "null"


@pytest.mark.parametrize(
    "content",
    [
        "x",
        7,
        {"type": "text", "text": "x"},
        [7],
        [{"type": "picture"}],
        [{"type": "image", "data": 7, "mimeType": "image/png"}],
        [{"type": "image", "data": {"sha256": "ab", "bytes": 2}, "mimeType": "a/b"}],
        [{"type": "resource", "resource": {"uri": "x://y"}}],
    ],
)
def test_content_that_is_not_valid_is_an_error(content: JSON) -> None:
    # law 9
    result = ended(tool(), "r1", completed({"$content": content}))

    assert result.is_error
    assert text(completed({"$content": content})) == (
        "The output of run r1 has content that is not valid."
    )
