"""An answer is kept whole, told in short, and never with a secret."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.calls import Completed
from caxton_host.core.redact import Redactor
from caxton_host.core.servers import ToolOptions
from caxton_host.errors import ToolError
from caxton_host.mcp.results import completed

CUSTOMER = {"customer": {"name": "Ada", "tags": ["a", "b"], "age": 36}}


def text(*parts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": part} for part in parts]


def done(result: dict[str, Any], **options: Any) -> Completed:  # noqa: ANN401
    return completed(result, ToolOptions(**options), Redactor(["s3cret-value"]))


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
        {},
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
        ("customer.tags", '["a", "b"]'),
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


def test_a_template_is_filled_and_unknown_placeholders_stay() -> None:
    result = {"content": [], "structuredContent": CUSTOMER}
    template = "Found {customer.name}, {customer.nobody} {not a name} {}"
    assert (
        done(result, message_template=template).message
        == "Found Ada, {customer.nobody} {not a name} {}"
    )


def test_secrets_are_taken_out_of_data_and_message() -> None:
    # law 8
    result = {
        "content": text("it is s3cret-value"),
        "structuredContent": {"s3cret-value": ["s3cret-value"]},
    }
    assert "s3cret" not in str(done(result))
    assert "s3cret" not in str(done(result, message_template="s3cret-value {x}"))
