"""
Replay: execute a recorded run again, without any effect (law 6).

The guest calls and the gateway are those of a live run, over a full journal. The log
refuses new events, and the tool client refuses calls.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, NoReturn, TypeAlias

from ..core.calling_lines import Account
from ..core.calls import JSON, Completed
from ..core.grants.approvals import Unapproved
from ..core.grants.grants import Grant
from ..core.grants.journal import Journal
from ..core.grants.settlement import Correction
from ..core.grants.tool_catalog import Offered, routes_from_payload
from ..core.log.diff import first_difference
from ..core.log.events import (
    Event,
    LogWritten,
    RunCompleted,
    RunFailed,
    ToolInvoked,
    ToolRetried,
    to_payload,
)
from ..core.programs import Program
from ..core.text.redact import Redactor
from ..errors import (
    Divergence,
    NondeterminismError,
    NotKeptError,
    RunStopped,
    Suspend,
    ToolError,
)
from ..gateway.gateway import Gateway
from ..gateway.guest_calls import GuestCalls
from ..gateway.judge import Judge
from ..gateway.recorder import Recorder
from ..ports.history import Streams
from ..ports.log import Refused, Reservation
from ..ports.sandbox import Answer, Guest, Prepared, Sandbox
from ..ports.tools import ToolClient, ToolRequest
from ..ports.watch import Telemetry
from .executor import end_of, recorded_calls, replay_of
from .judged_again import judged_again
from .recording import Recording

#: Awaited at each call before the guest gets the answer, with the number of the call
#: and the number of log lines so far.
Pause: TypeAlias = Callable[[int, int], Awaitable[None]]

#: How the messages of ends begin that every engine reaches in the same place.
_COUNTED = (
    *("host_calls", "total_calls", "wasi_calls"),
    *("recorded", "result", "output"),
)
#: How the messages of ends begin that only the recorded engine reaches there.
_BY_ENGINE = ("fuel", "memory", "stack")
#: Bytes of the log that a watched program takes for a call.
_OF_A_LINE = 64
#: Seconds: no replay ends because of a clock.
_FOREVER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    Options of a replay.

    Attributes:
        until: Stop after that event.

        against: Execute this module instead. Its fuel and its log lines may differ;
            its calls, its end and its output may not.

        program: The same of the program.

        pause: Awaited at each call; it may raise `Halt`.

        lines: Have a program tell the lines of its calls. For that another one is
            executed, which may need more fuel and host calls.
    """

    until: int | None = None
    against: bytes | None = None
    program: Program | None = None
    pause: Pause | None = None
    lines: bool = False


_WHOLE = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """
    The result of a replay.

    Attributes:
        calls: How many calls the log holds, as far as it was followed.

        divergence: The first difference, or ``None``.

        until: The event after which it was stopped; ``None`` if it was not.

        state: The state of the run, as far as it was read. A ``running`` one has no
            end to compare.

        not_kept: Names the call where the replay had to end, because the log keeps
            only a digest of its answer. Up to there the agent did what the log holds.

        executed: The run was executed. The calls of a session are judged again.

        lines: Those of its calls, if they were asked for, it is a program, and it did
            what the log holds. It is the program's own account.
    """

    run_id: str
    calls: int
    divergence: Divergence | None
    until: int | None = None
    state: str = "completed"
    not_kept: NotKeptError | None = None
    executed: bool = True
    lines: Mapping[int, int] | None = None

    @property
    def verdict(self) -> Literal["identical", "diverged", "incomplete"]:
        """Whether the agent did what the log holds, as far as it was compared."""
        if self.not_kept:
            return "incomplete"
        return "diverged" if self.divergence else "identical"

    def lines_document(self) -> JSON:
        """Return the lines by number of the call, or ``None``."""
        if self.lines is None:
            return None
        return {str(call): line for call, line in self.lines.items()}

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.replay/v1`` document."""
        return {
            "$type": "caxton.replay/v1",
            "run_id": self.run_id,
            "verdict": self.verdict,
            "calls": self.calls,
            "until": self.until,
            "state": self.state,
            "divergence": asdict(self.divergence) if self.divergence else None,
            "not_kept": self.not_kept.call if self.not_kept else None,
            "executed": self.executed,
        }


class Halt(Exception):  # noqa: N818 -- a wish, not a fault
    """Raised by a pause to end the replay."""


class _EndReached(Exception):  # noqa: N818 -- how a replay of a clock's end ends
    """Raised after the last recorded event of a run that a clock ended there."""


@dataclass(frozen=True, slots=True)
class _FullLog:
    """
    An event log that refuses events: the first new one is the divergence.

    Attributes:
        deaf: Ignore log lines, which another module may write otherwise.

        asked: The calls that wait for an approval, and were not made.

        recorded_at: Nothing is recorded.

        head: Nothing is durable.
    """

    deaf: bool = False
    asked: Collection[int] = ()
    recorded_at: int = 0
    head: tuple[int, bytes] = (0, b"")

    def holds(self) -> bool:
        """Return true: no lease is needed where nothing is sent."""
        return True

    def leave(self) -> None:
        """Do nothing: nobody drives it."""

    def queue(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        correct: Sequence[Correction] = (),
    ) -> None:
        """Refuse."""
        del blobs, correct
        if not (self.deaf and isinstance(events[0], LogWritten)):
            self._refuse(events)

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        """Refuse."""
        del blobs, reserve
        self._refuse(events)

    def _refuse(self, events: tuple[Event, ...]) -> NoReturn:
        event = events[0]
        for one in events:
            if isinstance(one, ToolInvoked) and one.call in self.asked:
                raise Unapproved(one.call)
        if isinstance(event, ToolInvoked):
            raise NondeterminismError(Divergence(None, "$.name", None, event.name))
        if isinstance(event, ToolRetried):
            raise Suspend(event.call, f"call {event.call} is in doubt")
        name = type(event).__name__
        raise NondeterminismError(Divergence(None, "$.type", None, name))


class _NoTools(ToolClient):
    """A tool client that reaches nothing."""

    async def offered(self, servers: Collection[str]) -> Offered:
        """Offer nothing."""
        del servers
        return Offered()

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Refuse."""
        raise ToolError("transport", "no", f"a replay does not call {request.tool}")


