"""A host with scripted tools, whose runs a second engine executes again."""

from __future__ import annotations

from typing import Any

from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import Recorded
from caxton_host.ports.sandbox import Sandbox
from caxton_host.runs.host import Host
from caxton_host.runs.run_request import ForkRequest, RunRequest
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.scene import rule

from .engine import Case

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
GRANT = Grant(allow=(rule("demo/*", "office/*"),))


class _Ticking(FakeClock):
    """A clock that moves whenever it is read."""

    def now(self) -> int:
        self.time += 1_000_003
        return self.time


class Scene:
    """A host with scripted tools, and its log."""

    def __init__(self, sandbox: Sandbox, **tools: Any) -> None:  # noqa: ANN401 -- an answer, or an error
        clock = _Ticking()
        self.store = MemoryStore(clock=clock, entropy=FakeEntropy())
        self.host = Host(
            store=self.store,
            tools=FakeTools(
                {
                    ("office" if "_" in name else "demo", name): one
                    for name, one in tools.items()
                }
            ),
            sandbox=sandbox,
            clock=clock,
            entropy=FakeEntropy(),
            telemetry=NoTelemetry(),
            servers=["demo", "office"],
        )

    async def run(self, module: bytes, **given: Any) -> Case:  # noqa: ANN401 -- by name
        """Run a module to its end, and return the case of that."""
        given = {"grant": GRANT, **given}
        request = RunRequest(agent="teller", module=module, actor=ANN, **given)
        self.run_id = await self.host.start(request)
        return await self.case()

    async def fork(self, seq: int, **given: Any) -> Case:  # noqa: ANN401 -- by name
        given = {"grant": GRANT, **given}
        before = await self.read()
        request = ForkRequest(run_id=self.run_id, seq=seq, actor=ANN, **given)
        self.run_id = await self.host.fork(request)
        return Case.of([*before, *await self.read()], self.store.blobs)

    async def read(self) -> list[Recorded]:
        return await self.store.reader.read(f"run/{self.run_id}")

    async def case(self) -> Case:
        return Case.of(await self.read(), self.store.blobs)
