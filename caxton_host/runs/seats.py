"""
Seats: where a session takes the calls of its client, in place of a sandbox.

    client -> Seat.call -> GuestCalls -> Gateway -> ToolClient

A seat is served as a guest is executed: from the start, or the resumption, of its run
to the end or a suspension. Calls that arrive while others are recorded are admitted
together, in one transaction. An answer leaves when its outcome is durable (law 3).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

from ..core.calls import JSON, Outcome
from ..core.clients import ABI, CLOSED, FULL, IDLE
from ..core.grants.approvals import Unapproved
from ..core.grants.freezes import Halted, Kind
from ..core.limits import Limits
from ..core.log.events import QuestionAsked, ToolProgress
from ..core.questions import Said
from ..errors import BusyError, OverloadedError, Suspend
from ..gateway.gateway import PendingCall
from ..gateway.guest_calls import GuestCalls, Watch
from ..lib import codec
from ..ports.sandbox import Door, Ending, Guest, Prepared

#: Calls of one session under way, and those that wait for one of these to end.
_AT_ONCE, _WAITING = 64, 1_000
#: The share of `Limits.recorded` at which a stream ends and the next one begins.
_FULL = 0.5
#: Seconds without a call after which a session is suspended for an approval, and those
#: that it has until its first call.
_SOON_S, _AT_FIRST_S = 0.1, 2.0
#: A session goes on while a server is frozen: without it.
_SERVER: Kind = "server"


#: Asks the user of a client.
Ask: TypeAlias = Callable[[QuestionAsked], Awaitable[Said]]


class SeatGone(Exception):  # noqa: N818 -- no error: the next stream takes the call
    """The stream of the session ended before it took the call."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The call of that number waits for an approval."""

    call: int


