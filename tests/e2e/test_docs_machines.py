"""The page about several machines: its commands, on three of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import standin

from .shell import SOON
from .test_cli_cancel import until
from .test_docs import ROOT, blocks, commands

PAGE = ROOT / "docs" / "how-to" / "several-machines.md"
SHOWN = "http://127.0.0.1:8080"
#: Another machine is another home.
SSH = '#!/bin/sh\nHOME={}/$1; shift; mkdir -p "$HOME"; cd "$HOME"; exec "$@"\n'
#: The server of the starter configuration, and one that answers once there is a file.
DEMO = 'command = "python"\nargs = .*demo_server"]\n(confine = .*\n)?timeout = "10s"'
LATER = 'command = "sh"\nargs = ["-c", {}]\ntools.get_weather.effect = "read"'
WAIT = """\
while IFS= read -r line; do
  case $line in *Seattle*) until [ -e {} ]; do sleep 0.1; done;; esac
  printf '%s\\n' "$line"
done | exec {}"""


class Machine:
    """A home, the shell in it, and its host."""

    def __init__(self, homes: Path, name: str) -> None:
        self.folder = homes / name / "caxton"
        self.environ = {
            "HOME": str(homes / name),
            "PATH": f"{homes}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CAXTON_SERVE_PORT": "0",
        }
        self.url = ""

    def type(self, line: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", line.replace(SHOWN, self.url)],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout

    def serve(self, line: str, stack: ExitStack) -> subprocess.Popen[bytes]:
        log = self.folder / "host.log"
        with log.open("wb") as said:
            host = subprocess.Popen(
                shlex.split(line), cwd=self.folder, env=self.environ, stderr=said
            )
        stack.enter_context(host)
        stack.callback(host.kill)
        until(lambda: "/readyz" in log.read_text())
        self.url = log.read_text().split()[2]
        return host

    def driven(self) -> int:
        found: int = httpx.get(f"{self.url}/readyz", timeout=SOON).json()["runs"]
        return found

    def hosts_of(self, type_: str) -> Counter[str]:
        """Return how often each host, or none, has written an event of a run."""
        lines = self.type("caxton events export --agent weather").splitlines()
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        found = [one["payload"] for one in events if one["type"] == type_]
        return Counter(str(payload.get("host")) for payload in found)


@pytest.mark.timeout(400)  # a lease has to lapse, and a machine may be busy
@pytest.mark.long
def test_the_page_about_several_machines(tmp_path: Path, postgres_url: str) -> None:
    # laws 3, 7 and 10
    (tmp_path / "ssh").write_text(SSH.format(tmp_path))
    (tmp_path / "ssh").chmod(0o700)
    machines = [Machine(tmp_path, f"{one}.example.com") for one in "abc"]
    first = machines[0]
    first.folder.mkdir(parents=True)
    first.type("""caxton init && caxton run weather -i '{"location": "Lima"}'""")
    tables, *typed = blocks(PAGE)
    rain = tmp_path / "rain"
    later = LATER.format(json.dumps(WAIT.format(rain, standin.typed())))
    store, _, more = tables.text.partition("\n\n")
    store = re.sub('".*"', json.dumps(postgres_url), store)
    config = first.folder / "caxton.toml"
    text, found = re.subn(DEMO, lambda _: later, config.read_text())
    assert found == 1
    text = text.replace('"60s"', '"10m"')
    text = re.sub(r"\[store\]\n.*", lambda _: store, text)
    config.write_text(f"{text}\n{more}")
    lines = [line for block in typed for line in commands(*block[::2])]
    *prepare, serve, ask = lines[:5]
    ready, running, listing, verify, old, old_verify = lines[5:]

    for line in prepare:
        first.type(line)
    with ExitStack() as stack:
        *_, third = [machine.serve(serve, stack) for machine in machines]
        first.type(ask)
        until(lambda: sum(one.driven() for one in machines) == 40)
        driven = [one.driven() for one in machines]
        assert json.loads(first.type(ready))["runs"] == driven[0] == 16
        assert first.type(running).count("running") == 20
        third.kill()
        rain.touch()
        until(lambda: first.hosts_of("RunResumed").total() == driven[2] > 0)
        until(lambda: first.hosts_of("RunCompleted").total() == 40)
        assert first.type(listing).count("completed") == 20
        first.type(verify)

    assert len(first.hosts_of("RunStarted")) == 3
    assert first.hosts_of("ToolCompleted").total() == 40
    assert first.hosts_of("ToolRetried").total() == driven[2]
    first.type(old)
    assert "12 events in 2 streams" in first.type(old_verify)
