"""An agent chats with a model that streams, and its run can be replayed."""

from __future__ import annotations

import json
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

from .shell import Shell, toml

KEY = "sk-canary-4711-canary"
DONE = "It is foggy in Lima."
CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "mcp__demo__get_weather", "arguments": '{"loc'},
}
REST = {"index": 0, "function": {"arguments": 'ation": "Lima"}'}}
SOURCE = """\
use caxton::{json, Chat, Error};
caxton::agent!(run);
fn run() -> Result<(), Error> {
    let mut messages = vec![json!({"role": "user", "content": "How is it in Lima?"})];
    let options = json!({"model": "small", "stream": true});
    let chat = Chat { tools: caxton::tools(), options, ..Chat::default() };
    caxton::output(chat.converse(&mut messages)?);
    Ok(())
}
"""


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
        (folder / "agent.rs").write_text(SOURCE)
        build_agent(folder)

    return once(tmp_path_factory, "chat", build) / "chat.wasm"


@pytest.fixture
def url() -> Iterator[str]:
    Model.asked.clear()
    with answering(HTTPServer(HERE, Model)) as found:
        yield found


def test_a_streamed_conversation_is_recorded_and_replayed(
    shell: Shell, agent: Path, url: str
) -> None:
    shutil.copy(agent, shell.folder)
    shell.set(KEY=KEY)
    model = {
        "url": f"{url}/v1/chat/completions",
        "headers": {"Authorization": "Bearer ${env:KEY}"},
        "allow_private": True,
    }
    chatting = {"module": "chat.wasm", "names": {"chat": "webhook/model"}}
    tables = {
        "servers.demo": standin.command(),
        "webhooks.model": model,
        "agents.chat": chatting,
    }
    allow = "[[agents.chat.allow]]\ntools = ['webhook/model', 'demo/get_weather']"
    shell.write("caxton.toml", toml(tables, allow))
    done = shell("run", "chat", "--json")
    assert done.code == 0, done.err
    assert done.document["output"] == {"role": "assistant", "content": DONE}
    first, second = Model.asked
    assert (first["model"], first["stream"]) == ("small", True)
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
    shell.set(KEY="another")
    Model.asked.clear()
    assert shell("replay", "@last").out.startswith("identical")  # law 5
    assert Model.asked == []  # law 6
