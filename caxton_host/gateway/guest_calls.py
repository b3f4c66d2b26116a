"""
The host's side of a guest's host functions.

Decodes a guest's bytes, of any quality, into a `ToolCall`, and encodes the answer of
the gateway into the bytes that the guest gets. Live and replayed runs share this code,
so a guest cannot tell them apart (law 5).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from ..core.calls import JSON, OK, Completed, Outcome, ToolCall, reply
from ..core.grants.approvals import Unapproved
from ..core.grants.decisions import may_ever
from ..core.grants.freezes import Halted
from ..core.grants.journal import Answered
from ..core.limits import Limits
from ..core.log.events import LogWritten
from ..core.names import clean_name
from ..errors import BadBytes, RunStopped, Suspend
from ..lib import codec
from ..ports.sandbox import Answer
from ..ports.watch import RunSpan, Served, Span
from .gateway import Gateway, PendingCall, checked

#: Watches a call, or does nothing.
Watch: TypeAlias = AbstractContextManager[Span | None]

LEVELS = ("debug", "info", "warning", "error")

#: The name under which a batch is recorded if none of its items can be decoded. No tool
#: can have it.
BATCH = "mcp_call_many()"
#: Bytes of all answers of a batch: a frame to a worker is bounded.
MAX_REPLIES = 32 * 1024 * 1024

#: Bytes of parameters of a batch item after which other tasks of the loop run first.
_LONG = 4096

_NAME = re.compile(rb"[a-zA-Z0-9_-]{1,64}")
#: Bytes that an empty log line counts towards the limit on logs.
_LINE_COST = 16


@dataclass(slots=True, kw_only=True)
class GuestCalls:
    """
    The host functions of one execution of a guest; see `ports.Door`.

    Attributes:
        gateway: Where its calls go.

        limits: The bounds of the run.

        span: Watches each call that is made now.

        served: Where the answers of some calls come from. These calls get a span even
            if the log answers them.

        compare_lines: Whether log lines are compared with the recorded ones.

        seeds: The seed of ``random()`` after that many calls; see `Guest`.

        calls: How many calls the guest has made: the number of the newest.

        seeded: How many calls the seeds that were handed out are of.

        lines: How many log lines the guest has written.

        recorded: Bytes that its calls and answers take in the log, which is bounded.

        logged: Bytes that its log lines take, which is bounded as well.
    """

    gateway: Gateway
    limits: Limits
    span: RunSpan
    served: Mapping[int, Served] = field(default_factory=dict[int, Served])
    compare_lines: bool = False
    seeds: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    calls: int = 0
    seeded: int = 0
    lines: int = 0
    recorded: int = 0
    logged: int = 0

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Carry out one tool call; see `ports.Door`."""
        size, digest = _whole(params, self.limits.params)
        return await self._carry_out(self._tool_call(name, params, size, digest, fuel))

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Carry out a batch of tool calls; see `ports.Door`."""
        try:
            items = codec.split_batch(batch)
        except BadBytes as exc:
            return await self._carry_out(self._bad_batch(batch, fuel, str(exc)))
        calls: list[PendingCall] = []
        for name, params in items:
            calls.append(self.pending(name, params, fuel))
            if len(params) > _LONG:
                await asyncio.sleep(0)
        known = await self._finish(calls)
        self.recorded += sum(_apart(each.outcome) for each in known)
        data = codec.encode([reply(each.outcome)[1] for each in known])
        if len(data) > MAX_REPLIES:
            text = f"the answers of a batch have {len(data)} bytes, of {MAX_REPLIES}"
            raise RunStopped("result", f"{text} allowed")
        return self._answer(OK, data, max((each.at for each in known), default=0))

    def pending(self, name: bytes | None, params: bytes, fuel: int = 0) -> PendingCall:
        """Take the first step of a call whose bytes are whole; see `Gateway.recall`."""
        digest = codec.sha256(params)
        call = self._tool_call(name, params, len(params), digest, fuel)
        return self.gateway.recall(call)

    async def finish(self, one: PendingCall, watch: Watch) -> Answered | None:
        """Take the last steps of a call within its span; see `Gateway.finish`."""
        with watch as span:
            known = await self.gateway.finish(one)
            if known:
                self._note(span, one.call, known)
        return known

    async def _finish(self, calls: Sequence[PendingCall]) -> list[Answered]:
        """Record calls together, send them at the same time, and return the answers."""
        watches = [self.watch(one.call) for one in calls]
        try:
            await self.gateway.admit(calls)
        except Suspend as exc:
            waiting = exc.requests if isinstance(exc, Unapproved) else ()
            numbers = {exc.call, *(one.call for one in waiting)}
            for one, watch in zip(calls, watches, strict=True):
                if one.call.number in numbers:
                    # Its span ends with that exception.
                    with suppress(Suspend), watch:
                        raise
            raise

        suspended: dict[int, Suspend] = {}

        async def finish(one: PendingCall, watch: Watch) -> None:
            # One that is frozen, or whose run waits, lets the others end.
            try:
                await self.finish(one, watch)
            except Suspend as exc:
                suspended[one.call.number] = exc

        try:
            # First come, first served: each begins before a stop can reach it.
            async with asyncio.TaskGroup() as group:
                for one, watch in zip(calls, watches, strict=True):
                    group.create_task(finish(one, watch))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        _check(suspended)
        return [checked(one.answer) for one in calls if one.answer]

    async def _carry_out(self, call: ToolCall) -> Answer:
        with self.watch(call) as span:
            known = await self.gateway.call(call)
            self._note(span, call, known)
        self.recorded += _apart(known.outcome)
        status, body = reply(known.outcome)
        return self._answer(status, codec.encode(body), known.at)

    def _note(self, span: Span | None, call: ToolCall, known: Answered) -> None:
        """Tell the span of a call how that ended."""
        if span:
            routes, log = self.gateway.judge.routes, self.gateway.recorder.log
            span.settled(known.outcome, routes.get(call.name))
            span.stored(*log.head)

    def _answer(self, status: int, data: bytes, at: int) -> Answer:
        self.recorded += len(data)
        reached = [n for n in self.seeds if self.seeded < n <= self.calls]
        self.seeded = self.calls
        return Answer(status, data, at, self.seeds[max(reached)] if reached else b"")

    def watch(self, call: ToolCall) -> Watch:
        """Return what watches a call, if it is made now."""
        served = self.served.get(call.number)
        if served is None and self.gateway.recorder.journal.answers(call.number):
            return nullcontext()
        return self.span.call(call, self.gateway.judge.routes.get(call.name), served)

    def log(self, level: int, text: bytes) -> None:
        """Record a log line, until the run has written its share."""
        if self.logged > self.limits.log:
            return
        left = self.limits.log - self.logged
        self.logged += max(len(text), _LINE_COST)
        # Redacted before it is cut: half a secret would not be found.
        line = self.gateway.judge.redact.text(
            text[: 2 * self.limits.log].decode(errors="replace")
        )
        name = LEVELS[min(max(level, 0), len(LEVELS) - 1)]
        lines = [(name, line)]
        if self.logged > self.limits.log:
            # Only the line before that event is cut, so that a replay knows which.
            end = f"the run reached its limit log: {self.limits.log}"
            cut = line.encode()[:left].decode(errors="ignore")
            lines = [(name, cut), ("truncated", end)]
        self._write(lines)

    def _write(self, lines: list[tuple[str, str]]) -> None:
        recorder = self.gateway.recorder
        events: list[LogWritten] = []
        for level, text in lines:
            self.lines += 1
            if self.lines > recorder.journal.logged:
                events.append(LogWritten(n=self.lines, level=level, text=text))
            elif self.compare_lines:
                recorder.journal.recall_line(self.lines, level, text)
        if events:
            recorder.queue(*events)

    def _tool_call(
        self, name: bytes | None, params: bytes, size: int, digest: str, fuel: int
    ) -> ToolCall:
        self.calls += 1
        self.recorded += len(params)
        fault, decoded = "", None
        if name is None:
            fault = "an item of a batch is [name, params]"
        elif not _NAME.fullmatch(name):
            fault = "a tool name is 1 to 64 of a-z, A-Z, 0-9, _ and -"
            if exposed := self._exposed(name):
                fault += f"; that tool is called {exposed} here"
        elif size > self.limits.params:
            fault = f"params: {_beyond(size, self.limits.params)} by limits.params"
        else:
            try:
                decoded = codec.decode_map(params, limit=self.limits.params)
            except BadBytes as exc:
                fault = f"params: {exc}"
        return ToolCall(
            number=self.calls,
            name=clean_name(name or b""),
            params=decoded,
            digest=digest,
            fuel=fuel,
            size=size,
            fault=fault,
            over=self._over(),
        )

    def _exposed(self, name: bytes) -> str | None:
        """Return the exposed name of a granted tool that is named by its path."""
        judge = self.gateway.judge
        for exposed, route in judge.routes.items():
            path = f"{route.server}/{route.tool}"
            if path.encode() == name and all(
                may_ever(bound.grant, route) for bound in judge.bounds
            ):
                return exposed
        return None

    def _bad_batch(self, batch: bytes, fuel: int, fault: str) -> ToolCall:
        """Return the one attempt that records a batch that cannot be decoded."""
        self.calls += 1
        self.recorded += len(batch)
        size, digest = _whole(batch, codec.BATCH_BYTES)
        if size > codec.BATCH_BYTES:
            fault = _beyond(size, codec.BATCH_BYTES)
        return ToolCall(
            number=self.calls,
            name=BATCH,
            params=None,
            digest=digest,
            fuel=fuel,
            fault=f"batch: {fault}",
            over=self._over(),
        )

    def _over(self) -> str:
        if self.calls > self.limits.total_calls:
            return "total_calls"
        return "recorded" if self.recorded > self.limits.recorded else ""


def _check(suspended: Mapping[int, Suspend]) -> None:
    """
    Return if no call of a batch suspends the run.

    Raises:
        Suspend: One does.
    """
    if halted := [exc for exc in suspended.values() if isinstance(exc, Halted)]:
        raise halted[0].with_others(halted)
    if suspended:
        raise suspended[min(suspended)]


def _apart(outcome: Outcome) -> int:
    """Return how many bytes of an answer are stored as blobs beside it."""
    if not isinstance(outcome, Completed):
        return 0
    sizes = (blob.get("bytes") for blob in outcome.blobs)
    return sum(size for size in sizes if isinstance(size, int))


def _whole(data: bytes, limit: int) -> tuple[int, str]:
    """Return size and digest of a guest's bytes; see `ports.Door.call`."""
    if len(data) <= limit:
        return len(data), codec.sha256(data)
    return int.from_bytes(data[-40:-32]), data[-32:].hex()


def _beyond(size: int, limit: int) -> str:
    return f"{size} bytes, of {limit} allowed"


def output_value(raw: bytes | None, limits: Limits) -> tuple[JSON, str]:
    """
    Return the output of a guest, ``None`` by default, and the digest of its bytes.

    Raises:
        BadBytes: See `codec.decode`.
    """
    data = codec.encode(None) if raw is None else raw
    value = codec.decode(data, limit=limits.output, nodes=codec.RESULT_NODES)
    return value, codec.sha256(data)
