"""
Replay a cassette, with the recorded agent or with another one.

The first difference fails the test, and the message shows both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..core.calls import JSON
from ..core.limits import Limits
from ..core.log.diff import first_difference
from ..core.log.events import Event, RunCompleted, RunFailed, ToolInvoked
from ..core.text.redact import MASK, Redactor
from ..errors import BadBytes, Divergence, UnexpectedRun
from ..gateway.guest_calls import LEVELS
from ..lib import codec
from ..ports.sandbox import Answer, Door, Ending, Guest, Prepared, Sandbox
from ..runs.executor import end_of
from .cassette import ANEW, Cassette
from .fakes import FakeClock, FakeEntropy
from .runs import AgentRun, Task, plain, run_of, shown

_RUN = "cassette"
#: Characters that are shown on each side of a difference.
_AROUND = 200
_OTHERWISE = "in another order or encoding"


async def replayed(
    sandbox: Sandbox, module: bytes, cassette: Cassette, task: Task, name: str
) -> AgentRun:
    """
    Execute a module over a cassette, and return the run.

    Args:
        sandbox: Where it runs.

        module: Its bytes.

        cassette: The recorded run.

        task: The task of the test.

        name: The cassette's name in messages.

    Raises:
        UnexpectedRun: It differs, or was recorded with another task.

        UsageError: The module is refused.
    """
    from ..runs.replay import Options, replay  # noqa: PLC0415 -- 300 ms, with the store
    from ..store.memory import MemoryStore  # noqa: PLC0415 -- the same
    from ..telemetry import NoTelemetry  # noqa: PLC0415 -- the same

    _check_task(cassette, task, name)
    started = cassette.started
    if task.limits:
        started = replace(started, limits=task.limits.to_payload())
    store = MemoryStore(clock=FakeClock(cassette.now), entropy=FakeEntropy())
    log = store.create(f"run/{_RUN}")
    events = [started, *cassette.events]
    await log.append(*events, blobs=dict(cassette.definitions))
    witness = _Witness(sandbox)
    found = await replay(
        _RUN,
        store=store.reader,
        sandbox=witness,
        telemetry=NoTelemetry(),
        options=Options(against=module),
    )
    if found.divergence:
        limits = Limits.from_payload(started.limits)
        raise _unexpected(found.divergence, events, witness, limits, name)
    return replace(run_of(cassette.events), logs=witness.logs)


def _check_task(cassette: Cassette, task: Task, name: str) -> None:
    """Refuse a cassette that was recorded with another task."""
    started = cassette.started
    recorded: dict[str, JSON] = {
        "input": started.input,
        "context": {k: v for k, v in started.context.items() if k in task.context},
        "entry": started.entry,
        "seed": int(started.seed, 16),
        "now": cassette.now,
    }
    given: dict[str, JSON] = {
        "input": task.input,
        "context": dict(task.context),
        "entry": task.entry or started.entry,
        "seed": task.seed,
        "now": task.micros,
    }
    found = first_difference(recorded, given)
    # The values of redacted parts are not known here.
    if found and MASK not in str(found[1]):
        raise UnexpectedRun(
            f"{name} was recorded with another task: {compared(*found)}",
            fix=ANEW,
        )


@dataclass(slots=True)
class _Witness:
    """A sandbox that keeps the calls and log lines of its guest, and its end."""

    sandbox: Sandbox
    asked: list[tuple[str, JSON]] = field(default_factory=list[tuple[str, JSON]])
    logs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ending: Ending | None = None

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """Check and compile a module."""
        return await self.sandbox.prepare(module, limits, entry)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """Execute a guest."""
        self.ending = await self.sandbox.run(prepared, guest, _Tap(self, door))
        return self.ending

    def ended(self, limits: Limits) -> str:
        """Return how the agent ended, in words."""
        if self.ending is None:
            return "stopped by a limit"
        return _end(end_of(self.ending, limits, Redactor()))

    def ask(self, name: bytes | None, params: bytes) -> None:
        """Note a call, however bad its bytes."""
        try:
            value: JSON = codec.decode(params, limit=len(params))
        except BadBytes:
            value = None
        self.asked.append(((name or b"").decode(errors="replace"), value))


@dataclass(frozen=True, slots=True)
class _Tap:
    """A door that reports what passes it."""

    witness: _Witness
    door: Door

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Carry out one tool call."""
        self.witness.ask(name, params)
        return await self.door.call(name, params, fuel)

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Carry out a batch of tool calls."""
        try:
            items = codec.split_batch(batch)
        except BadBytes:
            items = [(None, batch)]
        for name, params in items:
            self.witness.ask(name, params)
        return await self.door.call_many(batch, fuel)

    def log(self, level: int, text: bytes) -> None:
        """Take a log line."""
        word = LEVELS[min(max(level, 0), len(LEVELS) - 1)]
        self.witness.logs.append((word, text.decode(errors="replace")))
        self.door.log(level, text)


def _unexpected(
    found: Divergence,
    events: Sequence[Event],
    witness: _Witness,
    limits: Limits,
    name: str,
) -> UnexpectedRun:
    """Return a divergence as the error of a test."""
    event, ended = events[found.seq - 1] if found.seq else None, witness.ended(limits)
    if isinstance(event, ToolInvoked):
        told = _of_call(found, event, witness.asked, ended)
    elif event:
        told = _of_end(found, event, ended)
    else:
        made = sum(isinstance(event, ToolInvoked) for event in events)
        where = f"call {made + 1} is one more than was recorded"
        told = _lines(where, "nothing", _asked(witness.asked[made]))
    return UnexpectedRun(
        f"the agent differs from {name}: {told}",
        fix=f"change the agent; or, if this is right, {ANEW}",
        divergence=found,
    )


def _of_call(
    found: Divergence,
    event: ToolInvoked,
    asked: Sequence[tuple[str, JSON]],
    ended: str,
) -> str:
    where, recorded = f"call {event.call}", _asked((event.name, event.params))
    if found.path == "$.name" and found.replayed is None:
        return _lines(f"{where} was not made", recorded, ended)
    if found.path == "$.name":
        return _lines(
            f"{where} is another one", recorded, _asked(asked[event.call - 1])
        )
    where += f", {event.name}"
    if found.path == "$.params_sha256":
        where += f", has the same parameters {_OTHERWISE}"
        now = shown(asked[event.call - 1][1])
        return _lines(where, shown(event.params), now)
    return compared(f"{where}, {found.path}", found.recorded, found.replayed)


def _of_end(found: Divergence, event: Event, ended: str) -> str:
    if found.path == "$.type":
        return _lines("the end is another one", _end(event), ended)
    if found.path == "$.output_sha256":
        where = f"the output has the same values {_OTHERWISE}"
        return _lines(where, _end(event), ended)
    return compared(f"the end, {found.path}", found.recorded, found.replayed)


def _asked(call: tuple[str, JSON]) -> str:
    return f"{plain(call[0])} {shown(call[1])}"


def _lines(where: str, recorded: str, now: str) -> str:
    return f"{plain(where)}\n  recorded: {recorded}\n  now:      {now}"


def compared(where: str, recorded: JSON, now: JSON) -> str:
    """Return two values for a message, below the place where they differ."""
    return _lines(where, *_apart(recorded, now))


def _apart(recorded: JSON, now: JSON) -> tuple[str, str]:
    """Return two values for a message; of long texts, where they differ first."""
    old, new = repr(recorded), repr(now)
    if max(len(old), len(new)) <= _AROUND * 2:
        return old, new
    pairs = enumerate(zip(old, new, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))
    start = max(at - _AROUND, 0)
    return _cut(old, start, at), _cut(new, start, at)


def _cut(text: str, start: int, at: int) -> str:
    before, after = "…" if start else "", "…" if len(text) > at + _AROUND else ""
    return f"{before}{text[start : at + _AROUND]}{after}"


def _end(event: Event) -> str:
    if isinstance(event, RunCompleted):
        return f"completed, with {shown(event.output)}"
    assert isinstance(event, RunFailed)  # noqa: S101 -- no other is in a cassette
    return f"failed, {event.kind}: {plain(event.message)}"
