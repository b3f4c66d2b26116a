"""The configuration is read again while runs go on, and they do not notice."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from caxton_host.app import reload
from caxton_host.app.bootstrap import Running, running
from caxton_host.config import Config, Paths, load
from caxton_host.core.calls import DENIED, JSON
from caxton_host.core.log.events import ConfigLoaded, RunStarted, ToolCompleted
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.run_request import RunRequest
from caxton_host.testing import FakeSandbox
from tests import standin
from tests.e2e.guests import call, guest
from tests.e2e.shell import processes
from tests.integration.mcp.conftest import FAULTY, noted
from tests.scene import ended, pack

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


@dataclass
class Place:
    """A folder with a configuration, and the host that was brought up with it."""

    folder: Path
    up: Running

    def write(self, **options: str) -> None:
        (self.folder / "caxton.toml").write_text(config(self.folder, **options))

    async def reload(self) -> str:
        """Ask for it as another process would."""
        (host,) = await self.up.store.leases.hosts()
        number = await self.up.store.requests.ask_host(host, "reload", ANN, "new keys")
        while (outcome := await self.up.store.requests.outcome(number)) is None:  # noqa: ASYNC110 -- another task
            await asyncio.sleep(0.02)
        return outcome

    async def run(self, *steps: Any) -> list[Any]:  # noqa: ANN401
        run_id = await self.up.host.start(
            RunRequest(
                agent="a",
                module=guest(*steps),
                actor=ANN,
                grant=self.up.tools.config.agents["a"].grant,
            )
        )
        return [one.event for one in await self.up.store.reader.read(f"run/{run_id}")]

    async def loaded(self) -> list[ConfigLoaded]:
        """Return what the host recorded of configurations."""
        (host,) = await self.up.store.leases.hosts()
        events = [one.event for one in await self.up.store.reader.read(host)]
        return [event for event in events if isinstance(event, ConfigLoaded)]


def config(
    folder: Path, extra: str = "", demo: str = "", kept: str = "", top: str = ""
) -> str:
    state = folder / "state"
    return f"""
version = 1
{top}
[servers.demo]
{standin.toml()}
{demo}
[servers.kept]
command = "{sys.executable}"
args = ["-S", "{FAULTY}", "sound", "{state}"]
{kept}
{extra}
[agents.a]
[[agents.a.allow]]
tools = ["demo/*", "kept/*", "more/*"]
"""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with opened(tmp_path) as it:
        yield it


@asynccontextmanager
async def opened(tmp_path: Path, **options: str) -> AsyncIterator[Place]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "caxton.toml").write_text(config(folder, **options))

    def read() -> Config:
        return load(folder / "caxton.toml", environ=os.environ, cwd=folder)

    paths = Paths.of({"HOME": str(tmp_path)})
    async with asyncio.timeout(60), running(read(), paths, load=read) as up:
        yield Place(folder, up)
    async with asyncio.timeout(10):
        while [*processes(str(tmp_path))]:  # noqa: ASYNC110 -- other processes
            await asyncio.sleep(0.02)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 -- another task makes it true
            await asyncio.sleep(0.02)


async def test_run_goes_on_and_the_next_one_has_what_the_file_says_now(
    place: Place,
) -> None:
    slow = asyncio.create_task(
        place.run(
            call("mcp__kept__echo", text="a"),
            call("mcp__demo__slow", seconds=2),
            call("mcp__demo__echo", text="still here"),
        )
    )
    await until(lambda: noted(place.folder / "state", "call echo"))

    place.write(demo='tools.echo.description = "says it again"')
    assert await place.reload() == "generation 2"

    first, *events = await place.run(call("mcp__demo__echo", text="new"))
    assert isinstance(first, RunStarted)
    entry = first.catalogue["mcp__demo__echo"]
    assert isinstance(entry, dict)
    assert entry["description"] == "says it again"
    assert not slow.done()
    old, *_ = before = await slow
    assert isinstance(old, RunStarted)
    assert "description" not in old.catalogue["mcp__demo__echo"]  # type: ignore[operator]  # a table
    for run, count in ((before, 3), (events, 1)):
        assert len([one for one in run if isinstance(one, ToolCompleted)]) == count
    # One process serves both: nothing of that server has changed.
    await place.run(call("mcp__kept__echo", text="b"))
    assert (place.folder / "state").read_text().count("start\n") == 1
    by_hand, again = await place.loaded()
    assert (by_hand.path, again.actor) == ("caxton.toml", ANN)
    assert by_hand.sha256 != again.sha256


async def test_servers_come_and_go(place: Place) -> None:
    more = f"""
