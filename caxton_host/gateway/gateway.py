"""
The gateway: the only way from an agent to a tool.

    agent -> mcp_call (sandbox) -> GuestCalls -> Gateway -> ToolClient (mcp, webhooks)

Each call takes the same five steps, in this order:

1. *Recall.* A call that the log already answers is answered from the log.
2. *Decide.* `Judge` compares the call with the grants. No grant, no call.
3. *Record the intent.* `ToolInvoked` is durable before a byte leaves the host:
   a crash can leave a call in doubt, but never unrecorded.
4. *Forward.* The tool client talks to the tool server, if the lease is still held.
5. *Record the outcome.* The agent sees what the log holds, and nothing else. With
   ``record = "hash"``, the log holds the digest of what the agent sees.

The outcome is queued, not awaited: the agent can touch nothing before its next
call, and that call's intent commits both (output commit; see Elnozahy et al.,
"A survey of rollback-recovery protocols", section 2.4).

A single call is a batch of one. Several calls take each step together: all are
recalled, all are decided in order, all intents are one append, and then those that are
allowed are sent at the same time. A crash leaves all of a batch or nothing. If some of
the calls need an approval, all of those are asked about together, and nothing of the
batch is recorded before.

Replay needs no code of its own: the journal is full, so step 1 answers, and the
log and the tools it is given refuse everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TypeAlias, cast

from ..core.calls import (
    JSON,
    Completed,
    Denied,
    Failed,
    Outcome,
    Route,
    ToolCall,
    cut,
    likelier,
    shortened,
)
from ..core.grants.call_terms import Terms
from ..core.grants.journal import Answered, InDoubt, Recall
from ..core.grants.settlement import Correction, corrections
from ..core.limits import Limits
from ..core.log.events import (
    ApprovalRequested,
    Event,
    ToolInvoked,
    ToolProgress,
    ToolRetried,
    settled,
)
from ..core.names import AGENTS
from ..errors import (
    FailureKind,
    LeaseLost,
    RunStopped,
    Sent,
    StoreError,
    Suspend,
    ToolError,
)
from ..ports.log import Refused, Reservation, was_refused
from ..ports.tools import Asker, ToolClient, ToolRequest
from .call_budgets import Judged, Out, Want, settles
from .judge import NOWHERE, Judge
from .questions import Desk, Questions, nobody
from .recorder import Recorder, Reports, unwatched

#: Failures whose message may quote the answer, and what is recorded instead.
_UNTOLD: Mapping[FailureKind, str] = {
    "protocol": "the server refused the call",
    "invalid_result": "the answer is not what the tool promises",
}


_NO_TERMS = Terms()

#: What a call takes of a budget, and how the store is asked for it.
_Want: TypeAlias = tuple["PendingCall", Want, Reservation]


async def _at_once(_: float) -> None:
    """Do not wait."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """
    A call on its way through the gateway.

    Attributes:
        call: What the agent asks.

        params: Its parameters as the log holds them.

        known: What the log said of it when it was recalled.

        out: What the store has refused of it.

        judged: The decision about it, if it is new.

        event: What records its next attempt: its intent, or a retry if it is in doubt.

        outcome: How it ends without being sent, if it does.

        terms: How it is carried out.

        is_ready: Its intent or its retry is durable, and it is not sent yet.

        answer: What the agent is to see, once that is known.
    """

    call: ToolCall
    params: dict[str, JSON] | None
    known: Recall
    out: Out = field(default_factory=Out)
    judged: Judged | None = None
    event: ToolInvoked | ToolRetried | None = None
    outcome: Outcome | None = None
    terms: Terms = _NO_TERMS
    is_ready: bool = False
    answer: Answered | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """What records it: its attempt, and its end if it is not sent."""
        assert self.event is not None  # noqa: S101 -- it is decided about
        if self.outcome is None:
            return (self.event,)
        return self.event, settled(self.call.number, self.outcome)

    @property
    def wants(self) -> Sequence[_Want]:
        """What it takes of budgets, if it is sent for the first time."""
        if self.judged is None or not self.judged.wants:
            return ()
        taken = zip(self.judged.wants, self.judged.reserve, strict=True)
        return [(self, *want) for want in taken]


@dataclass(slots=True, eq=False)
class _Sends:
    """
    The attempts to send one call.

    Attributes:
        began_at: When this process sent it first, in microseconds since 1970.

        key: Its idempotency key, as it was recorded.

        attempt: The number of the current attempt, over all hosts that drove the run.

        sent: Whether any of the attempts that are over may have reached the server.

        is_queued: The current attempt waits for its turn.

        questions: What the tool asks people meanwhile.
    """

    call: ToolCall
    route: Route
    terms: Terms
    began_at: int
    questions: Questions
    key: str = ""
    attempt: int = 1
    sent: Sent = "no"
    is_queued: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether the log must not hold the words of the tool."""
        return self.route.record == "hash" or bool(self.terms.redact)

    def counted(self, done: Completed, now: int) -> Completed:
        """Return an answer with the number and the duration of all attempts."""
        if self.attempt == 1:
            return done
        took = max(now - self.began_at, done.duration_us)
        return replace(done, attempts=self.attempt, duration_us=took)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """
    Mediates every tool call of one run.

    Attributes:
        judge: Decides about calls.

        recorder: Stores decisions and answers before they take effect.

        tools: Where permitted calls go.

        max_result: Bytes of the largest answer that the run takes.

        wait: Waits that many seconds before a call is sent again. Injected, so that
            this module needs no clock.

        watch: Called with each progress report of a call.

        desk: Where people answer what tools ask.
    """

    judge: Judge
    recorder: Recorder
    tools: ToolClient
    max_result: int = field(default_factory=lambda: Limits().result)
    wait: Callable[[float], Awaitable[None]] = _at_once
    watch: Callable[[ToolProgress], None] = unwatched
    desk: Desk = nobody

    async def call(self, call: ToolCall) -> Answered:
        """
        Carry out one call, and return what the agent is to see.

        A denial and a failing tool are outcomes, not exceptions: the agent
        can act on them. What is raised ends the run.

        Raises:
            NondeterminismError: The log holds another call at this position.

            NotKeptError: It holds a digest of the answer, and not the answer.

            RunStopped: The call is one more than the run may attempt.

            LeaseLost: Another host may drive the run now. Nothing was sent.

            StoreError: An event could not be stored. If it was the
                intent, nothing was sent.

            Suspend: The call was sent before a crash, and its effect is unknown; or
                a person has to approve it first, and nothing was sent; or it is
                frozen; or the run that answers it is suspended.
        """
        pending = self.recall(call)
        if isinstance(pending.known, Answered):
            return checked(pending.known)
        await self.admit((pending,))
        answer = await self.finish(pending)
        assert answer is not None  # noqa: S101 -- it is no batch with others
        return checked(answer)

    def recall(self, call: ToolCall) -> PendingCall:
        """
        Take the first step of a call: look it up in the journal.

        Raises:
            NondeterminismError: See `call`.

            NotKeptError: See `call`.
        """
        params = self.judge.redact.value(call.params)
        known = self.recorder.journal.recall(call, params)
        if isinstance(known, Answered):
            return PendingCall(call, params, known, answer=known)
        return PendingCall(call, params, known)

    async def admit(self, calls: Sequence[PendingCall]) -> None:
        """
        Take the second and the third step: decide about calls, record the decisions.

        All intents are durable when this returns, if one of the calls is to be sent.

        Raises:
            StoreError: See `call`.

            Suspend: See `call`. Nothing was recorded of any of the calls.
        """
        try:
            while new := self._decide(calls):
                if await self._record(new):
                    return
        except StoreError as exc:
            exc.unsent = not any(isinstance(one.known, InDoubt) for one in calls)
            raise

    async def finish(self, pending: PendingCall) -> Answered | None:
        """
        Take the last two steps of an admitted call: send it, record its outcome.

        Returns:
            Its answer; ``None`` of a call in doubt that was not sent again, because
            its batch exceeds a limit of the run.

        Raises:
            LeaseLost: See `call`.

            StoreError: See `call`.

            Suspend: It was frozen before it was sent, or the run that answers it is
                suspended. It stays open.
        """
        if pending.is_ready:
            pending.is_ready = False
            outcome = await self._forward(pending)
            pending.answer = self._settle(pending.call, outcome)
        return pending.answer

    def give_up(self, pending: PendingCall) -> None:
        """Close an admitted call that nobody waits for any more. It is not sent."""
        if pending.is_ready:
            pending.is_ready = False
            self._stop(pending.call, "no")

    def _decide(self, calls: Sequence[PendingCall]) -> Sequence[PendingCall]:
        """Decide about *calls* in order, and return those to record."""
        judge, journal = self.judge, self.recorder.journal
        judge.bind_today()
        tallies, several, is_over = journal.tallies, len(calls) > 1, False
        if several:
            tallies = tallies.copy()  # Each call counts for those behind it.
        new: list[PendingCall] = []
        asks: list[ApprovalRequested] = []
        for one in calls:
            if isinstance(one.known, Answered):
                continue
            new.append(one)
            judge.check_thawed(one.call)
            if isinstance(one.known, InDoubt):
                one.event = judge.retry(one.call, one.known)
                one.terms = judge.terms_of(one.known)
                continue
            is_over = is_over or bool(one.call.over)
            one.judged = judged = judge.judge(one.call, one.params, one.out, tallies)
            one.event, one.outcome = judged.intent, judged.denied
            one.terms = judged.terms
            if judged.asks:
                asks.append(judged.asks)
            if several:
                journal.count(judged.intent, self.recorder.log.recorded_at, tallies)
        if is_over:
            # Calls in doubt stay so: they were sent once.
            return _unsent(new)
        if asks:
            raise judge.unapproved(asks)
        return new

    async def _record(self, calls: Sequence[PendingCall]) -> bool:
        """
        Store *calls* in one transaction: durable, if one of them is to be sent.

        Returns:
            False if the store refuses what they spend: decide about them again.
        """
        to_send = [one for one in calls if one.outcome is None]
        if not to_send:
            self._queue(calls)
            return True
        wants = [want for one in to_send for want in one.wants]
        reserve = [reservation for _, _, reservation in wants]
        try:
            refused = await self.recorder.append(*_events(calls), reserve=reserve)
        except Exception:
            raise
        except BaseException as exc:
            # Cancelled while the log committed them.
            if was_refused(exc):
                self._give_up(calls)
                raise
            self._note(calls)
            for one in calls:
                if one.is_ready and one.judged:  # or it stays in doubt
                    self._stop(one.call, "no")
            raise
        if refused:
            await self._refused(calls, wants, refused)
            return False
        self._note(calls)
        return True

    def _queue(self, calls: Sequence[PendingCall]) -> None:
        """Record *calls* of which none is sent."""
        self.recorder.queue(*_events(calls))
        self._note(calls)

    def _give_up(self, calls: Sequence[PendingCall]) -> None:
        """Close *calls*, which are not recorded, unless the next host makes them."""
        if not self.recorder.leaving:
            self._queue(_unsent(calls))

    def _note(self, calls: Sequence[PendingCall]) -> None:
        """Note that *calls* are recorded now."""
        at = self.recorder.log.recorded_at
        for one in calls:
            if one.outcome:
                one.answer = Answered(one.outcome, at)
            else:
                one.is_ready = True

    async def _refused(
        self, calls: Sequence[PendingCall], wants: Sequence[_Want], refused: Refused
    ) -> None:
        """
        Note which budget has no room, and wait if its rule says so.

        Args:
            calls: None of them is stored.

            wants: What they take of budgets.

            refused: Which of these has no room.
        """
        one, want, asked = wants[refused.index]
        ahead, behind = (
            [item for item in part if item[2].key == asked.key]
            for part in (wants[: refused.index], wants[refused.index :])
        )
        # All calls of a batch are sent at once: they never wait for each other.
        taken = sum(other.amount for _, _, other in ahead) + asked.amount
        if taken <= asked.limit and (pause := one.out.take(want, refused)):
            await self._pause(calls, pause)
            return
        for other, want, reservation in behind:
            # Calls that take as much have no room either.
            if reservation.amount >= asked.amount:
                other.out.refuse(want, refused)

    async def _pause(self, calls: Sequence[PendingCall], seconds: float) -> None:
        try:
            await self.wait(seconds)
        except BaseException:
            # Cancelled while the calls, which are not recorded yet, wait.
            self._give_up(calls)
            raise

    async def _forward(self, pending: PendingCall) -> Completed | Failed:
        """
        Send a call whose intent or retry is durable, and return the outcome.

        It is sent again as often as its route allows. Each attempt is recorded first.
        """
        call, known = pending.call, pending.known
        route = self.judge.routes[call.name]
        sends = _Sends(
            call,
            route=route,
            terms=pending.terms,
            began_at=self.judge.now(),
            questions=Questions(
                recorder=self.recorder,
                redact=self.judge.redact,
                call=call.number,
                route=route,
                desk=self.desk,
                now=self.judge.now,
                may_send=partial(self._check_lease, call),
                watch=self.watch,
            ),
        )
        sends.questions.quiet = sends.is_quiet
        if isinstance(known, InDoubt):
            sends.key, sends.sent = known.invoked.idempotency_key, "unknown"
            sends.attempt = known.attempts + 1
        else:
            assert pending.judged is not None  # noqa: S101 -- it is decided about
            sends.key = pending.judged.intent.idempotency_key
        retry, effect = sends.route.retry, sends.route.effect
        for tries in count(1):
            try:
                done = await self._send(sends)
            except ToolError as exc:
                sends.sent = likelier(sends.sent, exc.sent)
                if not retry.again(effect, exc.kind, sends.sent, sends=tries):
                    return self._failed(sends, exc)
            else:
                done = sends.counted(done, self.judge.now())
                return self._taken(sends, self._measured(sends, done))
            await self._send_again(sends, retry.pause(sends.key, tries))
        raise AssertionError  # pragma: no cover -- the loop returns or raises

    async def _send(self, sends: _Sends) -> Completed:
        call, route = sends.call, sends.route
        reports = Reports(
            recorder=self.recorder,
            redact=self.judge.redact,
            call=call.number,
            watch=self.watch,
            quiet=sends.is_quiet,
        )
        self._check_lease(call)

        request = ToolRequest(
            run_id=self.judge.run_id,
            call=call.number,
            server=route.server,
            tool=route.tool,
            params=call.params or {},
            definition_sha256=route.definition_sha256,
            idempotency_key=sends.key,
            attempt=sends.attempt,
            timeout=sends.terms.timeout,
            quiet=sends.is_quiet,
            guessed=route.guessed,
            handed=self.judge.handed if route.server == AGENTS else (),
            asker=self._asker(call) if route.effect == "read" else None,
            on_progress=reports.take,
            queued=partial(self._queued, sends),
            reserve=lambda items: self.recorder.append(reserve=items),
            on_resend=partial(self._resend, sends),
            on_question=sends.questions.ask,
        )
        try:
            return await self.tools.call_tool(request)
        except (ToolError, StoreError, Suspend):
            raise
        except BaseException:
            # The run is stopped while the tool works. The call is closed: an open
            # call means that its host died. Its effect is unknown if it was sent.
            self._stop(call, sends.sent if sends.is_queued else "unknown")
            raise
        finally:
            reports.end()

    @contextmanager
    def _queued(self, sends: _Sends) -> Generator[None]:
        """Note that the current attempt waits for its turn."""
        sends.is_queued = True
        yield  # If its turn never comes, it stays so.
        sends.is_queued = False
        self._check_lease(sends.call)
        self.judge.check_thawed(sends.call, sends.sent)

    async def _resend(self, sends: _Sends) -> None:
        """Record that the transport sends again, because the server asks for it."""
        await self._record_send(sends, "input")
        self._check_lease(sends.call)

    def _asker(self, call: ToolCall) -> Asker:
        return Asker(
            agent=self.judge.agent,
            grants=tuple(bound.grant for bound in self.judge.bounds),
            params_sha256=call.digest,
        )

    def _check_lease(self, call: ToolCall) -> None:
        if not self.recorder.log.holds():
            # Its intent stays open: the host that takes the run over finds it in doubt.
            raise LeaseLost(
                f"the lease of this host ran out before call {call.number} was sent",
                fix=f"caxton runs resume {self.judge.run_id}, once no host drives it",
            )

    async def _send_again(self, sends: _Sends, after_s: float) -> None:
        """Wait, and make durable that a call is sent again."""
        try:
            await self.wait(after_s)
            self.judge.check_thawed(sends.call, sends.sent)
            await self._record_send(sends, "transport")
        except Exception:
            raise
        except BaseException:
            # The run is stopped between two sends: only the first may have arrived.
            self._stop(sends.call, sends.sent)
            raise

    async def _record_send(self, sends: _Sends, reason: str) -> None:
        sends.attempt += 1
        call = sends.call.number
        await self.recorder.append(
            ToolRetried(call=call, attempt=sends.attempt, reason=reason)
        )

    def _failed(self, sends: _Sends, exc: ToolError) -> Failed:
        said = f"{exc}. To fix: {exc.fix}" if exc.fix else str(exc)
        text, code = self.judge.redact.text(said), exc.code
        if sends.is_quiet and exc.kind in _UNTOLD:
            # Its words may be the answer, and so may its number.
            text, code = _UNTOLD[exc.kind], None
        return Failed(kind=exc.kind, sent=sends.sent, message=text, code=code)

    def _measured(self, sends: _Sends, done: Completed) -> Completed:
        """Return an answer with what it says that the call has spent."""
        call, again = sends.call, sends.sent != "no"
        intent, _ = self.recorder.journal.intent(call.number)
        if not intent.spends:
            return done
        given, bounds = call.params or {}, self.judge.bounds
        return replace(done, settles=settles(bounds, intent, given, done, again=again))

    def _taken(self, sends: _Sends, done: Completed) -> Completed | Failed:
        route, terms = sends.route, sends.terms
        done = terms.conceal(done)
        most = min(self.max_result, terms.max_result or self.max_result)
        if done.bytes > most:
            if route.over_limit == "cut":
                return route.shown(shortened(done, most))
            text = f"the answer has {done.bytes} bytes, of {most} allowed"
            return Failed(kind="too_large", sent="yes", message=text)
        return route.shown(done)

    def _stop(self, call: ToolCall, sent: Sent) -> None:
        """Close a call whose run is stopped, unless another host takes that over."""
        if not self.recorder.leaving:
            self._settle(call, _stopped(sent))

    def _settle(self, call: ToolCall, outcome: Outcome) -> Answered:
        """Queue the event that closes the call."""
        kept = self._kept(call, outcome)
        blobs = kept.contents if isinstance(kept, Completed) else None
        correct = self._corrections(call, outcome)
        self.recorder.queue(settled(call.number, kept), blobs=blobs, correct=correct)
        answer = Answered(outcome, self.recorder.log.recorded_at)
        if kept is not outcome:
            # As long as this host drives the run, its guest may be executed again.
            self.recorder.journal.hold(call.number, answer)
        return answer

    def _corrections(self, call: ToolCall, outcome: Outcome) -> Sequence[Correction]:
        if not isinstance(outcome, Completed) or not outcome.settles:
            return ()
        intent, at = self.recorder.journal.intent(call.number)
        spends = cast("dict[str, int]", intent.spends)
        age = self.judge.now() - at
        return [*corrections(self.judge.agent, spends, outcome.settles, age)]

    def _kept(self, call: ToolCall, outcome: Outcome) -> Outcome:
        route = self.judge.routes.get(call.name, NOWHERE)
        if route.record == "hash" and isinstance(outcome, Completed):
            return cut(outcome)
        return outcome


def checked(answer: Answered) -> Answered:
    """
    Return *answer*.

    Raises:
        RunStopped: It is that of the attempt that ended the run.
    """
    outcome = answer.outcome
    if isinstance(outcome, Denied) and outcome.code == "limit":
        raise RunStopped(str(outcome.rule).removeprefix("limits."), outcome.message)
    return answer


def _events(calls: Sequence[PendingCall]) -> list[Event]:
    return [event for one in calls for event in one.events]


def _unsent(calls: Sequence[PendingCall]) -> list[PendingCall]:
    """Return the new ones of *calls*, which the run's end keeps from being sent."""
    new: list[PendingCall] = []
    for one in calls:
        if one.judged:
            one.event = one.judged.unspent
            one.outcome = one.outcome or _stopped("no")
            new.append(one)
    return new


def _stopped(sent: Sent) -> Failed:
    """Return the outcome of a call whose run is stopped."""
    return Failed(
        kind="cancelled",
        sent=sent,
        message="the run was stopped before the tool answered",
    )
