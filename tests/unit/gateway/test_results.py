"""An answer is kept whole, told in short, and never with a secret."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.calls import Completed
from caxton_host.core.log.events import ToolInvoked
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ToolOptions
from caxton_host.errors import ToolError
from caxton_host.gateway.results import answered, completed

CUSTOMER = {"customer": {"name": "Ada", "tags": ["a", "b"], "age": 36}}


def text(*parts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": part} for part in parts]


def done(result: dict[str, Any], **options: Any) -> Completed:  # noqa: ANN401
    return completed(result, "look", ToolOptions(**options), Redactor(["s3cret-value"]))


def test_the_message_is_the_text_parts_line_by_line() -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    answer = done({"content": [*text("one"), image, *text("two")], "isError": True})
    assert (answer.message, answer.is_error) == ("one\ntwo", True)


def test_every_block_and_unknown_field_is_kept() -> None:
    block = {"type": "hologram", "depth": 3}
    result = {"content": [block], "structuredContent": {"a": 1}, "vendor": {"b": None}}
    envelope = {"_meta": {"x": 1}, "resultType": "complete", "isError": False}
    assert done(result | envelope).data == result


def test_structured_content_alone_is_an_answer() -> None:
    answer = done({"structuredContent": {"a": 1}})
    assert answer.data == {"content": [], "structuredContent": {"a": 1}}


@pytest.mark.parametrize(
    "result",
    [
        {"content": "text"},
        {"content": ["text"]},
        {"content": [{"text": "no type"}]},
        {"content": [{"type": 5}]},
        {"content": [], "isError": "yes"},
        {"content": [], "isError": 1},
        {"structuredContent": [1]},
        {"resultType": "input_required", "content": []},
        {"resultType": None, "content": []},
    ],
)
def test_what_has_no_usable_shape_is_an_invalid_result(result: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as caught:
        done(result)
    assert (caught.value.kind, caught.value.sent) == ("invalid_result", "yes")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("customer.name", "Ada"),
        ("customer.age", "36"),
        ("customer.tags", '["a","b"]'),
        ("customer.tags.1", "b"),
        ("customer.tags.7", "plain"),
        ("customer.nobody", "plain"),
        ("customer.name.0", "plain"),
    ],
)
def test_message_field_picks_a_value_or_else_leaves_the_text(
    path: str, message: str
) -> None:
    result = {"content": text("plain"), "structuredContent": CUSTOMER}
    assert done(result, message_field=path).message == message


def test_message_field_looks_into_json_text_where_nothing_is_structured() -> None:
    result = {"content": text('{"speech": "hello"}')}
    assert done(result, message_field="speech").message == "hello"
    assert done({"content": text("hi")}, message_field="speech").message == "hi"


def test_a_template_is_filled_and_what_is_not_there_is_left_empty() -> None:
    result = {"content": [], "structuredContent": CUSTOMER}
    template = "Found {customer.name}, {customer.nobody}{not a name}{}"
    assert done(result, message_template=template).message == "Found Ada, {}"


def test_json_text_in_any_alphabet_is_looked_into() -> None:
    assert done(
        {"content": text('{"a": "\u00fc\u4e2d"}')}, message_field="a"
    ).message == ("\u00fc\u4e2d")


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("result", [{}, {"content": None}, {"content": []}])
def test_an_answer_with_nothing_in_it_says_so(
    result: dict[str, Any],
    is_error: bool,  # noqa: FBT001 -- a parameter
) -> None:
    answer = done({**result, "isError": is_error})
    assert (answer.message, answer.data) == ("MCP tool returned no result.", None)
    assert answer.is_error == is_error


def test_an_answer_without_text_is_told_by_what_it_has() -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    structured = {"structuredContent": {"a": 1, "b": 2}}
    assert done(structured).message == "look returned 2 fields"
    assert done({"content": [image], **structured}).message == "look returned 2 fields"
    assert done({"structuredContent": {"a": 1}}).message == "look returned 1 field"
    assert done({"content": [image, image]}).message == "look returned 2 parts"
    assert done(structured, message_field="c").message == "look returned 2 fields"


def test_secrets_are_taken_out_of_data_and_message() -> None:
    # law 8
    result = {
        "content": text("it is s3cret-value"),
        "structuredContent": {"s3cret-value": ["s3cret-value"]},
    }
    assert "s3cret" not in str(done(result))
    assert "s3cret" not in str(done(result, message_template="s3cret-value {x}"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"message_field": "customer.name"}, "Ada"),
        ({"message_field": "gone"}, "look returned 1 field"),
        ({}, '{"raw": 1}'),
    ],
)
def test_text_is_no_message_where_another_was_wanted_and_nothing_else(
    options: dict[str, str], message: str
) -> None:
    raw = {"content": text('{"raw": 1}'), "structuredContent": CUSTOMER}
    assert done(raw, reply="message", **options).message == message


def test_answer_of_a_person_is_read_by_the_word_of_the_operator() -> None:
    asked: list[tuple[str, str]] = []

    def options(server: str, tool: str) -> ToolOptions:
        asked.append((server, tool))
        return ToolOptions(message_field="customer.name")

    result: dict[str, Any] = {"structuredContent": CUSTOMER}
    call = invoked()
    given = answered(result, call, options, Redactor(), size=7)

    assert (given.message, given.bytes) == ("Ada", 7)
    assert answered(result, None, options, Redactor(), size=7) == given
    assert asked == [("webhook", "look"), ("", "the tool")]


def invoked() -> ToolInvoked:
    return ToolInvoked(
        call=1,
        name="look",
        server="webhook",
        tool="look",
        params={},
        params_sha256="",
        effect="read",
        rule="allow[1]",
        idempotency_key="",
        fuel=0,
    )


@pytest.mark.parametrize(
    "result", [{}, {"degrees": 12}, {"contents": text("clear")}, {"isError": True}]
)
def test_an_answer_that_a_person_gives_says_something(result: dict[str, Any]) -> None:
    # law 7
    with pytest.raises(ToolError, match="neither content nor structuredContent"):
        answered(result, None, lambda *_: ToolOptions(), Redactor(), size=7)
