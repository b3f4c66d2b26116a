"""Hosts of two versions on one log, while one after the other is replaced."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.names import stream_of
from caxton_host.store import migrate
from tests import standin
from tests.postgres import Server, name_of

from . import newer
from . import shell as shells
from .guests import call, guest, log
from .serving import Host, served, token
from .shell import Shell
from .test_cli_cancel import until

CONFIG = """\
version = 1
[store]
url = "{url}"
[placement]
engine = "procrastinate"
[serve]
drain = "hand_over"
[servers.demo]
{demo}
tools.slow.effect = "read"
[agents.plain]
module = "plain.wasm"
allow = [{{ tools = ["demo/*"] }}]
[agents.talker]
module = "talker.wasm"
allow = [{{ tools = ["demo/*"] }}]
"""
AGENTS = ("plain", "talker")
CALLS = 6


@pytest.fixture
def desk(shell: Shell, postgres_url: str) -> Shell:
    calls = [call("mcp__demo__slow", seconds=1)] * CALLS
    shell.write("plain.wasm", guest(*calls))
    shell.write("talker.wasm", guest(log("a line"), *calls))
    demo = standin.toml(f"of={shell.folder}")
    shell.write("caxton.toml", CONFIG.format(demo=demo, url=postgres_url))
    return shell


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what has the next version typed from now on."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.folder(), folder)
    (folder / "versions" / "9999_regions.py").write_text(newer.MIGRATION)
    command = tmp_path / "caxton"
    words = f'"{sys.executable}" "{newer.__file__}" "{folder}"'
    command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    command.chmod(0o700)
    return lambda: monkeypatch.setattr(shells, "CAXTON", str(command))


def events_of(desk: Shell) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each run, as the next version reads them."""
    done = desk.typed("events", "export", "--since", "1h")
    assert done.code == 0, done.err
    found = defaultdict[str, list[dict[str, Any]]](list)
    for event in map(json.loads, done.out.splitlines()):
        if event["run"]:
            found[event["run"]].append(event)
    return found


@pytest.mark.timeout(400)  # a lease has to lapse, and a machine may be busy
@pytest.mark.long
def test_one_host_after_the_other_is_replaced_while_runs_go_on(
    desk: Shell, release: Callable[[], None], postgres: Server, postgres_url: str
) -> None:
    # laws 7 and 10
    def rows(query: str) -> list[tuple[Any, ...]]:
        return postgres.execute(query, name_of(postgres_url))

    def are_started(*runs: str) -> bool:
        query = "SELECT stream FROM events WHERE type = 'ToolCompleted'"
        return {stream_of(run) for run in runs} <= {one for (one,) in rows(query)}

    def ask(*hosts: Host) -> list[str]:
        return [host.start(agent) for host in hosts for agent in AGENTS]

    assert desk("db", "migrate").code == 0
    good = token(desk)
    with ExitStack() as stack:
        first, second = (stack.enter_context(served(desk, good=good)) for _ in "ab")
        runs = ask(first, second)
        release()
        assert desk.typed("db", "migrate").code == 0
        runs += ask(first, second)
        assert first.stop(signal.SIGTERM)[0] == 0

        third = stack.enter_context(served(desk, good=good))
        plain, talker, *others = ask(third, second)
        until(lambda: are_started(plain, talker))
        third.stop(signal.SIGKILL)
        taken = (
            f"SELECT 1 FROM events JOIN payloads USING (position) WHERE stream = "  # noqa: S608
            f"'{stream_of(plain)}' AND type = 'RunResumed' AND "
            f"position('{second.said['host']}'::bytea IN payload) > 0"
        )
        until(lambda: rows(taken))
        later = f"/api/v1/runs/{talker}/events"
        assert "later version" in second.get(later).json()["fix"]

        stack.enter_context(served(desk, good=good))
        assert second.stop(signal.SIGTERM)[0] == 0
        last = stack.enter_context(served(desk, good=good))
        runs += [plain, talker, *others, *ask(last)]
        under_way = "SELECT 1 FROM runs WHERE state <> 'completed'"
        until(lambda: not rows(under_way))

    found = events_of(desk)
    assert {*found} == {*runs}
    for events in found.values():
        settled = [one["payload"] for one in events if one["type"] == "ToolCompleted"]
        assert [one["call"] for one in settled] == [*range(1, CALLS + 1)]
    of_later = "SELECT 1 FROM payloads WHERE position('region'::bytea IN payload) > 0"
    assert rows(of_later)
    of_talker = [(one["type"], one["payload"].get("host")) for one in found[talker]]
    assert "LineWritten" in dict(of_talker)
    assert ("RunResumed", second.said["host"]) not in of_talker
    assert desk.typed("audit", "verify").code == 0
    for words in (("serve", "--port", "0"), ("runs", "list")):
        refused = desk(*words)
        assert refused.code == 2
        assert "has schema 9999, which this version does not know" in refused.err
