"""A host that serves while its disk is full, or its log has been taken away."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from mcp import MCPError

from tests import standin

from .guests import call, guest
from .serving import Host, client, served, token
from .shell import Shell
from .test_cli_cancel import until

CONFIG = """\
version = 1
[servers.demo]
command = "sh"
args = ["-c", {command}]
[agents.quick]
module = "quick.wasm"
expose = {{ mcp = true }}
allow = [{{ tools = ["demo/*"] }}]
"""
_LOADED = "SELECT count(*) FROM events WHERE type = 'ConfigLoaded'"
_MODULE = 'module = "quick.wasm"\n'
_OK, _AWAY = httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE


@pytest.fixture
def desk(shell: Shell) -> Shell:
    # What the server is sent is seen by a third.
    command = f"tee -a sent | exec {standin.typed()}"
    shell.write("caxton.toml", CONFIG.format(command=json.dumps(command)))
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("quick.wasm", guest(weather, output={"sky": "clear"}))
    return shell


@pytest.fixture
def good(desk: Shell) -> str:
    return token(desk)


def sent(shell: Shell) -> int:
    return (shell.folder / "sent").read_text().count('"tools/call"')


@contextmanager
def full_disk(host: Host, *files: Path) -> Generator[None]:
    """Have no file that the host writes grow."""
    limits = resource.prlimit(host.child.pid, resource.RLIMIT_FSIZE)
    size = max(file.stat().st_size for file in files)
    resource.prlimit(host.child.pid, resource.RLIMIT_FSIZE, (size, limits[1]))
    yield
    resource.prlimit(host.child.pid, resource.RLIMIT_FSIZE, limits)


def ready(host: Host) -> tuple[int, str | None]:
    answer = host.get("/readyz")
    return answer.status_code, answer.json().get("reason")


async def is_refused(host: Host) -> None:
    """See that a run is refused, through the API and as a tool."""
    answer = host.post("/api/v1/runs?wait=10", {"agent": "quick"})
    assert answer.status_code == _AWAY
    assert answer.json()["title"] == "The log is unavailable"
    assert answer.json()["fix"]
    async with client(host) as mcp:
        with pytest.raises(MCPError, match="cannot write its log"):
            await mcp.call_tool("quick", {})


def runs(host: Host) -> bool:
    answer = host.post("/api/v1/runs?wait=10", {"agent": "quick"})
    return answer.status_code == _OK and answer.json()["state"] == "completed"


@pytest.mark.long
async def test_a_full_disk_refuses_runs_and_nothing_is_sent_until_there_is_room(
    desk: Shell, good: str
) -> None:  # laws 3 and 10
    with served(desk, good=good) as host:
        assert runs(host)
        config = (desk.folder / "caxton.toml").read_text()
        ((loaded,),) = desk.rows(_LOADED)
        with full_disk(host, desk.database.with_name("caxton.db-wal")):
            await is_refused(host)
            assert host.get("/healthz").status_code == _OK
            until(lambda: ready(host)[0] == _AWAY)
            assert ready(host)[1] == "the log cannot be read or written"
            desk.write("caxton.toml", f"{config}[agents.new]\n{_MODULE}")
            host.child.send_signal(signal.SIGHUP)
            until(lambda: "the configuration is loaded" in host.log.read_text())
            assert sent(desk) == 1

        until(lambda: ready(host) == (_OK, None))
        assert runs(host)
        assert (sent(desk), desk.types().count("ToolInvoked")) == (2, 2)
        # What the host does goes on to be recorded, and nothing of it is lost.
        desk.write("caxton.toml", f"{config}[agents.newer]\n{_MODULE}")
        assert desk.typed("config", "reload").code == 0
        until(lambda: desk.rows(_LOADED) == [(loaded + 2,)])
        assert host.stop(signal.SIGTERM)[0] == 0

    assert desk.typed("audit", "verify").code == 0


@pytest.mark.long
async def test_a_log_that_is_moved_away_takes_no_runs_until_it_is_back(
    desk: Shell, good: str
) -> None:  # laws 3 and 10
    with served(desk, good=good) as host:
        assert runs(host)
        away = desk.database.rename(desk.folder / "away.db")
        until(lambda: ready(host)[0] == _AWAY)
        await is_refused(host)

        assert ready(host)[1] == "the file of the log was moved away or replaced"
        assert sent(desk) == 1
        assert not desk.database.exists()
        said = host.log.read_text()
        assert f"the file {desk.database} was moved away or replaced" in said
        assert said.count("nothing is recorded: ") == 1
        assert "To fix: " in said

        away.rename(desk.database)
        until(lambda: ready(host) == (_OK, None))
        assert runs(host)
        assert host.stop(signal.SIGTERM)[0] == 0

    assert desk.typed("audit", "verify").code == 0
    assert (sent(desk), desk.types().count("ToolInvoked")) == (2, 2)


@pytest.mark.long
def test_a_log_that_lost_its_end_is_refused_until_somebody_accepts_that(
    desk: Shell, good: str
) -> None:  # laws 3 and 10
    wal = desk.database.with_name("caxton.db-wal")
    marks = Path(desk.environ["XDG_STATE_HOME"], "caxton", "signed")
    with served(desk, good=good) as host:
        assert runs(host)
        ((log,),) = desk.rows("SELECT incarnation FROM tree")
        signed = "SELECT max(size) FROM checkpoints"
        until(lambda: f"\n{desk.rows(signed)[0][0]}\n" in (marks / log).read_text())
        wal.unlink()
        assert not runs(host)
        assert ready(host) == (_AWAY, "the file of the log was moved away or replaced")
        assert sent(desk) == 1
        host.child.kill()
        host.child.wait()

    for words in (("run", "quick"), ("serve", "--port", "0")):
        refused = desk(*words)
        assert refused.code == 5
        assert "that this machine has signed" in refused.err
        assert refused.fix == "caxton db accept-copy"
    assert desk("audit", "verify").code == 5
    lag = desk("audit", "verify", "--copy", "--json")
    assert lag.code == 0
    assert lag.document["lag"] > 0
    accepted = desk("db", "accept-copy", "--json")
    assert accepted.code == 0
    assert (
        accepted.document["had_size"] == lag.document["events"] + (lag.document["lag"])
    )
    assert desk("run", "quick").code == 0
    assert desk("audit", "verify").code == 0
    again = desk("db", "accept-copy")
    assert (again.code, "nothing to accept" in again.out) == (0, True)
