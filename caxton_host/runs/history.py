"""
Changes that recorded runs are judged against. Nothing is sent.

Another module or program is executed over the log of each run, other grants judge its
calls again, and another definition of a tool is held against its calls and answers. A
run that cannot be judged keeps no other from it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol, TypeAlias

from ..config import Config
from ..core.analysis.history import Finding, History, Verdict
from ..core.analysis.rejudge import (
    ALLOWED,
    RejudgedCall,
    verdict_rule,
    verdict_text,
)
from ..core.analysis.tracing import tool_of
from ..core.calls import JSON
from ..core.log.events import (
    Event,
    Recorded,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolInvoked,
)
from ..core.log.runs import RunFilter
from ..core.names import run_of, stream_of
from ..core.programs import Program
from ..core.text.answers import STRUCTURED
from ..core.tools.schemas import Mismatch
from ..errors import (
    Divergence,
    LogBrokenError,
    ModuleRefused,
    NotKeptError,
    NotStartedError,
    UsageError,
)
from ..lib.codec import canonical
from ..lib.json_schema import input_check
from ..ports.history import LogReader, Streams
from ..ports.sandbox import Sandbox
from ..ports.watch import Telemetry
from .explain import as_sent
from .modules import check_replaces
from .recording import Recording
from .rejudging import LogRejudger
from .replay import Options, replay

#: A run, and its agent.
Run: TypeAlias = tuple[str, str]

#: Guests at a time: while one computes, the log of another is read.
_AT_ONCE = 8
_SHOWN = 200
#: Runs that are looked at before a definition is accepted.
_NEWEST = 1000
#: Bytes of blobs that are kept.
_BLOBS = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Job:
    """
    Runs to judge.

    Attributes:
        runs: The runs.

        together: Selects them, if they depend on each other.
    """

    runs: Sequence[Run]
    together: RunFilter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    Where runs are judged.

    Attributes:
        log: Their log.

        sandbox: Where guests are executed; ``None`` for a change that executes none.

        telemetry: Watches them.
    """

    log: LogReader
    sandbox: Sandbox | None
    telemetry: Telemetry


class Change(Protocol):
    """What is changed."""

    @property
    def executes(self) -> bool:
        """Whether guests are executed."""
        ...

    def depends(self, agent: str, kind: str) -> bool:
        """Return whether runs of an agent depend on each other."""
        ...

    async def judge(self, job: Job, place: Place) -> list[Finding]:
        """Judge runs."""
        ...


@dataclass(slots=True)
class Remembered(Streams):
    """A log whose blobs are read once: runs of an agent have them in common."""

    log: Streams
    _blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _size: int = 0

    async def read(self, stream: str) -> list[Recorded]:
        """Return all events of a stream, in order."""
        return await self.log.read(stream)

    async def blob(self, sha256: str) -> bytes:
        """Return the bytes with that digest."""
        if sha256 not in self._blobs:
            found = await self.log.blob(sha256)
            if self._size + len(found) > _BLOBS:
                self._blobs.clear()
                self._size = 0
            self._blobs[sha256] = found
            self._size += len(found)
        return self._blobs[sha256]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """
    Runs are executed over their logs.

    Attributes:
        module: Executed instead of the recorded one.

        program: The same of the program.
    """

    module: bytes | None = None
    program: Program | None = None
    executes: bool = True

    @property
    def digest(self) -> str:
        """Identifies what is executed."""
        program = self.program.to_payload() if self.program else None
        return sha256(canonical(program) + (self.module or b"")).hexdigest()

    def depends(self, agent: str, kind: str) -> bool:
        """Return false: a run has its own log."""
        del agent, kind
        return False

    async def judge(self, job: Job, place: Place) -> list[Finding]:
        """Execute runs."""
        log, room = Remembered(place.log), asyncio.Semaphore(_AT_ONCE)

        async def one(run: Run) -> Finding:
            async with room:
                return await _guarded(run, self._one(run, log, place))

        return await asyncio.gather(*map(one, job.runs))

    async def _one(self, run: Run, log: Streams, place: Place) -> Finding:
        run_id, agent = run
        if self.program is not None:
            recording = await Recording.load(run_id, log)
            check_replaces(self.program.language, recording.started)
        assert place.sandbox is not None  # noqa: S101 -- see `executes`
        found = await replay(
            run_id,
            store=log,
            sandbox=place.sandbox,
            telemetry=place.telemetry,
            options=Options(against=self.module, program=self.program),
        )
        known = Finding(
            run_id=run_id, agent=agent, verdict=found.verdict, calls=found.calls
        )
        if found.divergence:
            return await _diverged(known, found.divergence, log)
        if found.not_kept:
            return replace(known, how="the log keeps only the digest of an answer")
        return known


