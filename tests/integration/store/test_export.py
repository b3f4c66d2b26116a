"""Exports: every line stands alone, and a million take no more memory than one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from caxton_host.core.calls import JSON, Completed, Denied, Failed, Outcome
from caxton_host.core.log.events import (
    ConfigLoaded,
    RunCancelled,
    RunCompleted,
    ToolInvoked,
    settled,
)
from caxton_host.core.log.runs import ExportFilter, ExportLine
from caxton_host.lib.machine import SystemClock
from caxton_host.store.export import lines
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started

from .support import opened

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
BOB: dict[str, JSON] = {"kind": "token", "id": "bob", "authenticated": True}
ENDS: dict[str, Outcome] = {
    "ok": Completed(),
    "tool_error": Completed(is_error=True),
    "denied": Denied(code="denied", rule=None, message=""),
    "failed": Failed(kind="timeout", sent="no", message=""),
}


def invoked(call: int, tool: str) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name=f"mcp__crm__{tool}",
        server="crm",
        tool=tool,
        params={"n": call},
        params_sha256="",
        effect="read",
        rule=None,
        idempotency_key="",
        fuel=0,
    )


async def written(database: str) -> SqlStore:
    """Return a log of two runs at the seconds 1 to 9, with a call in doubt at 8."""
    clock = FakeClock(1_000_000)
    store = SqlStore.open(database, clock=clock, entropy=FakeEntropy())
    host = store.create("host/1")
    await host.append(ConfigLoaded(path="x", sha256="", actor=BOB))
    one = store.create("run/1")
    await one.append(replace(run_started("weather"), actor=ANN))
    for number, (name, outcome) in enumerate(ENDS.items(), 1):
        clock.time = 1_000_000 * (number + 1)
        await one.append(invoked(number, name))
        clock.time += 500_000
        await one.append(settled(number, outcome))
    clock.time = 7_000_000
    await one.append(RunCompleted(output=None, output_sha256="", fuel=0))
    two = store.create("run/2")
    await two.append(replace(run_started("payer"), actor=BOB))
    clock.time = 8_000_000
    await two.append(invoked(1, "pay"), line(1))
    clock.time = 9_000_000
    await two.append(RunCancelled(actor=ANN, reason="enough"))
    return store


async def told(database: str, wanted: ExportFilter) -> list[ExportLine]:
    async with await written(database) as store:
        return [found async for found in lines(store.reader, wanted)]


def seqs(found: list[ExportLine]) -> list[tuple[str | None, int]]:
    return [(item.run, item.recorded.seq) for item in found]


async def test_each_line_repeats_run_agent_actor_and_tool(database: str) -> None:
    found = await told(database, ExportFilter())

    assert len(found) == 15
    host, started, asked, answered, *_ = found
    assert (host.run, host.agent, host.actor) == (None, None, None)
    assert (started.run, started.agent, started.tool) == ("1", "weather", None)
    assert all((i.run, i.agent, i.actor) == ("1", "weather", ANN) for i in found[1:11])
    assert (asked.tool, asked.outcome) == ("crm/ok", None)
    assert (answered.tool, answered.outcome) == ("crm/ok", "ok")
    assert [i.outcome for i in found if i.outcome] == [*ENDS]
    assert found[-1].actor is not None
    assert found[-1].actor["id"] == "bob"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ExportFilter(stream="run/2"), [("2", 1), ("2", 2), ("2", 3), ("2", 4)]),
        (ExportFilter(agent="payer", until=8_000_000), [("2", 1)]),
        (ExportFilter(since=7_000_000, until=8_000_000), [("1", 10), ("2", 1)]),
        (ExportFilter(tool="crm/d*"), [("1", 6), ("1", 7)]),
        (ExportFilter(actor="bob", until=7_000_000), [(None, 1)]),
        (ExportFilter(actor="ann", agent="payer"), [("2", 4)]),
        (ExportFilter(outcomes=("denied", "failed")), [("1", 7), ("1", 9)]),
        (ExportFilter(outcomes=("in_doubt",)), [("2", 2)]),
        (ExportFilter(outcomes=("in_doubt", "ok")), [("1", 3), ("2", 2)]),
        (ExportFilter(outcomes=("in_doubt",), tool="crm/other"), []),
        (ExportFilter(outcomes=("in_doubt",), until=8_000_000), []),
        # It ended behind the time that is asked for, so it is not in doubt.
        (ExportFilter(outcomes=("in_doubt",), until=2_500_000), []),
        (ExportFilter(agent="nobody"), []),
    ],
)
async def test_filters(
    database: str, wanted: ExportFilter, expected: list[tuple[str | None, int]]
) -> None:
    assert seqs(await told(database, wanted)) == expected


async def test_tool_of_a_call_that_began_before_is_looked_up(database: str) -> None:
    found = await told(database, ExportFilter(since=2_500_000, until=2_600_000))

    assert [(i.tool, i.outcome) for i in found] == [("crm/ok", "ok")]


async def test_erased_run_has_lines_without_payload_and_actor(database: str) -> None:
    async with await written(database) as store:
        await store.erasure.erase("1", "host/2", actor=ANN, reason="asked for")
        found = [
            item async for item in lines(store.reader, ExportFilter(stream="run/1"))
        ]

    assert len(found) == 10
    assert {(i.agent, i.actor, i.tool, i.outcome) for i in found} == {
        ("weather", None, None, None)
    }


# -- a million -------------------------------------------------------------------

EVENTS = 1_000_000
_RUN = 20

#: Run in a process of its own: the peak is that of the export alone.
_EXPORT = """\
import resource, sys
from caxton_host.cli import execute
assert execute(["--db", sys.argv[1], "events", "export", "--all"]) == 0
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak, file=sys.stderr)
"""


async def filled(database: str) -> None:
    """Write a million events: one real run, and copies of its rows by SQL."""
    async with opened(database) as store:
        log = store.create("run/00000000")
        await log.append(run_started())
        for call in range(1, (_RUN - 2) // 2 + 1):
            await log.append(invoked(call, "pay"), settled(call, ENDS["ok"]))
        await log.append(RunCompleted(output=None, output_sha256="", fuel=0))
        assert len(await store.reader.read("run/00000000")) == _RUN
        sqlite = store.engine.dialect.name == "sqlite"
    execute = _sqlite(database) if sqlite else _postgres(database)
    runs = EVENTS // _RUN - 1
    counted = "SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n <"
    copies = f"WITH RECURSIVE c(n) AS ({counted} {runs})"
    name = "printf('%08d', n)" if sqlite else "lpad(n::text, 8, '0')"
    columns = "seq, type, schema_version, recorded_at, trace_id, span_id, digest, hash"
    place = f"e.position + n * {_RUN}"
    override = "" if sqlite else "OVERRIDING SYSTEM VALUE"
    execute(
        f"INSERT INTO events (position, stream, {columns}) {override} {copies} "  # noqa: S608
        f"SELECT {place}, 'run/' || {name}, {columns} FROM c, events e "
        f"WHERE e.position <= {_RUN}"
    )
    execute(
        f"INSERT INTO payloads (position, salt, payload) {copies} "  # noqa: S608
        f"SELECT {place}, salt, payload FROM c, payloads e WHERE e.position <= {_RUN}"
    )
    row = "agent, actor, module_sha256, state, started_at, ended_at, host"
    execute(
        f"INSERT INTO runs (run_id, {row}) {copies} "  # noqa: S608
        f"SELECT {name}, {row} FROM c, runs r WHERE r.run_id = '00000000'"
    )


def _sqlite(database: str) -> Callable[[str], None]:
    import sqlite3  # noqa: PLC0415 -- only here

    path = Path(database.removeprefix("sqlite:///"))

    def execute(statement: str) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()

    return execute


def _postgres(database: str) -> Callable[[str], None]:
    def execute(statement: str) -> None:
        with psycopg.connect(database) as connection:
            connection.execute(statement.encode())

    return execute


def export(database: str) -> tuple[int, str]:
    with subprocess.Popen(
        [sys.executable, "-c", _EXPORT, database],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    ) as child:
        assert child.stdout
        assert child.stderr
        return sum(1 for _ in child.stdout), child.stderr.read().decode()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_million_events_are_exported_in_constant_memory(database: str) -> None:
    await filled(database)
    began = SystemClock().monotonic()

    count, said = await asyncio.to_thread(export, database)
    took = SystemClock().monotonic() - began

    peak = int(said.split()[-1])
    print(f"{count} lines, {took:.0f} s, peak {peak / 1024:.0f} MiB")  # noqa: T201
    assert count == EVENTS
    assert peak < 200 * 1024
