"""The page of a run: what is known of a call, of the program, and of an event."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import pytest

from caxton_host.config.model import TelemetrySettings
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunFailed
from caxton_host.core.programs import program_of
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.service import calling_lines
from caxton_host.web.app import Upkeep
from tests.hostile_texts import HOSTILE
from tests.office import ANN, Office, asking_once, calling
from tests.scene import ended, pack
from tests.unit.store.fakes import run_started

from .test_console import browsing

SOURCE = b"from caxton_agent import tools\nraise ValueError('<b>no</b>')\n"


async def test_a_call_shows_its_attempts_fuel_and_place_in_the_chain(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    run = await office.start(ANN)
    await office.done(run)
    first, *_ = stream = await office.scene.store.reader.read(f"run/{run}")
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}?seq=2")
        later = await client.get(f"/ui/runs/{run}?after=1&seq=2")
        start = await client.get(f"/ui/runs/{run}?seq=1")

    for shown in (page, later):
        assert all(one.hash.hex() in shown.text for one in stream[:3])
        assert "Attempts" in shown.text
        assert "Fuel before it" in shown.text
    assert first.hash.hex() in start.text
    assert "none: it is the first" in start.text
    assert "Position in the log" in start.text


async def test_a_trace_is_linked_where_a_page_for_it_is_configured(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    run = await office.start(ANN)
    await office.done(run)
    row = await office.scene.store.reader.row(run)
    url = "https://jaeger.test/trace/{trace_id}?a=b"
    settings = TelemetrySettings(trace_url=url)
    async with browsing(office) as client:
        without = await client.get(f"/ui/runs/{run}")
        office.config = replace(office.config, telemetry=settings)
        linked = await client.get(f"/ui/runs/{run}")

    assert row is not None
    assert "jaeger" not in without.text
    trace = row.trace_id
    assert trace
    assert f'href="https://jaeger.test/trace/{trace}?a=b"' in linked.text


async def program(office: Office, name: str) -> None:
    """Record a run of a program that failed in its second line."""
    said: Mapping[str, JSON] = {
        "language": "python",
        "name": "report.py",
        "sha256": sha256(SOURCE).hexdigest(),
    }
    failed = RunFailed(
        kind="agent_error", message='File "report.py", line 2: no', fuel=1
    )
    await office.scene.store.create(f"run/{name}").append(
        replace(run_started(), program={**said}),
        failed,
        blobs={sha256(SOURCE).hexdigest(): SOURCE},
    )


async def test_the_source_of_a_program_is_shown_with_the_lines_that_its_error_names(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    await program(office, "0a")
    async with browsing(office) as client:
        page = await client.get("/ui/runs/0a")
    async with browsing(office, "dora") as client:
        decides = await client.get("/ui/runs/0a")

    assert "<li><code>from caxton_agent import tools</code>" in page.text
    assert 'class="named" aria-current="true"><code>raise ValueError(&#39;&lt;b' in (
        page.text
    )
    assert "the program's own account" in page.text
    assert decides.status_code == 200
    assert "caxton_agent" not in decides.text


@dataclass
class Telling:
    """A runtime of a program which tells that line, if it is watched, and calls."""

    line: int
    name: bytes = b"mcp__demo__get_weather"
    ends: bool = True
    told: int = 0

    async def __call__(self, door: Door, guest: Guest) -> Ending:
        mark = re.search(rb"line_[0-9a-f]{16}", guest.program)
        if mark is None:
            return await asking_once(door, guest)
        self.told += 1
        door.log(0, mark[0] + f"[{self.line}]".encode())
        await door.call(self.name, pack(city="Oslo"), 1)
        if not self.ends:
            await asyncio.Event().wait()
        return ended({"sky": "clear"})


async def called(office: Office, source: bytes) -> str:
    """Run a program that makes a call."""
    program = program_of("report.py", source, language="python")
    office.scene.request = replace(office.scene.request, program=program)
    await office.scene.run()
    return office.scene.run_id


async def test_the_line_that_made_a_call_is_shown_when_somebody_asks(
    tmp_path: Path,
) -> None:
    telling = Telling(line=20)
    office = Office(tmp_path, telling)
    source = "\n".join(f"{'x' * 30_000 if n == 2 else ''}# {n}" for n in range(1, 99))
    run = await called(office, source.replace("# 21", HOSTILE[0]).encode())
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}?seq=2")
        assert telling.told == 0
        [asking] = re.findall(r'href="([^"]+lines=1[^"]*)"', page.text)
        shown = await client.get(asking.replace("&amp;", "&"))
        again = await client.get(f"/ui/runs/{run}?seq=2&lines=1")
    async with browsing(office, "dora") as client:
        decides = await client.get(f"/ui/runs/{run}?seq=2&lines=1")
    async with browsing(
        office, upkeep=Upkeep(verifying=office.upkeep.verifying, reading="a log")
    ) as client:
        reads = await client.get(f"/ui/runs/{run}?seq=2&lines=1")

    assert "the program's own account" in shown.text
    assert 'class="named" aria-current="true"><code># 20<' in shown.text
    assert '<ol start="14">' in shown.text
    assert "# 26<" in shown.text
    assert "# 27<" not in shown.text
    assert HOSTILE[0] not in shown.text
    assert "# 20<" in again.text
    assert telling.told == 1
    for other in (decides, reads):
        assert other.status_code == 200
        assert "Execute the program again" not in other.text
        assert "# 20<" not in other.text


@pytest.mark.parametrize("telling", [Telling(line=9), Telling(line=1, name=b"other")])
async def test_a_line_that_the_program_does_not_have_or_that_another_call_has_is_none(
    tmp_path: Path, telling: Telling
) -> None:
    office = Office(tmp_path, telling)
    run = await called(office, SOURCE)
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}?seq=2&lines=1")

    assert telling.told == 1
    assert "It is not known" in page.text


async def test_a_page_does_not_wait_for_a_program_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling_lines, "_PATIENCE_S", 0)
    office = Office(tmp_path, Telling(line=1, ends=False))
    run = await called(office, SOURCE)
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}?seq=2&lines=1")

    assert "It is not known" in page.text


async def test_what_is_no_program_has_no_lines_and_is_not_executed(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    run = await office.start(ANN)
    await office.done(run)
    boss = {"authorization": "Bearer boss"}
    async with calling(office) as client:
        found = await client.get(f"/api/v1/runs/{run}/lines", headers=boss)
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}?seq=2&lines=1")

    assert found.json()["lines"] is None
    assert "The line that called" not in page.text
