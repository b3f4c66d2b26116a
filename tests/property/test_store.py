"""Whatever is done to them, the store in SQL and the one in memory agree."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.log.events import Event, RunCompleted
from caxton_host.core.log.runs import RunFilter
from caxton_host.errors import BusyError, NotFoundError, StoreError
from caxton_host.lib.codec import sha256
from caxton_host.ports.log import Reservation
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.store.writer import SqlLog
from tests.postgres import Server
from tests.turns import (
    answered,
    asked,
    completed,
    decided,
    denied,
    failed,
    invoked,
    question,
    resolved,
    resumed,
    retried,
    suspended,
    trapped,
)
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started, url

pytestmark = pytest.mark.no_cover

STREAMS = ("run/a", "run/ab", "host/h")
BLOBS = (b"", b"module", b"another")

FILTERS = (
    RunFilter(agent="one", state="suspended"),
    RunFilter(reason="approval"),
    RunFilter(kind="agent", top=True),
    RunFilter(actor="me", prefix="a"),
    RunFilter(tool="s/t"),
    RunFilter(outcome="ok"),
    RunFilter(tool="s/u", outcome="in_doubt", agent="two"),
    RunFilter(tool="s/none"),
    RunFilter(since=1_000_000, until=1_000_040),
    RunFilter(agents=("one",), owner="nobody"),
    RunFilter(agents=(), owner="me", outcome="denied"),
    RunFilter(agents=(), owner=None),
)

Log = SqlLog | MemoryLog
Store = SqlStore | MemoryStore

some_events = st.lists(
    st.one_of(
        st.builds(line, st.integers(-(2**63), 2**64 - 1), st.text(max_size=8)),
        st.builds(run_started, st.sampled_from(["one", "two"])),
        st.just(RunCompleted(output=None, output_sha256="00", fuel=None)),
        st.builds(suspended, st.sampled_from(["approval", "in_doubt", "child"])),
        st.sampled_from([invoked(), invoked(2, "u"), completed(), completed(2)]),
        st.sampled_from([denied(), failed(2), retried(), resolved(), answered()]),
        st.builds(asked, st.integers(1, 2), st.sampled_from([None, 5])),
        st.sampled_from([decided(), question(), question(2), trapped()]),
    ),
    max_size=4,
)
reservations = st.lists(
    st.builds(
        Reservation,
        key=st.sampled_from("xyz"),
        amount=st.integers(0, 4),
        limit=st.integers(0, 8),
        rule=st.sampled_from(["first", "second"]),
    ),
    max_size=3,
)


@dataclass
class Queue:
    """Queue events, with blobs."""

    stream: str
    events: list[Event]
    blobs: set[bytes]


@dataclass
class Append(Queue):
    """Append events, if the budgets allow it."""

    reserve: list[Reservation]


@dataclass
class Rival:
    """Another host begins the same stream anew."""

    stream: str


@dataclass
class Resume:
    """This host goes on with a stream from the log."""

    stream: str


@dataclass
class Claim:
    """This host takes a stream over, as it was read some events ago."""

    stream: str
    behind: int
    epoch: int


@dataclass
class Tick:
    """Time passes, or goes back."""

    by: int


streams = st.sampled_from(STREAMS)
blobs = st.sets(st.sampled_from(BLOBS), max_size=2)
steps = st.lists(
    st.one_of(
        st.builds(Queue, streams, some_events, blobs),
        st.builds(Append, streams, some_events, blobs, reservations),
        st.builds(Rival, streams),
        st.builds(Resume, streams),
        st.builds(Claim, streams, st.sampled_from([0, 0, 0, 1, -1]), st.integers(2, 9)),
        st.builds(Tick, st.integers(-50, 100)),
    ),
    max_size=25,
)
Step = Queue | Append | Rival | Resume | Claim | Tick


@dataclass
class World:
    """One store, its clock, and the log of each stream."""

    store: Store
    clock: FakeClock
    logs: dict[str, Log] = field(default_factory=dict)

    def log(self, stream: str) -> Log:
        if stream not in self.logs:
            self.logs[stream] = self.store.create(stream)
        return self.logs[stream]

    @property
    def failed(self) -> bool:
        """Whether a log in memory takes no more."""
        return any(
            isinstance(log, MemoryLog) and log._failed for log in self.logs.values()
        )

    async def settle(self) -> None:
        """Let all that is queued be stored."""
        for log in self.logs.values():
            with contextlib.suppress(StoreError):
                await log.append()

    async def do(self, step: Step) -> object:
        """Return what the step gives, or the error it ends with."""
        try:
            match step:
                case Append(stream, events, kept, reserve):
                    return await self.log(stream).append(
                        *events, blobs=named(kept), reserve=reserve
                    )
                case Queue(stream, events, kept):
                    return self.log(stream).queue(*events, blobs=named(kept))
                case Rival(stream):
                    await self.settle()
                    self.logs[stream] = self.store.create(stream)
                case Resume(stream):
                    await self.settle()
                    self.logs[stream] = await self.store.resume_log(stream)
                case Claim(stream, behind, epoch):
                    await self.settle()
                    after = len(await self.store.reader.read(stream)) - behind
                    self.logs[stream] = await self.store.claim(
                        stream, resumed(epoch), after=after
                    )
                case Tick(by):
                    self.clock.time += by
        except (StoreError, NotFoundError, BusyError) as exc:
            await self.settle()
            return f"{type(exc).__name__}: {exc}"
        return None

    async def seen(self) -> list[object]:
        """Return all that can be read."""
        facts: list[object] = [await self.store.reader.streams()]
        for stream in STREAMS:
            # PostgreSQL draws positions that a failed commit then leaves unused.
            read = await self.store.reader.read(stream)
            facts += [replace(event, position=0) for event in read]
        facts += await self.store.reader.runs(9)
        for only in FILTERS:
            facts += await self.store.reader.runs(1, only)
            facts += await self.store.reader.runs(9, only, before=(1_000_050, "ab"))
        facts += await self.store.leases.idle()
        facts.append(await self.store.leases.owner("a"))
        for name in ("a", "ab", "b", "@last"):
            try:
                facts.append(await self.store.reader.find_run(name))
            except NotFoundError as exc:
                facts.append(str(exc))
        for data in BLOBS:
            try:
                facts.append(await self.store.reader.blob(sha256(data)))
            except NotFoundError as exc:
                facts.append(str(exc))
        return facts


def named(kept: set[bytes]) -> dict[str, bytes]:
    return {sha256(data): data for data in sorted(kept)}


async def compare(program: list[Step], place: str) -> None:
    clock, twin = FakeClock(), FakeClock()
    async with SqlStore.open(place, clock=clock, entropy=FakeEntropy()) as database:
        sql = World(database, clock)
        memory = World(MemoryStore(clock=twin, entropy=FakeEntropy()), twin)
        for step in program:
            assert await sql.do(step) == await memory.do(step)
            if memory.failed:
                await sql.settle()  # what was queued fails there only when stored
        await sql.settle()
        await memory.settle()
        assert await sql.seen() == await memory.seen()
        assert (await verify(database.reader)).first_bad is None
        assert (await database.projections.verify(lambda *_: None))[1] == []


@settings(max_examples=60, deadline=None)
@given(program=steps)
@pytest.mark.long
def test_both_stores_tell_the_same_story(program: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:  # laws 2, 3: order, no gaps, hashes
        anyio.run(compare, program, url(Path(folder)))


def test_postgresql_tells_the_same_story_too(postgres: Server) -> None:
    @settings(max_examples=20, deadline=None)
    @given(program=steps)
    def compared(program: list[Step]) -> None:
        anyio.run(compare, program, postgres.make())

    compared()
