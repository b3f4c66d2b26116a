"""What servers allow is that of three hosts on one log, whichever of them dies."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import Server, name_of

from .guests import call, guest
from .serving import Host, served, token
from .shell import Shell
from .test_cli_cancel import until
from .test_queue import run_types

SERVER = Path(__file__).with_name("counting_server.py")
CONFIG = """\
version = 1
[store]
url = "{url}"
[servers.shop]
command = {python}
args = ["-I", "-S", {server}, {folder}]
{limits}
tools.work.retry = {{ attempts = 1 }}
[agents.a]
module = "a.wasm"
allow = [{{ tools = ["shop/work"] }}]
[agents.three]
module = "three.wasm"
allow = [{{ tools = ["shop/work"] }}]
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    work = call("mcp__shop__work")
    shell.write("a.wasm", guest(work))
    shell.write("three.wasm", guest(work, work, work))
    return shell


def configure(desk: Shell, url: str, limits: str) -> None:
    texts = {"python": sys.executable, "server": str(SERVER), "folder": str(desk.folder)}
    quoted = {key: json.dumps(text) for key, text in texts.items()}
    desk.write("caxton.toml", CONFIG.format(url=url, limits=limits, **quoted))


def marks(desk: Shell) -> list[str]:
    """Return what the server did: a ``+`` where work began, a ``-`` where it ended."""
    found = desk.folder / "work"
    return found.read_text().split() if found.exists() else []


def go(desk: Shell) -> None:
    desk.write("go", "")


@contextmanager
def fleet(desk: Shell) -> Generator[list[Host]]:
    good = token(desk)
    with ExitStack() as stack:
        yield [stack.enter_context(served(desk, good=good)) for _ in range(3)]


def start(hosts: list[Host], agent: str, count: int) -> list[tuple[Host, str]]:
    return [(host, host.start(agent)) for host in hosts for _ in range(count)]


def run(host: Host, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = host.get(f"/api/v1/runs/{run_id}").json()
    return found


def end(runs: list[tuple[Host, str]]) -> None:
    until(lambda: all(run(*one)["state"] == "completed" for one in runs))


def test_three_hosts_have_one_rate_between_them(
    desk: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(desk, postgres_url, 'rate = "5/h"')
    go(desk)
    with fleet(desk) as hosts:
        runs = start(hosts, "a", 3)
        end(runs)
        assert marks(desk).count("+") == 5
        failed = [one for _, one in runs if "ToolFailed" in run_types(desk, one)]
        assert len(failed) == 4

        hour = "UPDATE budgets SET since = since - 3600000000 WHERE key LIKE '!%'"
        postgres.execute(hour, name_of(postgres_url))
        end(start(hosts, "a", 2))
        assert marks(desk).count("+") == 10


def test_a_rate_of_seconds_lets_all_through_in_turn(
    desk: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(desk, postgres_url, 'rate = "5/s"')
    go(desk)
    clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    ((began,),) = postgres.execute(clock)
    with fleet(desk) as hosts:
        end(start(hosts, "three", 2))
    assert marks(desk).count("+") == 18
    whole = "SELECT since FROM budgets WHERE key = '!server/shop/rate/5/1000000'"
    ((since,),) = postgres.execute(whole, name_of(postgres_url))
    # Each took its fifth of a second, whichever host it came from.
    assert since >= began + 18 * 200_000


def test_three_hosts_have_one_place_between_them(
    desk: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(desk, postgres_url, "concurrency = 1")
    go(desk)
    with fleet(desk) as hosts:
        end(start(hosts, "three", 2))
    assert marks(desk) == ["+", "-"] * 18
    assert postgres.execute("SELECT * FROM slots", name_of(postgres_url)) == []


def test_a_place_outlives_its_host_until_its_call_is_resolved(
    desk: Shell, postgres_url: str
) -> None:
    # law 7: nobody knows whether the server still works on it
    configure(desk, postgres_url, 'concurrency = 1\ntimeout = "10s"')
    with fleet(desk) as hosts:
        dead, *living = hosts
        doubt = dead.start("a")
        until(lambda: marks(desk) == ["+"])
        dead.stop(signal.SIGKILL)
        refused = start(living, "a", 1)
        end(refused)
        for _, one in refused:
            assert "ToolFailed" in run_types(desk, one)
        until(lambda: run(living[0], doubt)["state"] == "suspended")
        assert marks(desk) == ["+"]

        go(desk)
        said = desk("runs", "resolve", doubt, "2", "--fail", "--reason", "seen")
        assert said.code == 0, said.err
        end(start(living, "a", 1))
    assert marks(desk) == ["+", "+", "-", "+", "-"]
