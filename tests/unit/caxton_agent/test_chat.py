"""Chats with a model that is a tool, however wrong its answers are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import caxton_agent as ca
import pytest
from caxton_agent.testing import Answer, FakeHost

ASKED = {"role": "user", "content": "What time is it?"}
CLOCK = ca.Tool("mcp__time__now", "The time.", {"type": "object"})
DONE = {"role": "assistant", "content": "It is noon."}


def call(name: str = CLOCK.name, arguments: Any = "{}", id_: str = "1") -> ca.JSON:  # noqa: ANN401 -- as hostile as it likes
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def wants(*calls: ca.JSON) -> ca.JSON:
    return {"role": "assistant", "content": None, "tool_calls": [*calls]}


def completion(message: ca.JSON) -> ca.Reply:
    data = {"structuredContent": {"id": "c", "choices": [{"message": message}]}}
    return ca.Reply("", data)


def model(messages: Iterable[ca.JSON]) -> Callable[[dict[str, ca.JSON]], ca.Reply]:
    script = iter(messages)
    return lambda _: completion(next(script))


def conversation(*messages: ca.JSON, now: Answer = "noon") -> FakeHost:
    return FakeHost({"chat": model(messages), CLOCK.name: now}, tools=[CLOCK])


def told(host: FakeHost, *, tools: list[ca.Tool] | None = None) -> list[str]:
    """Converse, and return what the model was told of its calls."""
    messages: list[ca.JSON] = [ASKED]
    with host:
        assert ca.converse(messages, tools=tools) == DONE
    return [one["content"] for one in messages if one["role"] == "tool"]


def test_a_chat_sends_the_conversation_and_returns_the_message() -> None:
    with conversation(DONE) as host:
        said = ca.chat([ASKED], tools=[CLOCK], model="small", temperature=0)
    assert said == DONE
    function = {
        "name": CLOCK.name,
        "description": "The time.",
        "parameters": {"type": "object"},
    }
    assert host.calls == [
        (
            "chat",
            {
                "model": "small",
                "temperature": 0,
                "messages": [ASKED],
                "tools": [{"type": "function", "function": function}],
            },
        )
    ]


def test_definitions_of_the_author_are_sent_as_they_are_and_none_is_no_key() -> None:
    own: dict[str, ca.JSON] = {"type": "function", "function": {"name": "mine"}}
    with conversation(DONE, DONE) as host:
        ca.chat([ASKED], tools=[own])
        ca.chat([ASKED])
    assert host.calls[0][1]["tools"] == [own]
    assert "tools" not in host.calls[1][1]


@pytest.mark.parametrize(
    "answer",
    [
        completion(DONE),
        completion({"content": "It is noon."}),
        completion({**DONE, "role": "system"}),
        ca.Reply("", {"structuredContent": DONE}),
        ca.Reply("", {"structuredContent": {"result": DONE}}),
        ca.Reply(json.dumps(DONE)),
        ca.Reply(json.dumps({"choices": [{"message": DONE}]})),
    ],
)
def test_a_model_answers_with_a_completion_or_its_message(answer: ca.Reply) -> None:
    with FakeHost({"mcp__llm__ask": answer}):
        assert ca.chat([ASKED], via="mcp__llm__ask") == DONE


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ca.Reply("It is noon."), "the answer of chat is not a completion: Expecting"),
        (ca.Reply("[" * 100_000), "not a completion: more than 64 levels"),
        (ca.Reply("[]"), "the answer of chat has no message"),
        (ca.Reply("{}"), "the answer of chat has no message"),
        (ca.Reply('{"choices": []}'), "the answer of chat has no message"),
        (ca.Reply('{"choices": [1]}'), "the answer of chat has no message"),
        (ca.Reply('{"choices": {"0": 1}}'), "the answer of chat has no message"),
        (completion("noon"), "the answer of chat has no message"),
        (completion({"role": "assistant"}), "the answer of chat has no message"),
        (completion({"content": 12}), "neither text nor a list"),
        (completion({"tool_calls": "all"}), "tool_calls is not a list of calls"),
        (completion(wants(1)), "tool_calls is not a list of calls"),
        (completion(wants({"id": "1"})), "tool_calls is not a list of calls"),
        (completion(wants(call(arguments=7))), "tool_calls is not a list of calls"),
        (completion(wants(call(id_=None))), "tool_calls is not a list of calls"),  # type: ignore[arg-type] # what a model may say
        (completion(wants(*[call()] * 65)), "requests 65 calls, 64 are allowed"),
    ],
)
def test_an_answer_that_is_no_message_is_an_error_that_says_why(  # law 9
    answer: ca.Reply, why: str
) -> None:
    with FakeHost({"chat": answer}), pytest.raises(ca.ToolError, match=why) as caught:
        ca.chat([ASKED])
    assert caught.value.code == "bad_answer"


def test_a_model_that_is_not_granted_is_denied_like_any_tool() -> None:
    with FakeHost(), pytest.raises(ca.Denied):
        ca.converse([ASKED])


def test_a_conversation_makes_the_calls_that_the_model_requests() -> None:
    both = wants(call(id_="a"), call(arguments='{"zone": "UTC"}', id_="b"))
    messages: list[ca.JSON] = [ASKED]
    with conversation(both, DONE) as host:
        assert ca.converse(messages, model="small") == DONE
    assert messages == [
        ASKED,
        both,
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
        {"role": "tool", "tool_call_id": "b", "content": "noon"},
        DONE,
    ]
    assert [name for name, _ in host.calls] == ["chat", *[CLOCK.name] * 2, "chat"]
    assert [params for _, params in host.calls[1:3]] == [{}, {"zone": "UTC"}]
    assert host.calls[3][1]["model"] == "small"


def test_every_granted_tool_but_the_model_is_offered_unless_the_author_chooses() -> (
    None
):
    mail = ca.Tool("mail", "", {})
    host = FakeHost({"chat": model([DONE] * 3)}, tools=[CLOCK, mail])
    host.tools.append(ca.Tool("chat", "", {}))
    with host:
        ca.converse([ASKED])
        ca.converse([ASKED], tools=[mail])
        ca.converse([ASKED], tools=[])
    offered = [
        [one["function"]["name"] for one in params.get("tools", [])]
        for _, params in host.calls
    ]
    assert offered == [[CLOCK.name, "mail"], ["mail"], []]


@pytest.mark.parametrize(
    ("requested", "why"),
    [
        (call("r m"), "denied: there is no tool 'r m' in this conversation"),
        (call(""), "denied: there is no tool '' in this conversation"),
        (call("chat"), "denied: there is no tool 'chat' in this conversation"),
        (call("mcp__time__n\u043ew"), r"there is no tool 'mcp__time__n\u043ew' in"),
        (call("x" * 500_000), f"denied: there is no tool '{'x' * 80}' in"),
        (call(arguments="{"), "bad_request: the arguments are not JSON: Expecting"),
        (call(arguments="[1]"), "bad_request: the arguments are not a JSON object"),
        (call(arguments="[" * 500_000), "not JSON: more than 64 levels"),
        (call(arguments='{"a": NaN}'), "bad_request: the arguments are not JSON"),
        (call(arguments=r'{"a": "\ud800"}'), "the arguments are not JSON: they:"),
        (call(arguments=f'{{"a": {"9" * 5_000}}}'), "the arguments are not JSON"),
    ],
)
def test_a_wrong_call_is_not_made_and_the_model_is_told_why(  # law 9
    requested: ca.JSON, why: str
) -> None:
    host = conversation(wants(requested, call()), DONE)
    first, second = told(host)
    assert why in first
    assert second == "noon"
    assert [name for name, _ in host.calls] == ["chat", CLOCK.name, "chat"]


@pytest.mark.parametrize("arguments", ["", None, {}])
def test_no_arguments_are_an_empty_object(arguments: ca.JSON) -> None:
    host = conversation(wants(call(arguments=arguments)), DONE)
    assert told(host) == ["noon"]
    assert host.calls[1] == (CLOCK.name, {})


def test_brackets_in_a_text_are_no_levels() -> None:
    code = json.dumps({"code": '"\\[{"' * 100})
    assert told(conversation(wants(call(arguments=code)), DONE)) == ["noon"]


@pytest.mark.parametrize("name", [CLOCK.name, "rm"])
def test_a_tool_that_the_author_left_out_is_not_called(name: str) -> None:
    host = conversation(wants(call(name)), DONE)
    (why,) = told(host, tools=[])
    assert why.startswith("denied: there is no tool ")
    assert [name for name, _ in host.calls] == ["chat", "chat"]


def test_a_tool_that_the_model_made_up_is_denied_by_the_host() -> None:  # law 9
    host = conversation(wants(call("rm", '{"f": 1}'), call()), DONE)
    assert told(host) == ["denied: no rule allows rm (not_granted)", "noon"]
    assert host.calls[1:3] == [("rm", {"f": 1}), (CLOCK.name, {})]


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (ca.Denied("budget", "spent"), "denied: spent (budget)"),
        (ca.ToolError("tool_error", "no city"), "tool_error: no city (tool_error)"),
        (
            ca.Reply("x returned 1 field", {"structuredContent": {"a": "é"}}),
            '{"a": "é"}',
        ),
        (
            ca.Reply("it is a", {"content": [{}], "structuredContent": {"a": 1}}),
            "it is a",
        ),
        (ca.Reply(""), ""),
        ("x" * 16_000, "x" * 16_000),
        ("x" * 16_003, f"{'x' * 16_000}\n(3 more characters were cut)"),
    ],
)
def test_the_model_is_told_each_outcome_within_a_bound(
    answer: Answer, content: str
) -> None:
    assert told(conversation(wants(call()), DONE, now=answer)) == [content]


def test_a_model_that_requests_calls_without_end_is_an_error() -> None:  # law 9
    messages: list[ca.JSON] = [ASKED]
    host = conversation(*[wants(call())] * 100)
    with host, pytest.raises(ca.ToolError, match="in round 3") as caught:
        ca.converse(messages, rounds=3)
    assert caught.value.code == "rounds"
    assert len(messages) == 7
    assert len(host.calls) == 6


def test_a_run_goes_on_with_the_conversation_of_the_run_that_it_continues() -> None:
    data: ca.JSON = {"structuredContent": {"choices": [{"message": DONE}]}}
    said: ca.JSON = {"run": "r1", "messages": [ASKED]}
    for answer in (
        {"message": "", "data": data},
        {"message": json.dumps(DONE), "data": None},
    ):
        with FakeHost({}, context={"conversation": {**said, "answer": answer}}):
            assert ca.conversation() == [ASKED, DONE]
    with FakeHost({}):
        assert ca.conversation() == []
    broken: ca.JSON = {**said, "answer": {"message": "noon", "data": None}}
    with (
        FakeHost({}, context={"conversation": broken}),
        pytest.raises(ca.ToolError, match="not a completion"),
    ):
        ca.conversation()


def test_an_image_is_a_content_block() -> None:
    assert ca.image(b"hi") == {
        "type": "image",
        "data": "aGk=",
        "mimeType": "image/png",
    }
