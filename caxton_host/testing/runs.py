"""One run of an agent in a test: its task, its execution and its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypedDict

from ..core.calls import JSON, reply
from ..core.grants.grants import Grant
from ..core.limits import Limits
from ..core.log.events import (
    Event,
    LogWritten,
    Recorded,
    RunCompleted,
    RunFailed,
    ToolInvoked,
    outcome_of,
)
from ..core.names import is_server_name
from ..core.text.redact import Redactor
from ..errors import UsageError
from ..ports import Sandbox, ToolSource
from .fakes import FakeClock, FakeEntropy

#: A module, or its file.
Module = Path | str | bytes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEED_BYTES = 32
#: Characters of a value in a message.
_MAX_SHOWN = 2000
_TESTER: dict[str, JSON] = {"kind": "test", "id": "test", "authenticated": False}


class Given(TypedDict, total=False):
    """The keyword arguments of a run; see `Task`."""

    input: JSON
    context: Mapping[str, JSON]
    entry: str
    seed: int
    now: datetime
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    The task of an agent in a test.

    Attributes:
        input: Its input.

        context: Its run variables.

        entry: The exported function to call; by default what the configuration or
            the cassette says, or else ``run``.

        seed: Of its random numbers.

        now: The time of its clock, which stands still, so that runs are the same.

        limits: Its bounds, or ``None`` for the usual ones.
    """

    input: JSON = None
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    entry: str | None = None
    seed: int = 0
    now: datetime = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    limits: Limits | None = None

    @property
    def micros(self) -> int:
        """
        The time in microseconds since 1970.

        Raises:
            UsageError: It is not a time since 1970, with a time zone.
        """
        if self.now.tzinfo is None or self.now < _EPOCH:
            raise UsageError(
                f"now is {self.now}, without a time zone or before 1970",
                fix="write for example datetime(2026, 11, 21, tzinfo=UTC)",
            )
        return (self.now - _EPOCH) // timedelta(microseconds=1)

    @property
    def seed_bytes(self) -> bytes:
        """
        The seed as the log holds it.

        Raises:
            UsageError: It does not fit.
        """
        try:
            return self.seed.to_bytes(_SEED_BYTES, "big")
        except OverflowError:
            raise UsageError(
                "the seed is negative, or has more than 256 bits",
                fix="use another number",
            ) from None


def name_of(module: Module) -> str:
    """Return the default name of an agent: that of its file."""
    stem = "" if isinstance(module, bytes) else Path(module).stem
    return stem if is_server_name(stem) else "agent"


def bytes_of(module: Module, limits: Limits | None) -> bytes:
    """
    Return the bytes of a module.

    Raises:
        UsageError: It cannot be read, or is too large.
    """
    if isinstance(module, bytes):
        return module
    limit = (limits or Limits()).module
    try:
        with Path(module).open("rb") as file:
            data = file.read(limit + 1)
    except OSError as exc:
        raise UsageError(
            f"cannot read the module {module}: {exc.strerror}",
            fix="build it first: caxton agent build",
        ) from None
    if len(data) > limit:
        raise UsageError(
            f"the module {module} is larger than {limit} bytes",
            fix="build a smaller one, or pass limits=Limits(module=...)",
        )
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """
    The run of an agent, as the log holds it.

    Attributes:
        status: ``completed``, or ``failed``: it trapped, returned an error or reached
            a limit.

        error: Of one that failed, why: ``trap: unreachable``. Else ``None``.

        output: Its output, or ``None``.

        calls: Name and parameters of each tool call, in order. Parameters that were
            no map are ``None``.

        replies: The reply to each: ``{"status", "message", "data"}``, and
            ``"error"`` if the status is not ``ok``.

        logs: Level and text of each of its log lines.
    """

    status: Literal["completed", "failed"]
    error: str | None
    output: JSON
    calls: list[tuple[str, dict[str, JSON] | None]]
    replies: list[dict[str, JSON]]
    logs: list[tuple[str, str]]


def run_of(events: Iterable[Event | None]) -> AgentRun:
    """Return the run with these *events*, which has ended by itself."""
    calls: dict[int, tuple[str, dict[str, JSON] | None]] = {}
    replies: dict[int, dict[str, JSON]] = {}
    logs: list[tuple[str, str]] = []
    output: JSON = None
    error: str | None = None
    for event in events:
        match event:
            case ToolInvoked():
                calls[event.call] = event.name, event.params
            case LogWritten():
                logs.append((event.level, event.text))
            case RunCompleted():
                output = event.output
            case RunFailed():
                error = f"{event.kind}: {event.message}"
            case _:
                if event and (end := outcome_of(event)):
                    replies[end[0]] = dict(reply(end[1])[1])
    return AgentRun(
        status="failed" if error else "completed",
        error=error,
        output=output,
        calls=[calls[number] for number in sorted(calls)],
        replies=[replies[number] for number in sorted(replies)],
        logs=logs,
    )


def shown(value: object) -> str:
    """Return a value for a message: escaped, and cut."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def plain(text: str) -> str:
    """Return a text for a message, escaped if it has control characters."""
    return text if text.isprintable() and len(text) <= _MAX_SHOWN else shown(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    The agent of a run, its tools and its grants.

    Attributes:
        agent: Its name.

        tools: Reaches the *servers*.

        names: Its own names for tools.
    """

    agent: str
    tools: ToolSource
    servers: Collection[str]
    grant: Grant
    names: Mapping[str, tuple[str, str]]
    redact: Redactor = field(default_factory=Redactor)


@dataclass(slots=True)
class _Entropy:
    """Entropy that gives a run its seed."""

    seed: bytes
    other: FakeEntropy = field(default_factory=FakeEntropy)

    def __call__(self, size: int) -> bytes:
        return self.seed if size == len(self.seed) else self.other(size)


async def live(
    sandbox: Sandbox, module: bytes, scene: Scene, task: Task
) -> tuple[Sequence[Recorded], Mapping[str, bytes]]:
    """
    Run an agent to its end, and return its log and what that keeps by digest.

    Raises:
        CaxtonError: As of `Host.start`.
    """
    from ..runs.host import Host  # noqa: PLC0415 -- 300 ms, with the store
    from ..runs.run_request import RunRequest  # noqa: PLC0415 -- 300 ms, with the store
    from ..store.memory import MemoryStore  # noqa: PLC0415 -- the same
    from ..telemetry import NoTelemetry  # noqa: PLC0415 -- the same

    clock = FakeClock(task.micros)
    store = MemoryStore(clock=clock, entropy=FakeEntropy())
    host = Host(
        store=store,
        tools=scene.tools,
        sandbox=sandbox,
        clock=clock,
        entropy=_Entropy(task.seed_bytes),
        telemetry=NoTelemetry(),
        servers=scene.servers,
        redact=scene.redact,
    )
    run_id = await host.start(
        RunRequest(
            agent=scene.agent,
            module=module,
            actor=_TESTER,
            entry=task.entry or "run",
            input=task.input,
            context=dict(task.context),
            limits=task.limits or Limits(),
            grant=scene.grant,
            names=scene.names,
        )
    )
    return await store.reader.read(f"run/{run_id}"), store.blobs