async def replay(
    run_id: str,
    *,
    store: Streams,
    sandbox: Sandbox,
    telemetry: Telemetry,
    options: Options = _WHOLE,
) -> Replayed:
    """
    Execute the run again over its own log, and return the first divergence.

    A run that a clock, a person or a crash ended is executed up to its last
    recorded event. Fuel, and an end for lack of fuel or room, are compared where
    the engine is the one of the recording. The calls of a session are judged again
    instead: a client made them, and what it did between them is not in the log.

    Args:
        run_id: The run.

        store: Where its log is.

        sandbox: Where it is executed.

        telemetry: Watches it.

        options: See `Options`.

    Raises:
        NotFoundError: There is no such run.

        NotKeptError: It was erased.

        UsageError: There is no such event, the module is refused, or it is a session
            and another module or a pause is asked for.

        LogBrokenError: Its log lacks what a replay needs.
    """
    recording = await Recording.load(run_id, store)
    until, against = options.until, options.against
    if until is not None:
        recording = recording.until(until)
    if recording.is_session and replace(options, lines=False) == Options(until=until):
        judged, divergence = judged_again(recording)
        return Replayed(
            run_id=run_id,
            calls=judged,
            divergence=divergence,
            until=until,
            state=recording.state,
            executed=False,
        )
    recording.check_executable()
    started, limits = recording.started, recording.limits
    module = await store.blob(started.module_sha256) if against is None else against
    prepared = await sandbox.prepare(module, limits, started.entry)
    program, account = options.program, None
    if options.lines and (own := await recording.program(store)):
        account = Account.of(own, f"line_{secrets.token_hex(8)}")
        program = account.watched if account else None
    same = against is None and program is None
    exact = same and prepared.engine == started.engine
    guest = replace(
        await recording.guest(f"replay/{started.agent}", store, program),
        limits=replace(
            limits,
            compute=_FOREVER_S,
            fuel=limits.fuel if exact else limits.fuel * 2,  # it may charge more
            host_calls=limits.host_calls * (2 if account else 1),
            log=limits.log + (_OF_A_LINE * limits.total_calls if account else 0),
        ),
    )
    journal = recording.journal(compare_fuel=exact, lines=same)
    gateway = Gateway(
        judge=Judge(
            run_id=run_id,
            grant=Grant(),
            routes=routes_from_payload(started.catalogue),
            journal=journal,
            now=lambda: recording.latest.recorded_at,
        ),
        recorder=Recorder(_FullLog(deaf=not same, asked=journal.asked), journal),
        tools=_NoTools(),
    )
    with telemetry.run(replay_of(recording, prepared.sha256)) as span:
        door = GuestCalls(
            gateway=gateway,
            limits=guest.limits,
            span=span,
            served=recorded_calls(recording),
            compare_lines=True,
            seeds=guest.seeds,
        )
        follower = _Follower(
            recording=recording,
            door=door,
            pause=options.pause,
            account=account,
            is_open=_is_open(recording, exact=exact),
        )
        calls, divergence, not_kept = journal.calls, None, None
        try:
            divergence = await follower.follow(sandbox, prepared, guest)
        except NotKeptError as exc:
            not_kept = exc
        except Halt:
            calls = door.calls
            until = _behind(recording, calls)
        found = Replayed(
            run_id=run_id,
            calls=calls,
            divergence=divergence,
            until=until,
            state=recording.state,
            not_kept=not_kept,
            lines=account.lines if account and not divergence else None,
        )
        span.ended(found.state, None)
        if account is None:  # Otherwise a difference may be that of what watches it.
            span.replayed(found.verdict)
    return found


