"""
Replay: execute a recorded run again, and touch nothing (law 6).

The same door and the same gateway as of a live run, over a full journal. The log
it is given takes nothing, the tool client calls nothing, and no other is at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, NoReturn

from .core.calls import JSON, Completed
from .core.catalogue import Offered, routes_from_payload
from .core.events import (
    Event,
    RunCompleted,
    RunFailed,
    ToolInvoked,
    ToolRetried,
    to_payload,
)
from .core.grants import Grant
from .core.journal import first_difference
from .core.redact import Redactor
from .door import RunDoor
from .drive import end_of
from .errors import (
    Divergence,
    NondeterminismError,
    NotKeptError,
    RunStopped,
    Suspend,
    ToolError,
)
from .gateway import Gateway
from .ports import (
    Guest,
    Prepared,
    Refused,
    Reservation,
    Sandbox,
    Store,
    Telemetry,
    ToolRequest,
)
from .recording import Recording

__all__ = ["Replayed", "replay"]

#: How the message begins of an end that every engine comes to in the same place.
_COUNTED = ("host_calls", "total_calls", "recorded", "result", "output")
#: The same, of one that only the recorded engine does.
_BY_ENGINE = ("fuel", "memory", "stack overflow")
_FOREVER = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """
    What a replay found.

    Attributes:
        calls: How many calls the log holds.

        divergence: The first difference, or ``None``.

        not_kept: The call where the replay had to end: the log keeps a digest of its
            answer. Up to there the agent did what the log holds.
    """

    run_id: str
    calls: int
    divergence: Divergence | None
    not_kept: NotKeptError | None = None

    @property
    def verdict(self) -> Literal["identical", "diverged", "incomplete"]:
        """Whether the agent did what the log holds, as far as that can be told."""
        if self.not_kept:
            return "incomplete"
        return "diverged" if self.divergence else "identical"

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.replay/v1`` document."""
        return {
            "$type": "caxton.replay/v1",
            "run_id": self.run_id,
            "verdict": self.verdict,
            "calls": self.calls,
            "divergence": asdict(self.divergence) if self.divergence else None,
            "not_kept": self.not_kept.call if self.not_kept else None,
        }


class _EndReached(Exception):  # noqa: N818 -- how a replay of a clock's end ends
    """The last recorded event is behind us, and a clock ended the run there."""


class _FullLog:
    """An event log that takes nothing: what would be new is the divergence."""

    recorded_at = 0

    def queue(self, *events: Event, blobs: Mapping[str, bytes] | None = None) -> None:
        """Refuse."""
        del blobs
        _refuse(events)

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        """Refuse."""
        del blobs, reserve
        _refuse(events)


def _refuse(events: tuple[Event, ...]) -> NoReturn:
    event = events[0]
    if isinstance(event, ToolInvoked):
        raise NondeterminismError(Divergence(None, "$.name", None, event.name))
    if isinstance(event, ToolRetried):
        raise _EndReached
    raise NondeterminismError(Divergence(None, "$.type", None, type(event).__name__))


class _NoTools:
    """A tool client that reaches nothing."""

    async def offered(self, servers: Collection[str]) -> Offered:
        """Offer nothing."""
        del servers
        return Offered()

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Refuse."""
        raise ToolError("transport", "no", f"a replay does not call {request.tool}")


async def replay(
    run_id: str, *, store: Store, sandbox: Sandbox, telemetry: Telemetry
) -> Replayed:
    """
    Execute the run again over its own log, and return the first divergence.

    A run that a clock, a person or a crash ended is executed up to its last
    recorded event. Fuel, and an end for lack of fuel or room, are compared where
    the engine is the one of the recording.

    Raises:
        NotFoundError: There is no such run.

        NotKeptError: It was erased.

        LogBrokenError: Its log lacks what a replay needs.
    """
    recording = await Recording.load(run_id, store)
    started, limits = recording.started, recording.limits
    module = await store.blob(started.module_sha256)
    prepared = await sandbox.prepare(module, limits, started.entry)
    exact = prepared.engine == started.engine
    guest = replace(
        await recording.guest(f"replay/{started.agent}", store),
        limits=replace(
            limits,
            compute=_FOREVER,
            fuel=limits.fuel if exact else limits.fuel * 2,  # it may charge more
        ),
    )
    journal = recording.journal(compare_fuel=exact)
    gateway = Gateway(
        run_id=run_id,
        grant=Grant(),
        routes=routes_from_payload(started.catalogue),
        journal=journal,
        log=_FullLog(),
        tools=_NoTools(),
    )
    door = RunDoor(
        gateway=gateway, limits=guest.limits, telemetry=telemetry, watch_all=True
    )
    with telemetry.run(started.agent, run_id, "replay") as span:
        divergence, not_kept = None, None
        try:
            divergence = await _follow(recording, sandbox, prepared, guest, door)
        except NotKeptError as exc:
            not_kept = exc
        found = Replayed(
            run_id=run_id,
            calls=journal.calls,
            divergence=divergence,
            not_kept=not_kept,
        )
        span.ended(found.verdict, None)
    return found


def _is_open(recording: Recording, *, exact: bool) -> bool:
    """
    Return whether the run ended where a replay cannot be expected to.

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


async def _follow(
    recording: Recording,
    sandbox: Sandbox,
    prepared: Prepared,
    guest: Guest,
    door: RunDoor,
) -> Divergence | None:
    journal = door.gateway.journal
    try:
        if _is_open(recording, exact=journal.compare_fuel):
            door.after = partial(_stop, door)
            _stop(door)
        ending = await sandbox.run(prepared, guest, door)
        now = end_of(ending, recording.limits, Redactor())
    except (_EndReached, Suspend):
        return None
    except NondeterminismError as exc:
        return exc.divergence
    except RunStopped as exc:
        if door.after and _at_end(door):  # the crash came before that was recorded
            return None
        now = RunFailed(kind="limit", message=f"{exc.limit}: {exc}", fuel=None)
    return journal.unmade(door.calls) or _compare(
        recording, now, compare_fuel=journal.compare_fuel
    )


def _at_end(door: RunDoor) -> bool:
    journal = door.gateway.journal
    return door.calls >= journal.calls and door.lines >= journal.logged


def _stop(door: RunDoor, *_: int) -> None:
    if _at_end(door):
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
