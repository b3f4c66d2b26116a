"""
Batches: several calls of one host function.

The five steps of `gateway`, each for the whole batch before the next one begins:
all are recalled, all are decided in order, all intents are one append, and then
those that are allowed are sent at the same time. Each outcome is recorded as it
comes. A crash leaves all of a batch or nothing, and the order in which the tools
answered is no source of differences. If people have to approve some of them, they are
asked about these together, and nothing is recorded of the others before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from ..core.calls import JSON, Outcome, ToolCall
from ..core.grants.approvals import Unapproved
from ..core.grants.call_terms import Terms
from ..core.grants.journal import Answered, Fresh, InDoubt, Recall
from ..core.log.events import (
    ApprovalRequested,
    Event,
    ToolInvoked,
    ToolRetried,
    settled,
)
from ..errors import Suspend
from ..ports import Refused, Reservation, Span
from .call_budgets import Judged, Out, Want
from .gateway import Gateway, checked, stopped

#: Watches a call, or does nothing.
Watch: TypeAlias = AbstractContextManager[Span | None]


@dataclass(frozen=True, slots=True)
class _Step:
    """
    What is next for a call.

    Attributes:
        event: Its intent, or a further attempt.

        terms: How it is carried out.

        outcome: How it ends without being sent, or ``None`` if it is to be sent.

        judged: What the grants say of it, if it is new.

        out: What the store has refused of it.
    """

    call: ToolCall
    event: ToolInvoked | ToolRetried
    terms: Terms
    outcome: Outcome | None = None
    judged: Judged | None = None
    out: Out = field(default_factory=Out)

    @property
    def attempt(self) -> int:
        return self.event.attempt if isinstance(self.event, ToolRetried) else 1

    @property
    def events(self) -> tuple[Event, ...]:
        if self.outcome is None:
            return (self.event,)
        return self.event, settled(self.call.number, self.outcome)

    @property
    def wants(self) -> Sequence[tuple[Want, Reservation]]:
        """What it takes of budgets, if it is to be sent for the first time."""
        if self.judged is None or self.outcome:
            return ()
        return [*zip(self.judged.wants, self.judged.reserve, strict=True)]

    def unsent(self, outcome: Outcome) -> _Step:
        """Return the same for a call that is not sent after all."""
        event = self.judged.unspent if self.judged else self.event
        return replace(self, event=event, outcome=self.outcome or outcome)


@dataclass(frozen=True, slots=True)
class _Item:
    """A call, its parameters as the log holds them, and what the log knows."""

    call: ToolCall
    params: dict[str, JSON] | None
    known: Recall
    watch: Watch
    out: Out = field(default_factory=Out)


class Batch:
    """
    Some calls of one run, with consecutive numbers.

    Args:
        gateway: Of the run.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._journal = gateway.journal
        self._before = (
            gateway.journal.tally.copy(),
            gateway.journal.tally_today.copy(),
        )
        self._items: list[_Item] = []
        #: What is known, by the number of the call.
        self._answers: dict[int, Answered] = {}
        #: Attempts that are durable and have not begun, by the same.
        self._waiting: dict[int, _Step] = {}

    def add(self, call: ToolCall, watch: Watch) -> None:
        """
        Add a call, and recall it.

        Args:
            call: The next one.

            watch: Entered when its turn to be sent comes.

        Raises:
            NondeterminismError: The log holds another call at this position.
        """
        params = self._gateway.redact.value(call.params)
        known = self._journal.recall(call, params)
        self._items.append(_Item(call, params, known, watch))

    async def carry_out(self) -> list[Answered]:
        """
        Carry out the calls and return what the agent is to see, in their order.

        Raises:
            RunStopped: One of the calls is more than the run may attempt. None was
                sent, all are recorded.

            StoreError: An event could not be stored. If it was an intent, nothing
                was sent.

            Suspend: One of the calls was sent before a crash, and may not be
                repeated; or has to be approved. Nothing was sent.
        """
        try:
            while not await self._record(self._decided()):
                pass
        except Suspend as exc:
            self._tell(exc)
            raise
        await self._send()
        for answer in self._answers.values():
            checked(answer)
        return [self._answers[item.call.number] for item in self._items]

    def _tell(self, why: Suspend) -> None:
        """Tell who watches the calls that the run waits for of that."""
        requests = why.requests if isinstance(why, Unapproved) else ()
        calls = {why.call, *(one.call for one in requests)}
        for item in self._items:
            if item.call.number in calls:
                with suppress(Suspend), item.watch:
                    raise why

    def _decided(self) -> list[_Step]:
        """Return the next step of each call that is not answered."""
        gateway = self._gateway
        steps: list[_Step] = []
        requests: list[ApprovalRequested] = []
        for item in self._items:
            call = item.call
            match item.known:
                case Answered():
                    self._answers[call.number] = item.known
                case InDoubt():
                    retry = gateway.retry(call, item.known)
                    steps.append(_Step(call, retry, gateway.terms_of(item.known)))
                case Fresh():
                    judged = gateway.judge(call, item.params, item.out)
                    # At once: the next one is to see what this one spends.
                    self._journal.apply(judged.intent, gateway.log.recorded_at)
                    if judged.asks:
                        requests.append(judged.asks)
                    steps.append(
                        _Step(
                            call,
                            judged.intent,
                            judged.terms,
                            judged.denied,
                            judged,
                            item.out,
                        )
                    )
                case _:
                    assert_never(item.known)
        if any(step.call.over for step in steps):
            # What is in doubt stays so: it was sent once.
            return [step.unsent(stopped("no")) for step in steps if step.attempt == 1]
        if requests:
            self._journal.tally, self._journal.tally_today = self._before
            for step in steps:
                self._journal.forget(step.call.number)
            raise gateway.unapproved(requests)
        return steps

    async def _record(self, steps: Sequence[_Step]) -> bool:
        """
        Store *steps* in one transaction: durable, if one of them is to be sent.

        Returns false if the store refuses what they spend: they have to be judged anew.
        """
        events = [event for step in steps for event in step.events]
        if all(step.outcome for step in steps):
            if events:
                self._gateway.log.queue(*events)
        else:
            wants = [(step, *want) for step in steps for want in step.wants]
            reserve = [reservation for _, _, reservation in wants]
            try:
                refused = await self._gateway.log.append(*events, reserve=reserve)
            except Exception:
                raise
            except BaseException:
                # The run is stopped while the log, which has them, commits them.
                self._note(steps)
                for step in self._waiting.values():
                    if step.attempt == 1:  # or it stays in doubt
                        self._gateway.stop(step.call, "no")
                raise
            if refused:
                await self._refused(steps, wants, refused)
                return False
        self._note(steps)
        return True

    def _note(self, steps: Sequence[_Step]) -> None:
        """Take in what is stored now."""
        at = self._gateway.log.recorded_at
        for step in steps:
            number = step.call.number
            if step.attempt > 1:
                self._journal.apply(step.event, at)
            if step.outcome:
                self._journal.apply(settled(number, step.outcome), at)
                self._answers[number] = Answered(step.outcome, at)
            else:
                self._waiting[number] = step

    async def _refused(
        self,
        steps: Sequence[_Step],
        wants: Sequence[tuple[_Step, Want, Reservation]],
        refused: Refused,
    ) -> None:
        """
        Take note of what has no room, and wait if that is what its rule wants.

        Args:
            steps: None of them is stored.

            wants: What they take of budgets.

            refused: Which of these has no room.
        """
        tally, tally_today = self._before
        self._journal.tally = tally.copy()
        self._journal.tally_today = tally_today.copy()
        step, want, asked = wants[refused.index]
        alike = [one for one in wants if one[2].key == asked.key]
        ahead = alike.index(wants[refused.index])
        # All of a batch is sent at once: it never waits for room that it takes itself.
        if sum(one[2].amount for one in alike[: ahead + 1]) <= asked.limit and (
            pause := step.out.take(want, refused)
        ):
            await self._pause(steps, pause)
            return
        for step, want, other in alike[ahead:]:
            # What comes behind it and takes as much has no room either.
            if other.amount >= asked.amount:
                step.out.refuse(want, refused)

    async def _pause(self, steps: Sequence[_Step], seconds: float) -> None:
        try:
            await self._gateway.wait(seconds)
        except BaseException:
            if not self._journal.leaving:
                stop = [step.unsent(stopped("no")) for step in steps if step.judged]
                events = [event for step in stop for event in step.events]
                self._gateway.log.queue(*events)
                self._note(stop)
            raise

    async def _send(self) -> None:
        """Send at the same time what is to be sent, and record what comes."""
        try:
            # First come, first served: each begins before a stop can reach it.
            async with asyncio.TaskGroup() as group:
                for item in self._items:
                    group.create_task(self._one(item.call, item.watch))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _one(self, call: ToolCall, watch: Watch) -> None:
        gateway, number = self._gateway, call.number
        with watch as span:
            if step := self._waiting.pop(number, None):
                outcome = await gateway.forward(call, step.attempt, step.terms)
                self._answers[number] = gateway.settle(call, outcome)
            if span and (known := self._answers.get(number)):
                span.settled(known.outcome, gateway.routes.get(call.name))
                span.stored(*gateway.log.head)
