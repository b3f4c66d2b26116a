"""Libraries for agents run unmodified, with a model that speaks OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import HTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.answering import HERE, Answers, answering
from tests.wheels import make_wheel

from .shell import Shell

#: The first test builds and compiles the runtime, for all others.
pytestmark = pytest.mark.timeout(400)

LIBRARIES = ("pocketflow", "apache-burr", "tenacity")
PROGRAM = """\
# /// script
# dependencies = ["pocketflow", "apache-burr", "tenacity"]
# ///
from burr.core import ApplicationBuilder, State, action, default, expr
from pocketflow import Flow, Node
from tenacity import retry, stop_after_attempt, wait_fixed

from caxton_agent import chat


@retry(wait=wait_fixed(30), stop=stop_after_attempt(3))
def ask(text):
    return chat([{"role": "user", "content": text}], model="small")["content"]


class Ask(Node):
    def prep(self, shared):
        return shared["question"]

    def exec(self, question):
        return ask(question)

    def post(self, shared, question, answer):
        shared["answer"] = answer


@action(reads=["said"], writes=["said", "count"])
def more(state: State) -> State:
    return state.append(said=ask("more")).increment(count=1)


@action(reads=["said"], writes=["done"])
def finish(state: State) -> State:
    return state.update(done=" ".join(state["said"]))


def run():
    shared = {"question": "what"}
    Flow(start=Ask()).run(shared)
    app = (
        ApplicationBuilder()
        .with_actions(more, finish)
        .with_transitions(("more", "finish", expr("count >= 2")))
        .with_transitions(("more", "more", default))
        .with_state(said=[], count=0)
        .with_entrypoint("more")
        .build()
    )
    *_, state = app.run(halt_after=["finish"])
    return [shared["answer"], state["done"]]
"""
CONFIG = """\
[webhooks.model]
url = "{url}/v1/chat/completions"
allow_private = true

[agents.team]
program = "team.py"
names = {{ chat = "webhook/model" }}

[[agents.team.allow]]
tools = ["webhook/model"]
"""


class Model(Answers):
    """Says what it is told in capitals; the first request finds it busy."""

    asked: list[dict[str, Any]] = []  # noqa: RUF012 -- of the only one

    def respond(self) -> None:
        assert self.path == "/v1/chat/completions"
        asked = json.loads(self.body())
        self.asked.append(asked)
        if len(self.asked) == 1:
            self.answer(b'{"error": {"message": "overloaded"}}', status=503)
            return
        message = {
            "role": "assistant",
            "content": asked["messages"][-1]["content"].upper(),
        }
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer(json.dumps({"choices": [choice]}).encode())


@pytest.fixture
def url() -> Iterator[str]:
    Model.asked.clear()
    with answering(HTTPServer(HERE, Model)) as found:
        yield found


def wheel(index: Path, distribution: str) -> None:
    """Write the modules of an installed distribution as a wheel of its own."""
    files: dict[str, str | bytes] = {
        str(file): file.read_binary()
        for file in metadata.files(distribution) or ()
        if file.suffix == ".py" and ".." not in file.parts
    }
    name = distribution.replace("-", "_")
    make_wheel(index, name, files, version=metadata.version(distribution))


def test_libraries_run_unmodified_with_a_model_behind_a_grant(
    runtimes: Shell, url: str
) -> None:
    index = runtimes.folder / "index"
    for library in LIBRARIES:
        wheel(index, library)
    runtimes.set(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index))
    runtimes.write("team.py", PROGRAM)
    runtimes.write("caxton.toml", CONFIG.format(url=url))
    locked = runtimes("program", "lock", "team.py")
    assert locked.code == 0, locked.err

    done = runtimes("run", "team")

    assert (done.code, done.out) == (0, '["WHAT", "MORE MORE"]\n'), done.err
    assert [one["messages"][0]["content"] for one in Model.asked] == [
        *("what", "what", "more", "more")
    ]
    # law 6, without the model and without the wheels
    assert runtimes("replay", "@last").code == 0
    assert len(Model.asked) == 4
