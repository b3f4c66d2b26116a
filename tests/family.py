"""Agents on fakes that call one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from caxton_host.config import Agent, Config
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import Event, RunStarted
from caxton_host.core.names import called_run, idempotency_key
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.watch import Telemetry
from caxton_host.runs.agent_calls import CallingAgents
from caxton_host.runs.host import Host
from caxton_host.runs.modules import Library
from caxton_host.runs.recording import Recording
from caxton_host.runs.run_request import RunRequest
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeSandbox, FakeTools, Script

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


def allowing(*tools: str, **terms: object) -> Rule:
    patterns = tuple(map(Pattern.parse, tools))
    return Rule(id="allow[1]", tools=patterns, **terms)  # type: ignore[arg-type]


def grant(*rules: Rule | str) -> Grant:
    made = [allowing(one) if isinstance(one, str) else one for one in rules]
    return Grant(
        allow=tuple(replace(one, id=f"allow[{n}]") for n, one in enumerate(made, 1))
    )


def asking(tool: str, **params: JSON) -> Script:
    """Return a guest that makes one call and outputs what it is told."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        return output(await call(door, tool, **params))

    return script


async def call(door: Door, tool: str, **params: JSON) -> JSON:
    """Call *tool*, ``SERVER/TOOL``, and return the reply."""
    server, name = tool.split("/")
    answer = await door.call(f"mcp__{server}__{name}".encode(), codec.encode(params), 1)
    return codec.decode(answer.reply, limit=1 << 20)


def output(value: JSON) -> Ending:
    return Ending(kind="returned", code=0, output=codec.encode(value), fuel=1)


@dataclass(slots=True)
class Family:
    """
    A host with agents that may call one another.

    Attributes:
        scripts: What each agent does, by its name.
    """

    folder: Path
    scripts: Mapping[str, Script]
    grants: Mapping[str, Grant]
    answers: Mapping[tuple[str, str], JSON | ToolError | Completed] = field(
        default_factory=dict
    )
    telemetry: Telemetry = field(default_factory=NoTelemetry)
    store: MemoryStore = field(init=False)
    tools: FakeTools = field(init=False)
    config: Config = field(init=False)
    clock: FakeClock = field(default_factory=FakeClock)
    entropy: FakeEntropy = field(default_factory=FakeEntropy)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock, entropy=self.entropy)
        self.tools = FakeTools(self.answers)
        agents: dict[str, Agent] = {}
        for name in self.scripts:
            module = self.folder / f"{name}.wasm"
            module.write_bytes(b"\0asm" + name.encode())
            given = self.grants.get(name, Grant())
            agents[name] = Agent(name=name, module=module, grant=given)
        self.config = Config(store_url="", agents=agents)

    def agent(self, name: str, **changes: object) -> None:
        """Change the configuration of an agent."""
        one = replace(self.config.agents[name], **changes)  # type: ignore[arg-type]
        self.config = replace(self.config, agents={**self.config.agents, name: one})

    def host(self, number: int = 1) -> Host:
        """Return a host on the store of the family."""
        calling = CallingAgents(
            source=self.tools, config=lambda: self.config, library=Library()
        )
        calling.host = Host(
            store=self.store,
            tools=calling,
            sandbox=FakeSandbox(self.script),
            clock=self.clock,
            entropy=self.entropy,
            telemetry=self.telemetry,
            stream=f"host/{number}",
            servers=["demo", "agents"],
        )
        return calling.host

    async def script(self, door: Door, guest: Guest) -> Ending:
        """Do what the agent of the guest does."""
        return await self.scripts[guest.domain.removeprefix("replay/").split("/")[0]](
            door, guest
        )

    def request(self, name: str) -> RunRequest:
        """Return the request for a run of an agent."""
        agent = self.config.agents[name]
        return RunRequest(
            agent=name,
            module=Library().module(agent),
            actor=ANN,
            grant=agent.grant,
            limits=agent.limits,
        )

    async def run(self, name: str, host: Host | None = None) -> str:
        """Run an agent to its end or its suspension, and return the id of its run."""
        host = host or self.host()
        run_id = host.new_id()
        await host.start(self.request(name), run_id=run_id)
        return run_id

    async def resume(self, run_id: str, host: Host | None = None) -> None:
        """Resume a run under its agent's grant."""
        agent = (await self.started(run_id)).agent
        await (host or self.host(2)).resume(
            run_id, actor=ANN, grant=self.config.agents[agent].grant
        )

    async def recording(self, run_id: str) -> Recording:
        return await Recording.load(run_id, self.store.reader)

    async def events(self, run_id: str) -> list[Event]:
        found = await self.store.reader.read(f"run/{run_id}")
        return [one.event for one in found if one.event]

    async def types(self, run_id: str) -> list[str]:
        return [type(one).__name__ for one in await self.events(run_id)]

    async def started(self, run_id: str) -> RunStarted:
        first = (await self.events(run_id))[0]
        assert isinstance(first, RunStarted)
        return first


def child_of(run_id: str, number: int = 1) -> str:
    """Return the run that answers a call of an agent."""
    return called_run(run_id, idempotency_key(run_id, number))
