"""Every request that the page about the control API shows is made as it is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caxton_host.web.edge.messages import KINDS
from tests import standin

from .guests import call, guest
from .serving import Host, served
from .shell import SOON, Shell
from .test_docs import ROOT, blocks, commands

PAGE = ROOT / "docs" / "reference" / "control-api.md"
CONFIG = (
    f"version = 1\n[servers.demo]\n{standin.toml()}\n"
    """\
[agents.weather]
module = "weather.wasm"
allow = [{ tools = ["demo/*"] }]
[agents.payer]
module = "weather.wasm"
allow = [{ tools = ["demo/*"], approve = {} }]
"""
)


class Reader:
    """Makes the requests of the page."""

    def __init__(self, shell: Shell, host: Host) -> None:
        self.shell = shell
        program = shell.write("curl", "")
        curl = Path(__file__).with_name("curl.py")
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {curl} "$@"\n')
        program.chmod(0o755)
        self.environ = {
            **shell.environ,
            "CAXTON_HOST": host.url,
            "CAXTON_TOKEN": host.token,
            "PATH": f"{shell.folder}:/usr/bin:/bin",
        }
        self.names: dict[str, str] = {}

    def ask(self, line: str) -> tuple[str, int]:
        """Return what is answered, and its status."""
        for name, value in self.names.items():
            line = line.replace(f"/{name}", f"/{value}")
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.shell.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=SOON,
            check=True,
        )
        return done.stdout, int(done.stderr)


@pytest.mark.long
def test_each_request_is_answered(shell: Shell) -> None:
    shell.write("caxton.toml", CONFIG)
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("weather.wasm", guest(weather, output={"sky": "clear"}))
    answers: dict[str, Any] = {}
    with served(shell) as host:
        reader = Reader(shell, host)
        asked = host.post("/api/v1/runs?wait=30", {"agent": "payer"}).json()
        for block in blocks(PAGE):
            for line in commands(block.language, block.text):
                if "/approvals/ASKING" in line:
                    (waits,) = json.loads(answers["approvals"])["approvals"]
                    reader.names |= {
                        "ASKING": waits["run_id"],
                        "SEQ": str(waits["seq"]),
                    }
                out, status = reader.ask(line)
                assert status in {200, 201, 202}, f"{line}\n{out}"
                answers[line.rstrip('"').rpartition("/")[2]] = out
                if "order-17" in line:
                    reader.names["RUN"] = json.loads(out)["run_id"]

    assert json.loads(answers["result"])["output"] == {"sky": "clear"}
    assert "event: RunCompleted" in answers["events"]
    assert json.loads(answers["approve?wait=30"])["state"] == "completed"
    assert json.loads(answers["approve?wait=30"])["run_id"] == asked["run_id"]
    assert json.loads(answers["test"])["answers"] is True


def test_each_problem_is_on_the_page() -> None:
    page = PAGE.read_text()

    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
