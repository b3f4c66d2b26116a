"""
The tasks of sessions: a call is a task, whose id names its stream, its number and ttl.

    made -> ToolInvoked -> outcome
    waits for an approval -> decided -> made when its client looks at it next

What is under way here is kept, to cancel it. All else is in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias

from ...core.calls import JSON, Completed, Failed, Outcome
from ...core.log.asked import Asked as Question
from ...core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    RunSuspended,
    outcome_of,
)
from ...errors import BusyError, FailureKind, NotKeptError
from ...lib import codec
from ...runs.recording import Recording
from ...service.sessions import Asked, Connection, Sessions
from .tasks import LONGEST_TTL_MS, Context, Task

#: A status, and the outcome or what is waited for.
_State: TypeAlias = tuple[str, Outcome | str]
_Making: TypeAlias = "asyncio.Task[Any]"

logger = logging.getLogger("caxton_host")

_ID = re.compile(r"([0-9a-f-]{36})\.([0-9]{1,9})\.([0-9]{1,9})")
#: Seconds between two looks at a call; and how often a session is waited for that is
#: driven while a call of it is to be cancelled.
_EVERY, _TRIES = 0.25, 20
_DOUBT = "the host stopped meanwhile: whether it happened is unknown, ask an operator"
_AGAIN = "was decided about: make the same call again, with the same arguments"
_OVER = "the session ended before anybody decided"
_WITHDRAWN = "the client cancelled the task"
_UNKEPT = "only a digest of the answer is kept: call the tool without a task"


@dataclass(slots=True, kw_only=True)
class SessionTasks:
    """
    Finds the calls of sessions, and makes them.

    Attributes:
        sessions: Makes them.

        connection: Returns the client of a request.

        told: Returns the result for an outcome.
    """

    sessions: Sessions
    connection: Callable[[Context], Connection]
    told: Callable[[Outcome], dict[str, JSON]]
    _made: dict[tuple[str, int], _Making] = field(
        default_factory=dict[tuple[str, int], _Making], init=False
    )

    async def begin(
        self, by: Connection, name: str, params: Mapping[str, JSON], ttl: int
    ) -> str:
        """
        Make a call in the background, and return its task once that is durable.

        Raises:
            CaxtonError: See `Sessions.call`.
        """
        begun: asyncio.Future[tuple[str, int]] = asyncio.Future()

        def told(run_id: str, call: int) -> None:
            if not begun.done():
                begun.set_result((run_id, call))

        making = asyncio.create_task(self.sessions.call(by, name, params, begun=told))
        try:
            either: list[asyncio.Future[Any]] = [making, begun]
            await asyncio.wait(either, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            making.cancel()
            raise
        if not begun.done() and isinstance(asked := making.result(), Asked):
            return key_of(asked.run_id, asked.call, ttl)
        self._keep(begun.result(), making)
        return key_of(*begun.result(), ttl)

    async def stop(self) -> None:
        """Cancel what is under way: nobody can ask for it any more."""
        for making in (under_way := [*self._made.values()]):
            making.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def find(self, ctx: Context, key: str) -> Task | None:
        """Return the task that a call is, and make it if it may be; see `Source`."""
        by, named = self.connection(ctx), _ID.fullmatch(key)
        recording = await self._recording(by, named[1]) if named else None
        if named is None or recording is None:
            return None
        call, ttl = int(named[2]), min(int(named[3]), LONGEST_TTL_MS)
        times = [one.recorded_at for one in recording.own if _is_of(one.event, call)]
        if not times or times[0] + ttl * 1_000 <= self.sessions.host.clock.now():
            return None
        status, found = await self._state(by, recording, call)
        return Task(
            id=key,
            status=status,
            said=found if isinstance(found, str) else "",
            created=times[0],
            updated=times[-1],
            ttl=ttl,
            result=None if isinstance(found, str) else self.told(found),
        )

    async def _recording(self, by: Connection, run_id: str) -> Recording | None:
        """Return a stream of the client; ``None``: it has none of that id."""
        reader = self.sessions.store.reader
        row = await reader.row(run_id)
        if row is None or row.agent != by.session:
            return None
        if not by.who.is_actor(json.loads(row.actor)):
            return None
        try:
            recording = await Recording.load(run_id, reader)
        except NotKeptError:
            return None
        return recording if recording.is_session else None

    async def _state(self, by: Connection, recording: Recording, call: int) -> _State:
        """Return how a call stands, with its outcome, or what it waits for."""
        journal, run_id = recording.journal(), recording.run_id
        asked = journal.question(call)
        if asked and _is_withdrawn(by, asked):
            return "cancelled", _failed("cancelled", _WITHDRAWN)
        if journal.answers(call):
            return await self._answered(recording, call)
        owner = await self.sessions.store.leases.owner(run_id)
        if (run_id, call) in self._made or (owner and call not in journal.asked):
            return "working", ""
        if asked is None or call not in journal.asked:
            return await self._doubtful(run_id, call)
        if recording.end is not None:
            return "failed", _failed("cancelled", _OVER)
        return self._undecided(run_id, asked) or self._go_on(by, run_id, asked)

    async def _doubtful(self, run_id: str, call: int) -> _State:
        # It may have ended between the look at the log and that for its host.
        recording = await Recording.load(run_id, self.sessions.store.reader)
        if recording.journal().answers(call):
            return await self._answered(recording, call)
        return "failed", _failed("transport", _DOUBT)

    def _undecided(self, run_id: str, asked: Question) -> _State | None:
        if not asked.waits or asked.is_over(self.sessions.host.clock.now()):
            return None
        by = " or ".join(map(str, asked.requested.by)) or "a person"
        said = f"waits for the approval of {by}: event {asked.seq} of run {run_id}"
        return "input_required", said

    async def _answered(self, recording: Recording, call: int) -> _State:
        ends = (outcome_of(one.event) for one in recording.own if one.event)
        (outcome,) = [end[1] for end in ends if end and end[0] == call]
        if isinstance(outcome, Failed) and outcome.kind == "cancelled":
            return "cancelled", outcome
        if isinstance(outcome, Completed) and outcome.cut:
            return "failed", _failed("too_large", _UNKEPT)
        if isinstance(outcome, Completed):
            read = self.sessions.store.reader.blob
            names = [str(blob["sha256"]) for blob in outcome.blobs]
            contents = {name: await read(name) for name in names}
            return "completed", replace(outcome, contents=contents)
        return "completed", outcome

    def _go_on(self, by: Connection, run_id: str, asked: Question) -> _State:
        """Make a call that was decided about, if the log holds the client's bytes."""
        wanted = asked.requested
        given = sha256(codec.encode({**wanted.params})).hexdigest()
        if given != wanted.params_sha256:
            return "input_required", _AGAIN
        making = asyncio.create_task(self._make(by, run_id, wanted))
        self._keep((run_id, wanted.call), making)
        return "working", ""

    async def _make(
        self, by: Connection, run_id: str, wanted: ApprovalRequested
    ) -> None:
        # It may have been made since the log was read; to call again would ask again.
        recording = await Recording.load(run_id, self.sessions.store.reader)
        if wanted.call in recording.journal().asked:
            await self.sessions.call(by, wanted.name, wanted.params)

    def _keep(self, key: tuple[str, int], making: _Making) -> None:
        def made(task: _Making) -> None:
            if self._made.get(key) is task:
                del self._made[key]
            if not task.cancelled() and (exc := task.exception()):
                logger.info("call %d of session run %s: %s", key[1], key[0], exc)

        self._made[key] = making
        making.add_done_callback(made)

    async def wait(self, task: Task) -> None:
        """Return when a call may have been made."""
        if making := self._made.get(_key(task)):
            await asyncio.wait([making])
        else:
            await asyncio.sleep(_EVERY)

    async def cancel(self, ctx: Context, task: Task) -> None:
        """Cancel a call that is under way here; deny one that waits for an approval."""
        run_id, call = _key(task)
        if making := self._made.get((run_id, call)):
            making.cancel()
            await asyncio.wait([making])
            return
        actor, store = self.connection(ctx).who.actor, self.sessions.store
        denied = ApprovalDecided(
            call=call, verdict="deny", actor=actor, reason=_WITHDRAWN
        )
        for _ in range(_TRIES):
            recording = await Recording.load(run_id, store.reader)
            asked, last = recording.journal().asked.get(call), recording.own[-1]
            if asked is None or not asked.waits or recording.end is not None:
                return
            try:
                await store.claim(last.stream, denied, after=last.seq)
            except BusyError:  # The session is suspended soon.
                await asyncio.sleep(_EVERY)


def _is_of(event: Event | None, call: int) -> bool:
    """Return whether an event is about a call: that of a suspension may be another."""
    is_named = getattr(event, "call", None) == call
    return is_named and not isinstance(event, RunSuspended)


def key_of(run_id: str, call: int, ttl: int) -> str:
    """Return the id of the task that a call is."""
    return f"{run_id}.{call}.{ttl}"


def _key(task: Task) -> tuple[str, int]:
    run_id, call, _ = task.id.split(".")
    return run_id, int(call)


def _failed(kind: FailureKind, said: str) -> Failed:
    return Failed(kind=kind, sent="unknown", message=said)


def _is_withdrawn(by: Connection, asked: Question) -> bool:
    last = asked.decided
    if last is None or (last.verdict, last.reason) != ("deny", _WITHDRAWN):
        return False
    return by.who.is_actor(last.actor)