@dataclass(slots=True, eq=False)
class _Call:
    """
    A call of the client.

    Attributes:
        answer: What the client is told; cancelled if it does not wait any more.

        tell: Called with each progress report.

        begun: Called with its number, once that is durable.

        ask: Asks the user of the client; ``None``: it cannot.

        pending: The call in the gateway, once that has recalled it.

        watch: Watches it.

        task: Carries it out, once that has begun.
    """

    name: bytes
    params: bytes
    answer: asyncio.Future[Outcome | Waits]
    tell: Callable[[ToolProgress], None]
    begun: Callable[[int], None]
    ask: Ask | None
    pending: PendingCall | None = None
    watch: Watch = field(default_factory=contextlib.nullcontext)
    task: asyncio.Task[object] | None = None

    def settle(self, what: Outcome | Waits | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(what, Exception):
            self.answer.set_exception(what)
        else:
            self.answer.set_result(what)


@dataclass(slots=True, kw_only=True, eq=False)
class Seat:
    """
    Takes the calls of the client of one session.

    Attributes:
        limits: The bounds of its run.

        idle: Seconds without a call after which the session ends.

        over: It takes no more calls: the next stream does.

        tools: The `ToolClient` of its run, once it is served.
    """

    limits: Limits
    idle: float
    over: bool = False
    tools: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _reason: str = ""
    _stop: Suspend | None = None
    _served: bool = False
    _queue: deque[_Call] = field(default_factory=deque["_Call"])
    _under_way: dict[int, _Call] = field(default_factory=dict[int, "_Call"])
    _some: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(
        self,
        name: str,
        params: Mapping[str, JSON],
        tell: Callable[[ToolProgress], None] = lambda _: None,
        begun: Callable[[int], None] = lambda _: None,
        ask: Ask | None = None,
    ) -> Outcome | Waits:
        """
        Make a call, and return its outcome once that is durable.

        Cancelling this cancels the call, which is recorded.

        Args:
            name: The exposed name of the tool.

            params: Its parameters.

            tell: Called with each progress report.

            begun: Called with its number, once it is recorded and is to be sent.

            ask: Asks the user of the client; ``None``: it cannot.

        Raises:
            SeatGone: The next stream of the session takes it. Nothing was recorded.

            OverloadedError: Too many calls wait.

            Suspend: The session is frozen.

            BusyError: The session was stopped while the call was under way.
        """
        if self.over:
            raise SeatGone
        if len(self._queue) >= _WAITING:
            raise OverloadedError(
                f"{_WAITING} calls of this session wait, which is the most",
                retry_after=1.0,
                whose="principal",
            )
        answer: asyncio.Future[Outcome | Waits] = (
            asyncio.get_running_loop().create_future()
        )
        one = _Call(name.encode(), codec.encode({**params}), answer, tell, begun, ask)
        self._queue.append(one)
        self._some.set()
        try:
            return await answer
        finally:
            if answer.cancelled() and one.task:
                one.task.cancel()

    def close(self, reason: str = CLOSED) -> None:
        """Take no more calls; the session ends once those under way have ended."""
        self.over, self._reason = True, self._reason or reason
        self._some.set()

    def told(self, event: ToolProgress) -> None:
        """Pass a progress report on to who made the call."""
        if one := self._under_way.get(event.call):
            one.tell(event)

    async def ask(self, asked: QuestionAsked) -> Said | None:
        """Ask the user of the client; ``None``: it cannot."""
        one = self._under_way.get(asked.call)
        return await one.ask(asked) if one and one.ask else None

    async def serve(self, door: GuestCalls) -> Ending:
        """
        Serve the client until the session ends.

        Raises:
            Suspend: It is to be suspended: a call waits for an approval, or it is
                frozen.

            StoreError: An event could not be stored.
        """
        door.calls = door.gateway.recorder.journal.reached
        self.tools.set_result(door.gateway.tools)
        try:
            async with asyncio.TaskGroup() as tasks:
                while batch := await self._next(door):
                    for one in await self._admit(door, batch):
                        tasks.create_task(self._finish(door, one))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self.over = True
            for one in self._queue:
                one.settle(SeatGone())
            for one in self._under_way.values():
                one.settle(_given_up())
        if self._stop:
            raise self._stop
        return Ending(kind="returned", output=codec.encode({"reason": self._reason}))

    async def _next(self, door: GuestCalls) -> Sequence[_Call]:
        """Wait for calls, and return those to admit; none at the end of the session."""
        while True:
            self._some.clear()
            if batch := self._batch(door):
                return batch
            journal = door.gateway.recorder.journal
            waiting = journal.waiting
            if not self._under_way:
                if _is_full(door):
                    self.close(FULL)
                if self._reason == CLOSED and journal.asked:
                    # Its client may come back for what people were asked about.
                    self._stop = self._stop or Unapproved(min(journal.asked))
                if self._stop or self._reason:
                    return ()
            try:
                async with asyncio.timeout(self._patience(waiting=bool(waiting))):
                    await self._some.wait()
            except TimeoutError:
                if waiting:
                    # People decide about runs that no host drives.
                    self._stop = Unapproved(waiting[0].requested.call)
                    self.over = True
                else:
                    self.close(IDLE)

    def _patience(self, *, waiting: bool) -> float | None:
        """Return the seconds to wait for the next call; ``None``: one is under way."""
        if self._under_way:
            return None
        if waiting:
            return _SOON_S if self._served else _AT_FIRST_S
        return self.idle

    def _batch(self, door: GuestCalls) -> Sequence[_Call]:
        """Take from the queue what can be admitted now."""
        free = _AT_ONCE - len(self._under_way)
        free = min(free, self.limits.total_calls - door.calls)
        taken: list[_Call] = []
        while self._queue and len(taken) < free and not self._stop:
            one = self._queue.popleft()
            if not one.answer.done():
                taken.append(one)
        self._served = self._served or bool(taken)
        return taken

    async def _admit(self, door: GuestCalls, batch: Sequence[_Call]) -> Sequence[_Call]:
        """Record the intents of calls, and return those to finish."""
        before, recorded = door.calls, door.recorded
        calls: list[PendingCall] = []
        try:
            for one in batch:
                one.pending = pending = self._recall(door, one)
                one.watch = door.watch(pending.call)
                self._under_way[pending.call.number] = one
                calls.append(pending)
            await door.gateway.admit(calls)
        except Suspend as exc:
            # None of them is recorded. Each is admitted by itself.
            for pending in calls:
                del self._under_way[pending.call.number]
            if len(batch) > 1:
                door.calls, door.recorded = before, recorded
                return [c for one in batch for c in await self._admit(door, [one])]
            await self._hold(door, batch[0], exc)
            return ()
        except BaseException:
            for one in batch:
                one.settle(_given_up())
            raise
        return batch

    def _recall(self, door: GuestCalls, one: _Call) -> PendingCall:
        """Return a call in the gateway: the one that people were asked about, if so."""
        newest, digest = door.calls, sha256(one.params).hexdigest()
        for number, asked in door.gateway.recorder.journal.asked.items():
            known = asked.requested
            same = (known.name.encode(), known.params_sha256) == (one.name, digest)
            if same and number not in self._under_way:
                door.calls = number - 1
                break
        pending = door.pending(one.name, one.params)
        door.calls = max(newest, door.calls)
        return pending

    async def _hold(self, door: GuestCalls, one: _Call, exc: Suspend) -> None:
        """Tell the client that its call was not admitted."""
        if isinstance(exc, Unapproved):
            await door.gateway.recorder.append(*exc.requests)
            one.settle(Waits(exc.call))
        else:
            self._halt(one, exc)

    def _halt(self, one: _Call, exc: Suspend) -> None:
        """Tell the client that its call is frozen, and suspend the session if it is."""
        one.settle(exc)
        if not isinstance(exc, Halted) or exc.frozen[0] != _SERVER:
            self._stop, self.over = exc, True

    async def _finish(self, door: GuestCalls, one: _Call) -> None:
        """Send an admitted call, and tell the client its outcome."""
        assert one.pending is not None  # noqa: S101 -- it is admitted
        one.task = asyncio.current_task()
        try:
            if one.answer.cancelled():
                door.gateway.give_up(one.pending)
                return
            if one.pending.is_ready:
                one.begun(one.pending.call.number)
            known = await door.finish(one.pending, one.watch)
            await door.gateway.recorder.append()
            if known:
                one.begun(one.pending.call.number)
                one.settle(known.outcome)
        except Suspend as exc:
            self._halt(one, exc)
        finally:
            one.task = None
            if not self._under_way.pop(one.pending.call.number).answer.done():
                one.settle(_given_up())
            self._some.set()


def _is_full(door: GuestCalls) -> bool:
    """Return whether the stream of a session has reached a limit of a run."""
    limits = door.limits
    return door.calls >= limits.total_calls or door.recorded > limits.recorded * _FULL


def _given_up() -> BusyError:
    return BusyError(
        "the session was stopped while this call was under way: whether it happened is "
        "in the log",
        fix="look at what it would have changed before you call again",
    )


@dataclass(frozen=True, slots=True)
class Seats:
    """
    The sandbox of sessions: it serves a client instead of executing a module.

    Attributes:
        of: The seat of each session that is driven, or about to be, by its run.
    """

    of: dict[str, Seat] = field(default_factory=dict[str, Seat])

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """Return what stands for the module of a session; see `Client.module`."""
        del limits, entry
        digest = sha256(module).hexdigest()
        return Prepared(sha256=digest, abi=ABI, engine="client", key="")

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """Serve the client of a session; see `Seat.serve`."""
        del prepared, guest
        assert isinstance(door, GuestCalls)  # noqa: S101 -- the executor's
        return await self.of[door.gateway.judge.run_id].serve(door)

    async def ask(self, run_id: str, asked: QuestionAsked) -> Said | None:
        """Ask the user of the client of a session; see `Executor.client`."""
        seat = self.of.get(run_id)
        return await seat.ask(asked) if seat else None

    def watch(self, run_id: str, event: ToolProgress) -> None:
        """Pass on a progress report; see `Host.watch`."""
        if seat := self.of.get(run_id):
            seat.told(event)
