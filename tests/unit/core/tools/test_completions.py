"""Streamed completions become the completions that would not have been streamed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.tools.completions import assembled
from caxton_host.errors import BadBytes


def piece(delta: Any, index: int = 0, **more: Any) -> str:  # noqa: ANN401 -- JSON
    finish = more.pop("finish_reason", None)
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'c1', 'choices': [choice], **more})}\n\n"


def whole(*events: str, end: str = "data: [DONE]\n\n") -> Any:  # noqa: ANN401 -- JSON
    return read("".join(events) + end)


def read(stream: str) -> Any:  # noqa: ANN401 -- JSON
    return assembled(stream, json.loads)


def message(*deltas: Any) -> Any:  # noqa: ANN401 -- JSON
    return whole(*map(piece, deltas))["choices"][0]["message"]


def test_the_pieces_of_a_text_become_one_message() -> None:
    usage = {"choices": [], "usage": {"total_tokens": 7}}
    assert whole(
        piece({"role": "assistant", "content": ""}, object="chat.completion.chunk"),
        piece({"content": "It is "}),
        piece({"role": "assistant", "content": "noon.", "refusal": None}),
        piece({}, finish_reason="stop"),
        f"data: {json.dumps(usage)}\n\n",
    ) == {
        "id": "c1",
        "object": "chat.completion",
        "usage": {"total_tokens": 7},
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "It is noon.",
                    "refusal": None,
                },
                "finish_reason": "stop",
            }
        ],
    }


def test_the_pieces_of_calls_are_joined_by_their_index() -> None:
    def part(index: int, **function: str) -> Any:  # noqa: ANN401 -- JSON
        call: dict[str, Any] = {"index": index, "function": function}
        if "name" in function:
            call |= {"id": f"call-{index}", "type": "function"}
        return {"tool_calls": [call]}

    calls = message(
        part(1, name="b", arguments=""),
        part(0, name="a", arguments='{"x'),
        part(1, name="b", arguments="{}"),
        part(0, arguments='": 1}'),
    )["tool_calls"]
    assert [call["function"] for call in calls] == [
        {"name": "a", "arguments": '{"x": 1}'},
        {"name": "b", "arguments": "{}"},
    ]
    assert [call["id"] for call in calls] == ["call-0", "call-1"]


def test_several_choices_keep_their_order() -> None:
    choices = whole(piece({"content": "b"}, 1), piece({"content": "a"}, 0))["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["a", "b"]


@given(text=st.text(min_size=1), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_a_text_is_the_same_however_it_is_cut(text: str, cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(ends)]
    assert message(*({"content": part} for part in parts)) == {"content": text}


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
def test_events_are_read_as_the_standard_has_it(newline: str) -> None:
    lines = ": comment\nevent: x\n" + piece({"content": "a"}).replace(", ", ",\ndata: ")
    stream = (lines + "id: 7\n\ndata:[DONE]").replace("\n", newline)
    found = read(stream)
    assert found["choices"][0]["message"] == {"content": "a"}


def test_a_stream_ends_with_its_mark_or_with_the_reason_of_every_choice() -> None:
    ended = piece({"content": "a"}, finish_reason="stop")
    found = whole(ended, end="")
    assert found["choices"][0]["message"] == {"content": "a"}
    for broken in (piece({"content": "a"}), ended + piece({"content": "b"}, 1)):
        with pytest.raises(BadBytes, match="breaks off"):
            whole(broken, end="")


def test_what_follows_the_mark_of_the_end_is_not_read() -> None:
    assert message({"content": "a"}) == {"content": "a"}
    found = whole(piece({"content": "a"}), "data: [DONE]\n\n", "data: {\n\n")
    assert found["choices"][0]["message"] == {"content": "a"}


def test_an_error_in_the_stream_is_the_answer() -> None:
    error = {"error": {"message": "overloaded"}}
    assert whole(piece({"content": "a"}), f"data: {json.dumps(error)}\n\n") == error


@pytest.mark.parametrize(
    "stream",
    [
        "",
        "data: [DONE]\n\n",
        "data: one\n\n",
        "data: [1]\n\n",
        'data: {"type": "message_start"}\n\n',
        'data: {"choices": {}}\n\n',
        'data: {"choices": [1]}\n\n',
        'data: {"choices": [{"index": 0, "text": "a"}]}\n\n',
        'data: {"choices": [{"index": "0", "delta": {}}]}\n\n',
        'data: {"choices": [{"delta": {}}]}\n\n',
        piece({"content": "a"}) + "data: two\n\n",
    ],
)
def test_another_stream_is_no_completion(stream: str) -> None:
    assert read(stream) is None


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{"a": "x"}, {"a": 1}], {"a": 1}),
        ([{"a": 1}, {"a": "x"}], {"a": "x"}),
        ([{"a": [1]}, {"a": [2]}], {"a": [1, 2]}),
        ([{"a": "x"}, {"a": [2]}], {"a": [2]}),
        ([{"a": [{"index": 5}]}, {"a": ["x"]}], {"a": ["x"]}),
        ([{"a": ["x"]}, {"a": []}, {"a": [{"index": 2}]}], {"a": ["x", {"index": 2}]}),
        ([{"a": [{"index": 10**9}]}], {"a": [{"index": 10**9}]}),
        ([{"a": []}, {"a": {"b": "c"}}], {"a": {"b": "c"}}),
        ([{"a": {"b": "c"}}, {"a": {"b": "d"}}], {"a": {"b": "cd"}}),
        ([{"a": "x"}, {"a": None}], {"a": "x"}),
    ],
)
def test_pieces_that_do_not_fit_replace_each_other(  # law 9
    deltas: list[Any],
    expected: Any,  # noqa: ANN401 -- JSON
) -> None:
    assert message(*deltas) == expected