[servers.more]
{standin.toml()}
"""
    await place.run(call("mcp__kept__echo", text="a"))
    place.write(extra=more)
    await place.reload()
    first, *_ = await place.run()
    assert "mcp__more__echo" in first.catalogue

    (place.folder / "caxton.toml").write_text(
        config(place.folder).replace("[servers.kept]", "[servers.kept]\nenabled=false")
    )
    await place.reload()
    first, *_ = await place.run()
    assert not [name for name in first.catalogue if "kept" in name or "more" in name]
    await until(lambda: not [*processes(str(place.folder / "state"))])


async def test_what_cannot_be_loaded_changes_nothing(place: Place) -> None:
    place.write(demo="timeout_s = 1")

    outcome = await place.reload()

    assert outcome.startswith("failed: caxton.toml")
    assert "timeout_s" in outcome
    assert place.up.tools.number == 1
    assert len(await place.loaded()) == 1
    assert await place.run(call("mcp__demo__echo", text="as before"))
    place.write()
    assert await place.reload() == "nothing has changed"


async def test_what_only_the_next_host_heeds_is_told(place: Place) -> None:
    place.write(extra="[sandbox]\nruns = 7")
    assert await place.reload() == "generation 2; places with the next host"


async def test_each_that_is_loaded_is_logged(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "caxton_host")
    place.write(demo='timeout = "7s"')
    await place.reload()
    assert "the configuration is loaded: generation 2" in caplog.messages


async def test_a_new_secret_is_one_from_then_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 8
    monkeypatch.setenv("NEW_TOKEN", "hunter2-hunter2")
    place.write(kept='env = { TOKEN = "${env:NEW_TOKEN}" }')
    await place.reload()

    events = await place.run(call("mcp__demo__echo", text="hunter2-hunter2"))

    assert "hunter2" not in repr(events)
    assert "[redacted]" in repr(events)


async def test_file_that_is_watched_is_read_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reload, "EVERY", 0.02)
    async with opened(tmp_path, top="watch = true") as place:
        with caplog.at_level(logging.ERROR):
            place.write(top="watch = true", demo="nonsense = 1")
            await until(lambda: "the configuration stays as it was" in caplog.text)
        place.write(top="watch = true", extra="[context.name]\ndefault = 1")
        await until(lambda: place.up.tools.number == 2)
        place.write(top="watch = false")
        await until(lambda: place.up.tools.number == 3)
        place.write(top="watch = true")
        await asyncio.sleep(0.2)
        assert place.up.tools.number == 3
        (_, second, _) = await place.loaded()
        assert second.actor == {
            "kind": "service",
            "id": "watch",
            "authenticated": False,
        }


async def test_hangup_asks_a_host_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_has_terminal", lambda: False)
    before = signal.getsignal(signal.SIGHUP)
    async with opened(tmp_path) as place:
        place.write(extra="[context.name]\ndefault = 1")
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: place.up.tools.number == 2)
    assert signal.getsignal(signal.SIGHUP) == before


@pytest.mark.parametrize("ignored", [True, False])
async def test_hangup_is_left_alone_in_a_terminal_and_where_it_is_ignored(
    monkeypatch: pytest.MonkeyPatch, *, ignored: bool
) -> None:
    monkeypatch.setattr(reload, "_has_terminal", lambda: not ignored)
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        kept = signal.getsignal(signal.SIGHUP)
        with reload._hangup(asyncio.Event()):
            assert signal.getsignal(signal.SIGHUP) == kept
    finally:
        signal.signal(signal.SIGHUP, before)


def test_terminal_of_a_process_is_found_if_it_has_one() -> None:
    assert reload._has_terminal() in {True, False}


async def test_grant_that_is_tightened_binds_a_run_that_goes_on(place: Place) -> None:
    denied: list[object] = []

    async def script(door: Door, given: Guest) -> Ending:
        del given
        for number in (1, 2):
            answer = await door.call(b"mcp__demo__echo", pack(text="x"), number)
            denied.append(answer.status == DENIED)
            if number == 1:
                place.write(extra='[[agents.a.deny]]\ntools = ["demo/echo"]')
                assert await place.reload() == "generation 2"
        return ended(None)

    host = replace(place.up.host, sandbox=FakeSandbox(script))
    grant = place.up.tools.config.agents["a"].grant
    await host.start(RunRequest(agent="a", module=b"\0asm", actor=ANN, grant=grant))
    assert denied == [False, True]
