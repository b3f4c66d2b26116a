"""
The gateway: the only way from an agent to a tool.

    agent -> mcp_call (sandbox) -> Gateway.call -> ToolClient (mcp, webhooks)

Each call takes the same five steps, in this order:

1. *Recall.* A call that the log already answers is answered from the log.
2. *Decide.* `judge` compares the call with the grants. No grant, no call.
3. *Record the intent.* `ToolInvoked` is durable before a byte leaves the host:
   a crash can leave a call in doubt, but never unrecorded.
4. *Forward.* The tool client talks to the tool server, if the lease still lasts.
5. *Record the outcome.* The agent sees what the log holds, and nothing else; but
   where the operator wants it so, the log holds the digest of what the agent sees.

The outcome is queued, not awaited: the agent can touch nothing before its next
call, and that call's intent commits both (output commit; see Elnozahy et al.,
"A survey of rollback-recovery protocols", section 2.4).

Several calls at once take the same steps: see `batch`.

Replay needs no code of its own: the journal is full, so step 1 answers, and the
log and the tools it is given refuse everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import assert_never

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
from ..core.grants.journal import Answered, Fresh, InDoubt
from ..core.limits import Limits
from ..core.log.events import Event, ToolProgress, ToolRetried, settled
from ..core.names import idempotency_key
from ..errors import FailureKind, LeaseLost, RunStopped, Sent, StoreError, ToolError
from ..ports import Asker, EventLog, ToolClient, ToolRequest
from .call_budgets import Judged, Out
from .judge import NOWHERE, Judge
from .progress import Reports, unwatched

#: Failures in whose words may be some of the answer, and what is said instead.
_UNTOLD: Mapping[FailureKind, str] = {
    "protocol": "the server refused the call",
    "invalid_result": "the answer is not what the tool promises",
}


async def _at_once(_: float) -> None:
    """Wait no time at all."""


@dataclass(slots=True)
class _Sends:
    """
    How often a call was sent, for any reason.

    Attributes:
        began: When it was first sent by this process, in microseconds since 1970.

        sent: Whether any of the sends that are over may have reached the server.

        queued: The next one waits for its turn.
    """

    attempt: int
    began: int
    sent: Sent
    queued: bool = False

    def counted(self, done: Completed, now: int) -> Completed:
        """Return an answer with the number and the duration of all attempts."""
        if self.attempt == 1:
            return done
        took = max(now - self.began, done.duration_us)
        return replace(done, attempts=self.attempt, duration_us=took)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway(Judge):
    """
    Mediates every tool call of one run.

    Attributes:
        log: Where events are stored. The run is its only writer, and its journal is
            kept in step with it.

        tools: Where permitted calls go.

        max_result: Bytes of the largest answer that the run takes.

        wait: Lets so many seconds pass before a call is sent again.

        watch: Called with what is told of a call while it lasts.
    """

    log: EventLog
    tools: ToolClient
    max_result: int = field(default_factory=lambda: Limits().result)
    wait: Callable[[float], Awaitable[None]] = _at_once
    watch: Callable[[ToolProgress], None] = unwatched

    async def call(self, call: ToolCall) -> Answered:
        """
        Carry out *call* and return what the agent is to see.

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
                a person has to approve it first, and nothing was sent.
        """
        params = self.redact.value(call.params)
        known = self.journal.recall(call, params)
        match known:
            case Answered():
                return checked(known)
            case Fresh():
                terms = await self._record_intent(call, params)
                if isinstance(terms, Answered):
                    return checked(terms)
                return self.settle(call, await self.forward(call, 1, terms))
            case InDoubt():
                retry = self.retry(call, known)
                self.journal.apply(retry, self.log.recorded_at)
                await self.log.append(retry)
                terms = self.terms_of(known)
                return self.settle(call, await self.forward(call, retry.attempt, terms))
            case _:
                assert_never(known)

    async def _record_intent(
        self, call: ToolCall, params: dict[str, JSON] | None
    ) -> Answered | Terms:
        """Make the intent durable and return its terms, or why the call is denied."""
        out = Out()
        while True:
            judged = self.judge(call, params, out)
            if judged.asks:
                raise self.unapproved([judged.asks])
            if judged.denied:
                return self.settle(call, judged.denied, judged.intent)
            try:
                refused = await self.log.append(judged.intent, reserve=judged.reserve)
            except Exception:
                raise
            except BaseException:
                # The run is stopped while the log, which has the intent, commits it.
                self.journal.apply(judged.intent, self.log.recorded_at)
                self.stop(call, "no")
                raise
            if refused is None:
                self.journal.apply(judged.intent, self.log.recorded_at)
                return judged.terms
            if pause := out.take(judged.wants[refused.index], refused):
                await self._pause(call, judged, pause)

    async def _pause(self, call: ToolCall, judged: Judged, seconds: float) -> None:
        try:
            await self.wait(seconds)
        except BaseException:
            # The run is stopped while the call, which is not recorded yet, waits.
            self.stop(call, "no", judged.unspent)
            raise

    async def forward(
        self, call: ToolCall, attempt: int, terms: Terms
    ) -> Completed | Failed:
        """
        Send a call whose intent, or whose retry, is durable; return the outcome.

        It is sent again as often as its route says. Each time is recorded first.
        """
        route = self.routes[call.name]
        sends = _Sends(attempt, self.now(), "no" if attempt == 1 else "unknown")
        for tries in count(1):
            try:
                done = await self._send(call, route, sends, terms)
            except ToolError as exc:
                sends.sent = sent = likelier(sends.sent, exc.sent)
                if not route.retry.again(route.effect, exc.kind, sent, sends=tries):
                    return self._failed(route, exc, sent, terms)
            else:
                return self._taken(route, sends.counted(done, self.now()), terms)
            await self._send_again(call, route, sends, tries)
        raise AssertionError  # pragma: no cover -- the loop returns or raises

    async def _send(
        self, call: ToolCall, route: Route, sends: _Sends, terms: Terms
    ) -> Completed:
        quiet = _is_quiet(route, terms)
        reports = Reports(
            log=self.log,
            redact=self.redact,
            call=call.number,
            watch=self.watch,
            quiet=quiet,
        )
        self._check_lease(call)

        @contextmanager
        def queued() -> Generator[None]:
            sends.queued = True
            yield  # If its turn never comes, it stays so.
            sends.queued = False
            self._check_lease(call)

        async def asked_for() -> None:
            await self._record_send(call, sends, "input")
            self._check_lease(call)

        request = ToolRequest(
            run_id=self.run_id,
            call=call.number,
            server=route.server,
            tool=route.tool,
            params=call.params or {},
            definition_sha256=route.definition_sha256,
            idempotency_key=idempotency_key(self.run_id, call.number),
            attempt=sends.attempt,
            timeout=terms.timeout,
            quiet=quiet,
            guessed=route.guessed,
            asker=self._asker(call) if route.effect == "read" else None,
            on_progress=reports.take,
            queued=queued,
            on_resend=asked_for,
        )
        try:
            return await self.tools.call_tool(request)
        except (ToolError, StoreError):
            raise
        except BaseException:
            # The run is stopped while the tool works: closed, so that an open
            # call means one thing only, and its effect is left open if it was sent.
            self.stop(call, sends.sent if sends.queued else "unknown")
            raise
        finally:
            reports.end()

    def _asker(self, call: ToolCall) -> Asker:
        today = self.journal.today
        return Asker(
            agent=self.agent,
            grants=(self.grant,) if today is None else (self.grant, today),
            params_sha256=call.digest,
        )

    def _check_lease(self, call: ToolCall) -> None:
        if not self.log.holds():
            # Its intent stays open: who takes the run over finds it in doubt.
            raise LeaseLost(
                f"the lease of this host ran out before call {call.number} was sent",
                fix=f"caxton runs resume {self.run_id}, once no host drives it",
            )

    async def _send_again(
        self, call: ToolCall, route: Route, sends: _Sends, tries: int
    ) -> None:
        """Make durable that a call is sent once more, when its time has come."""
        key = idempotency_key(self.run_id, call.number)
        try:
            await self.wait(route.retry.pause(key, tries))
            await self._record_send(call, sends, "transport")
        except Exception:
            raise
        except BaseException:
            # The run is stopped between two sends: what is known is of the first.
            self.stop(call, sends.sent)
            raise

    async def _record_send(self, call: ToolCall, sends: _Sends, reason: str) -> None:
        sends.attempt += 1
        retry = ToolRetried(call=call.number, attempt=sends.attempt, reason=reason)
        await self.log.append(retry)
        self.journal.apply(retry, self.log.recorded_at)

    def _failed(self, route: Route, exc: ToolError, sent: Sent, terms: Terms) -> Failed:
        said = f"{exc}. To fix: {exc.fix}" if exc.fix else str(exc)
        text, code = self.redact.text(said), exc.code
        if _is_quiet(route, terms) and exc.kind in _UNTOLD:
            # Its words may be the answer, and so may its number.
            text, code = _UNTOLD[exc.kind], None
        return Failed(kind=exc.kind, sent=sent, message=text, code=code)

    def _taken(self, route: Route, done: Completed, terms: Terms) -> Completed | Failed:
        done = terms.conceal(done)
        most = min(self.max_result, terms.max_result or self.max_result)
        if done.bytes > most:
            if route.over_limit == "cut":
                return route.shown(shortened(done, most))
            text = f"the answer has {done.bytes} bytes, of {most} allowed"
            return Failed(kind="too_large", sent="yes", message=text)
        return route.shown(done)

    def stop(self, call: ToolCall, sent: Sent, *before: Event) -> None:
        """Close a call whose run is stopped, unless another host goes on with that."""
        if not self.journal.leaving:
            self.settle(call, stopped(sent), *before)

    def settle(self, call: ToolCall, outcome: Outcome, *before: Event) -> Answered:
        """Queue *before* and the event that closes the call."""
        kept = self._kept(call, outcome)
        events = (*before, settled(call.number, kept))
        blobs = kept.contents if isinstance(kept, Completed) else None
        self.log.queue(*events, blobs=blobs)
        at = self.log.recorded_at
        for event in events:
            self.journal.apply(event, at)
        answer = Answered(outcome, at)
        if kept is not outcome:
            # For as long as this host drives the run, its guest can start anew.
            self.journal.hold(call.number, answer)
        return answer

    def _kept(self, call: ToolCall, outcome: Outcome) -> Outcome:
        route = self.routes.get(call.name, NOWHERE)
        if route.record == "hash" and isinstance(outcome, Completed):
            return cut(outcome)
        return outcome


def _is_quiet(route: Route, terms: Terms) -> bool:
    """Return whether the words of the tool are not for the log as they are."""
    return route.record == "hash" or bool(terms.redact)


def stopped(sent: Sent) -> Failed:
    """Return the outcome of a call whose run is stopped."""
    return Failed(
        kind="cancelled",
        sent=sent,
        message="the run was stopped before the tool answered",
    )


def checked(answer: Answered) -> Answered:
    """Return *answer*, unless it is the attempt that ended the run."""
    outcome = answer.outcome
    if isinstance(outcome, Denied) and outcome.code == "limit":
        raise RunStopped(str(outcome.rule).removeprefix("limits."), outcome.message)
    return answer
