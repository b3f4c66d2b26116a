"""Agents chat with a model alike in every language, however wrong its answers are."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from caxton_host.building import build_agent
from caxton_host.core.calls import JSON, Completed, Denied, Outcome, reply
from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Guest
from caxton_host.sandbox import WasmSandbox
from tests.shared import once
from tests.stillness import NOW

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)

#: The Python SDK has the same tests without a build, in tests/unit/caxton_agent.
LANGUAGES = ("js", pytest.param("rs", marks=pytest.mark.debian))
HELLO = {"role": "user", "content": "Hello"}
DONE = {"role": "assistant", "content": "It is noon."}
NOON = Completed(message="noon")
TOOLS = codec.encode(
    [
        {
            "name": name,
            "description": f"It is {name}.",
            "input_schema": {"type": "object"},
        }
        for name in ("chat", "now", "late")
    ]
)


@dataclass
class Tools:
    """A door to a model that follows a script, and to other tools."""

    model: Iterator[Completed]
    others: dict[str, Outcome] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def answer(self, name: bytes, params: bytes) -> tuple[int, Any]:
        self.calls.append((name.decode(), codec.decode(params, limit=1 << 20)))
        if name == b"chat":
            return reply(next(self.model))
        denied = Denied(code="not_granted", rule=None, message="no rule")
        return reply(self.others.get(name.decode(), denied))

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        del fuel
        status, body = self.answer(name, params)
        return Answer(status, codec.encode(body), NOW)

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        del fuel
        calls = [(name or b"", params) for name, params in codec.split_batch(batch)]
        replies = [self.answer(*call)[1] for call in calls]
        return Answer(0, codec.encode(replies), NOW)

    def log(self, level: int, text: bytes) -> None:
        raise AssertionError((level, text))


@pytest.fixture(scope="session", params=LANGUAGES)
def agent(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    zig_cache: Path,
) -> bytes:
    """Return the agent that chats, in each language."""
    language: str = request.param
    if language == "js":
        request.getfixturevalue("javascript_runtime")

    def build(folder: Path) -> None:
        source = Path(__file__).with_name(f"chat.{language}")
        shutil.copy(source, folder / f"agent.{language}")
        build_agent(folder, cache=zig_cache)

    (module,) = once(tmp_path_factory, f"chat-{language}", build).glob("*.wasm")
    return module.read_bytes()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chats-compiled")


@dataclass
class Chats:
    """Runs the agent, and returns what it output."""

    agent: bytes
    sandbox: WasmSandbox

    async def __call__(
        self, *model: Completed, converse: bool = True, **others: Outcome
    ) -> tuple[Any, list[tuple[str, Any]]]:
        limits = Limits(memory=256 * 1024 * 1024)
        tools = Tools(iter(model), others)
        task: JSON = {"converse": converse, "options": {"model": "small"}}
        prepared = await self.sandbox.prepare(self.agent, limits, "run")
        guest = Guest(
            domain="chats",
            entry="run",
            limits=limits,
            input=codec.encode(task),
            tools=TOOLS,
            seed=bytes(32),
            now=NOW,
        )
        ending = await self.sandbox.run(prepared, guest, tools)
        assert (ending.kind, ending.message) == ("returned", "")
        assert ending.output is not None
        return codec.decode(ending.output, limit=1 << 20), tools.calls


@pytest.fixture
async def chats(agent: bytes, compiled: Path) -> AsyncIterator[Chats]:
    async with WasmSandbox(compiled, bytes(32)) as sandbox:
        yield Chats(agent, sandbox)


def structured(value: object) -> Completed:
    return Completed(message="1 field", data={"structuredContent": cast("JSON", value)})


def completion(message: object) -> Completed:
    return structured({"id": "c", "choices": [{"message": message}]})


def call(name: str, arguments: object = "{}", id_: object = "1") -> object:
    return {"id": id_, "function": {"name": name, "arguments": arguments}}


def wants(*calls: object) -> Completed:
    return completion({"role": "assistant", "content": None, "tool_calls": [*calls]})


async def test_a_chat_sends_the_conversation_and_returns_the_message(
    chats: Chats,
) -> None:
    result, calls = await chats(completion(DONE), converse=False)
    assert result == {"said": DONE, "error": None, "messages": [HELLO]}
    [(name, params)] = calls
    assert (name, params["model"], params["messages"]) == ("chat", "small", [HELLO])
    assert [one["function"]["name"] for one in params["tools"]] == ["now", "late"]
    assert params["tools"][0] == {
        "type": "function",
        "function": {
            "name": "now",
            "description": "It is now.",
            "parameters": {"type": "object"},
        },
    }


async def test_a_model_answers_with_a_completion_or_its_message(chats: Chats) -> None:
    for answer in (
        completion({**DONE, "role": "system"}),
        structured(DONE),
        structured({"result": DONE}),
        Completed(message=json.dumps({"choices": [{"message": DONE}]})),
    ):
        result, _ = await chats(answer, converse=False)
        assert result["said"] == DONE


async def test_an_answer_that_is_no_message_is_an_error_that_says_why(  # law 9
    chats: Chats,
) -> None:
    for answer, why in (
        (Completed(message="noon"), "the answer of chat is not a completion: "),
        (Completed(message="[" * 100_000), "levels"),
        (Completed(message="[]"), "the answer of chat has no message"),
        (structured({"choices": [None]}), "the answer of chat has no message"),
        (structured({"choices": 1}), "the answer of chat has no message"),
        (completion("noon"), "the answer of chat has no message"),
        (completion({"content": 1}), "neither text nor a list"),
        (completion({"tool_calls": {}}), "tool_calls is not a list of calls"),
        (wants(None), "tool_calls is not a list of calls"),
        (wants(call("now", 7)), "tool_calls is not a list of calls"),
        (wants(call("now", [])), "tool_calls is not a list of calls"),
        (wants(call("now", id_=None)), "tool_calls is not a list of calls"),
        (wants(*[call("now")] * 65), "requests 65 calls, 64 are allowed"),
    ):
        result, calls = await chats(answer)
        code, message = result["error"]
        assert code == "bad_answer"
        assert why in message
        assert len(calls) == 1


async def test_a_conversation_makes_the_calls_that_the_model_requests(
    chats: Chats,
) -> None:
    number = 2**64 - 1
    first = wants(
        call("now", json.dumps({"n": number}), "a"),
        call("late", "", "b"),
        call("late", {}, "c"),
        call("late", None, "d"),
    )
    late = Completed(message="x" * 16_003)
    result, calls = await chats(
        first, completion(DONE), now=structured({"a": 1}), late=late
    )
    assert result["said"] == result["messages"][-1] == DONE
    cut = f"{'x' * 16_000}\n(3 more characters were cut)"
    told = {"a": '{"a":1}', "b": cut, "c": cut, "d": cut}
    assert result["messages"][2:-1] == [
        {"role": "tool", "tool_call_id": id_, "content": text}
        for id_, text in told.items()
    ]
    made = [("now", {"n": number}), *[("late", {})] * 3]
    assert calls[1:-1] == made
    assert calls[-1][1]["messages"] == result["messages"][:-1]


async def test_a_wrong_call_is_not_made_and_the_model_is_told_why(  # law 9
    chats: Chats,
) -> None:
    for requested, why in (
        (call("r m"), 'denied: there is no tool "r m" in this conversation'),
        (call("chat"), 'denied: there is no tool "chat" in this conversation'),
        (call("x" * 10_000), f'denied: there is no tool "{"x" * 80}" in this'),
        (call("n\u043ew"), "denied: there is no tool"),
        (call("now", "{"), "bad_request: the arguments are not JSON: "),
        (call("now", "[1]"), "bad_request: the arguments are not a JSON object"),
        (call("now", "[" * 100_000), "bad_request: the arguments are not JSON: "),
    ):
        model = [wants(requested, call("now")), completion(DONE)]
        result, calls = await chats(*model, now=NOON)
        wrong, right = [one["content"] for one in result["messages"][2:4]]
        assert wrong.startswith(why)
        assert wrong.isascii()
        assert right == "noon"
        assert [name for name, _ in calls] == ["chat", "now", "chat"]


async def test_a_tool_that_the_model_made_up_is_denied_by_the_host(  # law 9
    chats: Chats,
) -> None:
    for name in ("rm", "__proto__", "x" * 128):
        result, calls = await chats(wants(call(name, '{"f": 1}')), completion(DONE))
        assert calls[1] == (name, {"f": 1})
        assert result["messages"][2]["content"] == "denied: no rule (not_granted)"


async def test_a_denied_call_is_told_and_calls_without_end_are_an_error(
    chats: Chats,
) -> None:
    result, calls = await chats(*[wants(call("now"))] * 9)
    assert result["error"] == ["rounds", "the model still requests calls in round 3"]
    told = [one["content"] for one in result["messages"] if one["role"] == "tool"]
    assert told == ["denied: no rule (not_granted)"] * 3
    assert len(calls) == 6
