"""The page of a run: what is known of a call, of the program, and of an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from caxton_host.config.model import TelemetrySettings
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunFailed
from tests.office import ANN, Office
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