def _behind(recording: Recording, calls: int) -> int:
    """Return the number of the last own event of the first *calls* calls."""
    seqs = [e.seq for e in recording.own if 0 < getattr(e.event, "call", 0) <= calls]
    return max(seqs, default=1)


def _is_open(recording: Recording, *, exact: bool) -> bool:
    """
    Return whether the run ended where a replay need not end.

    A clock, a person, a crash or, unless the engine is *exact*ly the recorded
    one, the engine made it end there.
    """
    match recording.end.event if recording.end else None:
        case RunCompleted():
            return False
        case RunFailed(kind="limit" | "trap", message=text) if text.startswith(
            _BY_ENGINE
        ):
            return not exact
        case RunFailed(kind="limit", message=text):
            return not text.startswith(_COUNTED)
        case RunFailed(kind="trap" | "agent_error"):
            return False
        case _:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Follower:
    """
    The host functions of a guest that follows a recording.

    Attributes:
        recording: What is followed.

        door: The host functions of a run, over the full journal.

        pause: See `Options`.

        account: Hears what a watched program tells.

        is_open: The guest does not reach the recorded end by itself: it is stopped
            after the last recorded event.
    """

    recording: Recording
    door: GuestCalls
    pause: Pause | None
    account: Account | None
    is_open: bool

    async def follow(
        self, sandbox: Sandbox, prepared: Prepared, guest: Guest
    ) -> Divergence | None:
        """Execute the guest, and return the first divergence."""
        journal = self._journal
        try:
            self._stop()
            ending = await sandbox.run(prepared, guest, self)
            now = end_of(ending, self.recording.limits, Redactor())
        except (_EndReached, Suspend):
            return None
        except NondeterminismError as exc:
            return exc.divergence
        except RunStopped as exc:
            if self.is_open and self._at_end():  # the crash came before it was recorded
                return None
            now = RunFailed(kind="limit", message=f"{exc.limit}: {exc}", fuel=None)
        return journal.unmade(self.door.calls, self.door.lines) or _compare(
            self.recording, now, compare_fuel=journal.compare_fuel
        )

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Answer from the log, after the pause."""
        return await self._asked(self.door.call(name, params, fuel))

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Answer a batch from the log, after the pause of each call."""
        return await self._asked(self.door.call_many(batch, fuel))

    async def _asked(self, asked: Awaitable[Answer]) -> Answer:
        before = self.door.calls
        try:
            answer = await asked
        except NondeterminismError as exc:
            # The end may be in a batch: that of a fork, or of `until`.
            if exc.divergence.seq is None and before < self._journal.reached:
                self._stop()
            raise
        finally:
            if self.account:
                self.account.called(range(before + 1, self.door.calls + 1))
        if self.pause:
            for number in range(before + 1, self.door.calls + 1):
                await self.pause(number, self.door.lines)
        self._stop()
        return answer

    def log(self, level: int, text: bytes) -> None:
        """Compare a log line."""
        if self.account and self.account.hears(text):
            return
        self.door.log(level, text)
        self._stop()

    @property
    def _journal(self) -> Journal:
        return self.door.gateway.recorder.journal

    def _at_end(self) -> bool:
        journal = self._journal
        return self.door.calls >= journal.reached and self.door.lines >= journal.logged

    def _stop(self) -> None:
        if self.is_open and self._at_end():
            raise _EndReached


def _compare(
    recording: Recording, now: Event, *, compare_fuel: bool
) -> Divergence | None:
    """Return how the end now differs from the recorded one."""
    then = recording.end.event if recording.end else None
    seq = recording.end.seq if recording.end else None
    if type(then) is not type(now):
        recorded = type(then).__name__ if then else None
        return Divergence(seq, "$.type", recorded, type(now).__name__)
    assert then is not None  # noqa: S101 -- for the type checker
    old, new = to_payload(then), to_payload(now)
    if not compare_fuel:
        old["fuel"] = new["fuel"] = None
    if isinstance(then, RunCompleted) and old["output_sha256"] == new["output_sha256"]:
        old["output"] = new["output"] = None  # one may be redacted
    if found := first_difference(old, new):
        return Divergence(seq, *found)
    return None
