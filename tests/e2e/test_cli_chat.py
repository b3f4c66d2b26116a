"""An agent chats with a model that streams, and its run can be replayed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from caxton_host.building import build_agent
from tests import standin
from tests.answering import HERE, Answers, answering
from tests.shared import once

from .shell import Done, Shell, toml

KEY = "sk-canary-4711-canary"
DONE = "It is foggy in Lima."
CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "mcp__demo__get_weather", "arguments": '{"loc'},
}
REST = {"index": 0, "function": {"arguments": 'ation": "Lima"}'}}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "chat.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The first block of each language on the page.
SHOWN = {match[1]: match[2] for match in reversed([*_BLOCK.finditer(PAGE.read_text())])}


class Model(Answers):
    """Streams a request for the weather; told of the weather, it answers."""

    asked: list[dict[str, Any]] = []  # noqa: RUF012 -- of the only one

    def respond(self) -> None:
        assert self.headers["authorization"] == f"Bearer {KEY}"
        self.asked.append(json.loads(self.body()))
        told = self.asked[-1]["messages"][-1]["role"] == "tool"
        deltas: list[Any] = (
            [{"content": DONE[:9]}, {"content": DONE[9:]}]
            if told
            else [{"tool_calls": [CALL]}, {"tool_calls": [REST]}]
        )
        choices = [[{"index": 0, "delta": delta}] for delta in deltas]
        events = [f"data: {json.dumps({'choices': one})}\n\n" for one in choices]
        body = "".join([*events, "data: [DONE]\n\n"]).encode()
        self.answer(body, kind="text/event-stream")


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        (folder / "agent.rs").write_text(SHOWN["rust"])
        build_agent(folder)

    return once(tmp_path_factory, "helper", build) / "helper.wasm"


@pytest.fixture
def url() -> Iterator[str]:
    Model.asked.clear()
    with answering(HTTPServer(HERE, Model)) as found:
        yield found


def chat(shell: Shell, agent: Path, url: str) -> Done:
    """Run the agent of the page with its configuration, and the model at *url*."""
    shutil.copy(agent, shell.folder)
    shell.set(MODEL_API_KEY=KEY)
    shown = SHOWN["toml"].replace("https://api.example.com", url)
    local = shown.replace("timeout", "allow_private = true\ntimeout", 1)
    shell.write("caxton.toml", toml({"servers.demo": standin.command()}, local))
    return shell("run", "helper", "-i", '{"question": "How is it in Lima?"}', "--json")


@pytest.mark.debian
def test_a_streamed_conversation_is_recorded_and_replayed(
    shell: Shell, agent: Path, url: str
) -> None:
    done = chat(shell, agent, url)
    assert done.code == 0, done.err
    assert done.document["output"] == {"answer": DONE}
    first, second = Model.asked
    assert (first["model"], first["max_tokens"]) == ("small", 1000)
    assert [one["function"]["name"] for one in first["tools"]] == [
        "mcp__demo__get_weather"
    ]
    assert second["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "Lima: 18 °C, fog",
    }
    types = [type_ for type_ in shell.types() if type_.startswith("Tool")]
    assert types == ["ToolInvoked", "ToolCompleted"] * 3
    assert KEY not in shell("events", "export", "@last").out  # law 8
    shell.set(MODEL_API_KEY="another")
    Model.asked.clear()
    assert shell("replay", "@last").out.startswith("identical")  # law 5
    assert Model.asked == []  # law 6


class Verbose(Answers):
    """Requests a call, with more words than fit into the next request."""

    def respond(self) -> None:
        self.body()
        call = {"id": "c1", "function": {"name": "none", "arguments": "{}"}}
        message = {"content": "x" * 600_000, "tool_calls": [call]}
        self.answer(json.dumps({"choices": [{"message": message}]}).encode())


@pytest.mark.debian
def test_a_conversation_that_is_too_long_ends_the_run_with_its_limit(
    shell: Shell, agent: Path
) -> None:  # law 9
    with answering(HTTPServer(HERE, Verbose)) as url:
        done = chat(shell, agent, url)
    assert done.code == 1
    assert "bytes, of 524288 allowed by limits.params" in done.err
    assert shell("replay", "@last").out.startswith("identical")


def test_the_python_of_the_page_chats_and_can_be_tested_without_a_model() -> None:
    names: dict[str, Any] = {}
    for match in _BLOCK.finditer(PAGE.read_text()):
        if match[1] == "py":
            exec(match[2], names)  # noqa: S102 -- the page's own
    assert names["host"].run(names["run"]) is None
    assert names["host"].output == {"answer": "It is noon.", "messages": 2}