async def _diverged(run: Finding, where: Divergence, log: Streams) -> Finding:
    history = await log.read(stream_of(where.run or run.run_id))
    event = next((e for e in history if e.seq == where.seq), None)
    at = "the end of the log" if event is None else _named(event)
    how = ""
    if where.path in {"$.name", "$.type"}:
        how = f"{where.recorded or 'nothing'} became {where.replayed or 'nothing'}"
    return replace(
        run,
        at=f"{at} {where.path}",
        how=how,
        seq=where.seq,
        was=_shown(where.recorded),
        now=_shown(where.replayed),
    )


def _named(recorded: Recorded) -> str:
    event = recorded.event
    return tool_of(event) if isinstance(event, ToolInvoked) else recorded.type


def _shown(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


async def _guarded(run: Run, work: Awaitable[Finding]) -> Finding:
    """Return what *work* finds; an error of one run is a finding, too."""
    try:
        return await work
    except Exception as exc:  # noqa: BLE001 -- a damaged log may raise anything
        return _unjudged(run, exc)


def _unjudged(run: Run, exc: Exception) -> Finding:
    run_id, agent = run
    verdict: Verdict = "failed"
    if isinstance(exc, UsageError) and not isinstance(exc, ModuleRefused):
        verdict = "unjudged"
    match exc:
        case NotKeptError():
            how = "it is erased"
        case NotStartedError():
            how = "it has not started"
        case LogBrokenError():
            how = "its log is damaged: caxton audit verify"
        case _:
            how = str(exc).replace(run_id, "RUN") or type(exc).__name__
    now = str(exc)[:_SHOWN]
    return Finding(
        run_id=run_id, agent=agent, verdict=verdict, how=how[:_SHOWN], now=now
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """
    Calls are judged by the grants of another configuration.

    Attributes:
        config: The configuration.

        executes: As of any `Change`.
    """

    config: Config
    executes: bool = False

    def depends(self, agent: str, kind: str) -> bool:
        """Return whether runs share a budget, or sessions count on."""
        known = self.config.agents.get(agent)
        rules = known.grant.allow if known else ()
        return kind == "session" or any(rule.budgets for rule in rules)

    async def judge(self, job: Job, place: Place) -> list[Finding]:
        """Judge the calls of runs."""
        broken: dict[str, Exception] = {}
        rejudger = LogRejudger(log=place.log, config=self.config, broken=broken)
        types = rejudger.types
        if job.together:
            source = place.log.of_runs(types, job.together, broken.__setitem__)
        else:
            source = _each(job.runs, place.log, types, broken)
        calls, first = Counter[str](), dict[str, RejudgedCall]()

        async def counted() -> AsyncGenerator[Recorded]:
            async with aclosing(source) as events:
                async for one in events:
                    if one.type == RunStarted.__name__:
                        calls[run_of(one.stream)] = 0
                    yield one

        async with aclosing(rejudger.calls_of(counted())) as found:
            async for one in found:
                if not one.inherited:
                    calls[one.run_id] += 1
                    if one.judged.changed:
                        first.setdefault(one.run_id, one.judged)
        return [
            _unjudged(run, why)
            if (why := self._reason(run, calls, rejudger, broken))
            else _of_call(run, calls[run[0]], first.get(run[0]))
            for run in job.runs
        ]

    def _reason(
        self,
        run: Run,
        begun: Collection[str],
        rejudger: LogRejudger,
        broken: Mapping[str, Exception],
    ) -> Exception | None:
        """Return why a run was not judged, if it was not."""
        run_id, agent = run
        stream = stream_of(run_id)
        if stream in broken:
            return broken[stream]
        if stream in rejudger.erased:
            return NotKeptError("")
        if agent not in self.config.agents:
            return UsageError("its agent is not in that file")
        return None if run_id in begun else NotStartedError(run_id)


def _of_call(run: Run, calls: int, first: RejudgedCall | None) -> Finding:
    known = Finding(run_id=run[0], agent=run[1], verdict="identical", calls=calls)
    if first is None:
        return known
    was = verdict_text(first.was, first.rule)
    now = verdict_text(first.code, verdict_rule(first.now))
    return replace(
        known,
        verdict="denied" if first.was == ALLOWED else "allowed",
        at=tool_of(first.invoked),
        how=f"{was} became {now}",
        seq=first.seq,
        was=_shown(first.invoked.params),
    )


async def _each(
    runs: Sequence[Run],
    log: Streams,
    types: Collection[str],
    broken: dict[str, Exception],
) -> AsyncGenerator[Recorded]:
    for run_id, _ in runs:
        stream = stream_of(run_id)
        try:
            events = await log.read(stream)
        except LogBrokenError as exc:
            broken[stream] = exc
            continue
        for one in events:
            if one.type in types:
                yield one


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """
    Calls and answers of a tool are held against another definition of it.

    Attributes:
        server: Its server.

        tool: Its name there.

        document: The definition, as servers list it.

        config: Says whether the host adds an argument.

        executes: As of any `Change`.
    """

    server: str
    tool: str
    document: Mapping[str, JSON]
    config: Config
    executes: bool = False

    def depends(self, agent: str, kind: str) -> bool:
        """Return false: a run has its own calls."""
        del agent, kind
        return False

    async def judge(self, job: Job, place: Place) -> list[Finding]:
        """Hold the calls of runs against the definition."""
        return await self.held(job.runs, place.log)

    async def newest(self, log: LogReader) -> History:
        """Hold the newest runs that used the tool against the definition."""
        name = f"{self.server}/{self.tool}"
        history = History(against={"kind": "tool", "name": name})
        rows = await log.runs(_NEWEST, RunFilter(tool=name))
        for found in await self.held([(row.run_id, row.agent) for row in rows], log):
            history.take(found)
        history.complete = len(rows) < _NEWEST
        return history

    async def held(self, runs: Sequence[Run], log: Streams) -> list[Finding]:
        """Hold the calls of runs against the definition."""
        inputs, outputs = map(self.document.get, ("inputSchema", "outputSchema"))
        held = _Held(
            (self.server, self.tool),
            as_sent(self.config, self.server, self.tool, input_check(_schema(inputs))),
            input_check(_schema(outputs)) if isinstance(outputs, dict) else None,
        )
        return [await _guarded(run, held.against(run, log)) for run in runs]


def _schema(document: JSON) -> dict[str, JSON]:
    return document if isinstance(document, dict) else {}


_Found: TypeAlias = tuple[Verdict, str, JSON]
_DIGEST: _Found = "incomplete", "the log keeps only the digest of a value", None


@dataclass(frozen=True, slots=True)
class _Held:
    """The schemas of a tool, ready to be compared with what is recorded."""

    target: tuple[str, str]
    inputs: Callable[[JSON], Mismatch | None]
    outputs: Callable[[JSON], Mismatch | None] | None

    async def against(self, run: Run, log: Streams) -> Finding:
        """Return the first call or answer of a run that they refuse."""
        known = Finding(run_id=run[0], agent=run[1], verdict="identical")
        asked: dict[int, ToolInvoked] = {}
        for one in await log.read(stream_of(run[0])):
            event = one.event
            if event is None:
                raise NotKeptError("")
            if isinstance(event, ToolInvoked):
                if (event.server, event.tool) != self.target:
                    continue
                asked[event.call] = event
                known = replace(known, calls=known.calls + 1)
            found = self._found(event, asked)
            if found is None or found[0] == known.verdict:
                continue
            verdict, how, value = found
            at, was = "/".join(self.target), _shown(value)
            known = replace(
                known, verdict=verdict, at=at, how=how, seq=one.seq, was=was
            )
            if found != _DIGEST:
                break
        return known

    def _found(  # noqa: PLR0911 -- a table
        self, event: Event, asked: Mapping[int, ToolInvoked]
    ) -> _Found | None:
        """Return what changes at an event of the tool, why, and the value."""
        match event:
            case ToolInvoked(rule=str(), params=params):
                if params is None:
                    return _DIGEST
                wrong = self.inputs(params)
                return ("denied", f"parameters, {wrong}", params) if wrong else None
            case ToolDenied(call=call, code="schema") if call in asked:
                params = asked[call].params
                if params is None or self.inputs(params):
                    return None
                return "allowed", "denied (schema) became allowed", params
            case ToolCompleted(call=call, is_error=False) if (
                self.outputs and call in asked
            ):
                if event.cut or event.withheld:
                    return _DIGEST
                value = _schema(event.data).get(STRUCTURED)
                wrong = None if value is None else self.outputs(value)
                return ("diverged", f"answer, {wrong}", value) if wrong else None
            case _:
                return None
