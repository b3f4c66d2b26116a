"""Pure libraries from wheels run in the runtime as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from typing import Any

import pytest

from caxton_host.core.calls import Completed, Failed, Outcome
from tests.programs import LIMITS, Programs, text

pytestmark = pytest.mark.timeout(400)

CHAT = "mcp__llm__chat"
#: Many modules at a time are more than a program.
LOCKING = replace(LIMITS, output=1 << 25, compute=60.0)


def modules(distribution: str) -> dict[str, tuple[bool, str]]:
    """Return the modules of an installed distribution, as the runtime takes them."""
    found: dict[str, tuple[bool, str]] = {}
    for file in metadata.files(distribution) or ():
        if file.name == "METADATA":
            found[file.parent.name] = (False, file.read_text())
        elif file.suffix == ".py" and ".." not in file.parts:
            is_package = file.stem == "__init__"
            path = file.parent if is_package else file.with_suffix("")
            found[".".join(path.parts)] = (is_package, file.read_text())
    return found


def locked(programs: Programs, distribution: str) -> str:
    source = json.dumps(modules(distribution))
    packages: str = programs(source, name="caxton:lock", limits=LOCKING).output
    return packages


def chat(params: dict[str, Any]) -> Completed:
    """Answer like a server that speaks the protocol of OpenAI."""
    said = params["messages"][-1]["content"].upper()
    return text(
        said, {"choices": [{"message": {"role": "assistant", "content": said}}]}
    )


def test_pocketflow_runs_as_it_is(python_programs: Programs) -> None:
    ran = python_programs(
        """\
import asyncio
from caxton_agent import aio, output
from pocketflow import AsyncFlow, AsyncNode, AsyncParallelBatchNode

async def ask(text):
    answer = await aio.tools.llm.chat(messages=[{"role": "user", "content": text}])
    return answer["choices"][0]["message"]["content"]

class Split(AsyncNode):
    async def post_async(self, shared, prepared, result):
        shared["words"] = shared["text"].split()
        return "words"

class Ask(AsyncParallelBatchNode):
    async def prep_async(self, shared): return shared["words"]
    async def exec_async(self, word): return await ask(word)
    async def post_async(self, shared, words, answers): shared["answers"] = answers

split = Split()
split - "words" >> Ask(max_retries=2, wait=1)
shared = {"text": "one two three"}
asyncio.run(AsyncFlow(start=split).run_async(shared))
output(shared["answers"])
""",
        {CHAT: chat},
        catalogue=[{"name": CHAT, "description": "", "input_schema": {}}],
        packages=locked(python_programs, "pocketflow"),
    )
    assert ran.output == ["ONE", "TWO", "THREE"]
    assert ran.tools.sent == [[CHAT] * 3]


def test_burr_runs_as_it_is(python_programs: Programs) -> None:
    ran = python_programs(
        """\
from burr.core import ApplicationBuilder, State, action, default, expr
from caxton_agent import output, tools

@action(reads=["history"], writes=["history", "count"])
def ask(state: State) -> State:
    answer = tools.llm.chat(messages=[{"role": "user", "content": "more"}])
    said = answer["choices"][0]["message"]["content"]
    return state.append(history=said).increment(count=1)

@action(reads=["history"], writes=["done"])
def finish(state: State) -> State:
    return state.update(done=" ".join(state["history"]))

app = (
    ApplicationBuilder()
    .with_actions(ask, finish)
    .with_transitions(("ask", "finish", expr("count >= 3")), ("ask", "ask", default))
    .with_state(history=[], count=0)
    .with_entrypoint("ask")
    .build()
)
*_, state = app.run(halt_after=["finish"])
output([state["done"], app.uid])
""",
        {CHAT: chat},
        catalogue=[{"name": CHAT, "description": "", "input_schema": {}}],
        packages=locked(python_programs, "apache-burr"),
    )
    done, uid = ran.output
    assert done == "MORE MORE MORE"
    assert len(uid) == 36
    assert ran.tools.sent == [[CHAT]] * 3


def test_tenacity_waits_without_time_and_tries_again(
    python_programs: Programs,
) -> None:
    late = Failed(kind="timeout", message="late", sent="yes")
    answers: Iterator[Outcome] = iter([late, text("there")])
    ran = python_programs(
        """\
import importlib.metadata, time
from caxton_agent import Failed, mcp_call, output
from tenacity import retry, retry_if_exception_type, wait_fixed

@retry(wait=wait_fixed(60), retry=retry_if_exception_type(Failed))
def ask():
    return mcp_call("mcp__x__ask").message

began = time.monotonic()
said = ask()
output([said, round(time.monotonic() - began), importlib.metadata.version("tenacity")])
""",
        {"mcp__x__ask": lambda _: next(answers)},
        packages=locked(python_programs, "tenacity"),
    )
    # Each of the two answers took a second.
    assert ran.output == ["there", 62, metadata.version("tenacity")]


def test_a_package_with_an_error_is_named_with_its_line(
    python_programs: Programs,
) -> None:
    source = json.dumps({"a": [True, ""], "a.b": [False, "x = 1\ndef f(:\n"]})
    error = python_programs(source, name="caxton:lock").error
    assert 'File "/packages/a/b.py", line 2' in error
    assert error.endswith("SyntaxError: invalid syntax")


def test_a_package_cannot_replace_the_standard_library(
    python_programs: Programs,
) -> None:
    source = json.dumps({"colorsys": [False, "x = 1"], "mine": [False, "y = 2"]})
    packages = python_programs(source, name="caxton:lock").output
    ran = python_programs(
        "import colorsys, mine, caxton_agent as ca\n"
        "ca.output([hasattr(colorsys, 'x'), mine.y, mine.__file__])",
        packages=packages,
    )
    assert ran.output == [False, 2, "/packages/mine.py"]


def test_an_unlocked_package_is_an_error_with_what_to_do(
    python_programs: Programs,
) -> None:
    error = python_programs("import pydantic_core").error
    assert "ModuleNotFoundError: No module named 'pydantic_core'" in error
    assert "To fix: " in error
    assert "parts in C do not work" in error
