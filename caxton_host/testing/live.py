"""One run through the real host, over a log in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.calls import JSON
from ..core.grants.grants import Grant
from ..core.limits import Limits
from ..core.log.events import Recorded
from ..core.text.redact import Redactor
from ..ports import Sandbox, ToolSource
from .fakes import FakeClock, FakeEntropy
from .task import Task

_TESTER: dict[str, JSON] = {"kind": "test", "id": "test", "authenticated": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    Where an agent runs.

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
    """Entropy of which a run gets its seed."""

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
