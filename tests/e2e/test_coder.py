"""The coder: a model writes programs, runs them in a sandbox, and repairs them."""

from __future__ import annotations

import re
import runpy
import shutil
from typing import Any

import caxton_agent as ca
import pytest
from caxton_agent.testing import FakeHost

from caxton_host.building import find_shared

from .shell import Shell

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)

FOLDER = find_shared("agents/coder")
TASK = '{"task": "What is the mean temperature of Lima and Tokyo?"}'
ANSWER = "The mean temperature is 17.0 °C."


def test_the_coder_repairs_its_programs_until_one_works(runtimes: Shell) -> None:
    shutil.copytree(FOLDER, runtimes.folder / "coder")
    page = (FOLDER / "README.md").read_text("utf-8")
    sandbox, host = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    runtimes.write("sandbox.toml", sandbox)
    # The sandbox has its runtime where this machine has it.
    names = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")
    env = ", ".join(f'{name} = "{runtimes.environ[name]}"' for name in names)
    line = 'timeout = "60s"\n'
    runtimes.write("caxton.toml", host.replace(line, f"{line}env = {{ {env} }}\n"))

    done = runtimes("run", "coder", "-i", TASK, "--json")

    assert done.code == 0, done.err
    assert done.document["output"] == {"answer": ANSWER, "programs": 3}
    syntax, key, output = (
        call["message"]
        for call in done.document["call_list"]
        if call["tool"] == "sandbox/run_code"
    )
    assert 'File "code.py", line 5' in syntax
    assert "SyntaxError: expected ':'" in syntax
    assert 'File "code.py", line 7' in key
    assert "KeyError: 'degrees'" in key
    assert output == "17.0"
    shutil.rmtree(runtimes.folder / "coder")
    runtimes.write("sandbox.toml", "")
    assert runtimes("replay", "@last").out.startswith("identical")  # law 6


def test_the_coder_stops_when_the_sandbox_fails() -> None:
    agent: dict[str, Any] = runpy.run_path(str(FOLDER / "agent.py"))
    model: dict[str, Any] = runpy.run_path(str(FOLDER / "model_server.py"))

    def complete(params: dict[str, Any]) -> ca.Reply:
        message = model["complete"](params["messages"], params["tools"])
        return ca.Reply("", {"structuredContent": message})

    failing = ca.Failed("transport", "the sandbox is gone")
    answers: dict[str, Any] = {"chat": complete, "mcp__sandbox__run_code": failing}
    host = FakeHost(answers, input={"task": "What is it like in Lima?"})
    assert host.run(agent["run"]) is None
    assert host.output["answer"].startswith("I do not understand this error: failed: ")
