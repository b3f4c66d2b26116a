"""The studio that makes runs, with real host, log and sandbox, and scripted tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from caxton_host import __version__
from caxton_host.config import Agent, Config
from caxton_host.core.calls import JSON, Completed, Effect
from caxton_host.core.grants.approvals import Verdict
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    ApprovalRequested,
    Recorded,
    RunStarted,
    ToolInvoked,
)
from caxton_host.core.log.projection import summarise
from caxton_host.core.log.requests import Resolution
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import SandboxError, ToolError
from caxton_host.lib.machine import SystemClock
from caxton_host.ports.sandbox import Door, Ending, Guest, Prepared, Sandbox
from caxton_host.ports.tools import Progress, RunScope, ToolRequest
from caxton_host.runs.agent_calls import CallingAgents
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.freezing import FreezeWatch
from caxton_host.runs.host import Host
from caxton_host.runs.modules import Library
from caxton_host.runs.recording import Recording
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import ForkRequest, RunRequest, queued_as
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.copies import copy_cut
from caxton_host.store.sql import SqlStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import offer

from . import files

WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
EFFECTS: dict[str, Effect] = {
    "look": "read",
    "set": "idempotent",
    "pay": "keyed",
    "send": "unsafe",
}
_MIB = 1024 * 1024
_ALLOW = Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),), source="caxton.toml:9")
_DENY = Rule(id="deny[1]", tools=(Pattern.parse("demo/wipe"),))
GRANT = Grant(allow=(_ALLOW,), deny=(_DENY,))
_ANSWERS: dict[str, Completed | ToolError | Exception] = {
    "wrong": Completed(is_error=True, message="no such city", data={"code": 7}),
    "late": ToolError("timeout", "unknown", "no answer in 5 s"),
    "down": ToolError("transport", "no", "the server demo is down"),
    "changed": ToolError("changed", "no", "the tool is not the one that was shown"),
    "huge": Completed(message="huge", bytes=2 * _MIB),
    "breaks": RuntimeError("a fault of the host's own"),
    "count": Completed(
        message="7", data={"content": [], "structuredContent": {"tokens": 7}}
    ),
}


_SCHEMAS: Mapping[str, Mapping[str, JSON]] = {
    "strict": {"type": "object", "properties": {"n": {"maximum": 3}}}
}


@dataclass(slots=True)
class Tools:
    """Scripted tools; ``wait`` never answers."""

    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, _scope: RunScope) -> nullcontext[Self]:
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        names = [*EFFECTS, *_ANSWERS, "wipe", "wait", "tells", "strict", "asks"]
        return Offered(
            offers=tuple(
                offer(
                    "demo",
                    tool,
                    effect=EFFECTS.get(tool, "unsafe"),
                    input_schema=_SCHEMAS.get(tool, {"type": "object"}),
                )
                for tool in names
            ),
            servers={name: {"transport": "fake"} for name in servers},
        )

    async def resources(self, _servers: Collection[str], _scope: RunScope) -> tuple[()]:
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        if request.tool == "tells":
            for step in (1, 2):
                request.on_progress(Progress(progress=step, total=2, message="so far"))
        if request.tool == "wait":
            self.waiting.set()
            await asyncio.Event().wait()
        if request.tool == "asks":
            form: JSON = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
            asked: JSON = {"message": "Delete all?", "requestedSchema": form}
            await request.on_question("sure", asked, "client", 5.0)
        said = _ANSWERS.get(request.tool)
        if isinstance(said, Exception):
            raise said
        if said is not None:
            return said
        message = f"{request.tool} done"
        return Completed(message=message, data={"said": message, "n": [1, 2.5, None]})


@dataclass(slots=True)
class Deadly:
    """A sandbox whose workers die after the guest ends, or before it starts."""

    sandbox: Sandbox
    deaths: int = 99
    early: bool = False

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        return await self.sandbox.prepare(module, limits, entry)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        if self.early:
            raise SandboxError("the worker died")
        ending = await self.sandbox.run(prepared, guest, door)
        if self.deaths:
            self.deaths -= 1
            raise SandboxError("the worker died")
        return ending


@dataclass(slots=True)
class Other:
    """A sandbox that executes a different module than the one it is given."""

    sandbox: Sandbox
    module: bytes

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        del module
        return await self.sandbox.prepare(self.module, limits, entry)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        return await self.sandbox.run(prepared, guest, door)


@dataclass(slots=True, kw_only=True)
class Studio:
    """
    A host, and the one run it makes.

    Attributes:
        name: What the log will be called.

        called: The module of the agent ``called``, which the run may call, if any.
    """

    name: str
    folder: Path
    store: SqlStore
    sandbox: Sandbox
    database: Path
    tools: Tools = field(default_factory=Tools)
    run_id: str = ""
    called: bytes = b""

    @property
    def host(self) -> Host:
        module = self.folder / "called.wasm"
        module.write_bytes(self.called)
        agents = {"called": Agent(name="called", module=module, grant=GRANT)}
        config = Config(store_url="", agents=agents if self.called else {})
        calling = CallingAgents(
            source=self.tools, config=lambda: config, library=Library()
        )
        calling.host = Host(
            store=self.store,
            tools=calling,
            sandbox=self.sandbox,
            clock=SystemClock(),
            entropy=os.urandom,
            telemetry=NoTelemetry(),
            servers=["demo", "agents"],
            freezes=FreezeWatch(self.store.reader),
        )
        return calling.host

    async def start(
        self,
        module: bytes,
        *,
        queued: bool = False,
        **options: Any,  # noqa: ANN401 -- of a request
    ) -> None:
        """Run a module to its end, after it waited for a place if it was *queued*."""
        given = {"grant": GRANT, **options}
        request = RunRequest(agent="corpus", module=module, actor=WHO, **given)
        host = self.host
        await host.freezes.look()
        # Runs that it calls begin as well.
        self.run_id = host.new_id()
        if queued:
            event, blobs = queued_as(request, host.stream, host.redact)
            await self.store.enter(f"run/{self.run_id}", event, blobs=blobs)
            request = request.from_queue(event, {})
        await host.start(request, run_id=self.run_id, queued=queued)

    def _began(self, run_id: str) -> None:
        self.run_id = run_id

    async def resume(self, grant: Grant = GRANT, *, restored: bool = False) -> None:
        await self.host.resume(self.run_id, actor=WHO, grant=grant, restored=restored)

    async def fork(self, seq: int, **options: Any) -> None:  # noqa: ANN401 -- of a request
        """Fork the run after an event, and continue with the fork."""
        given = {"grant": GRANT, **options}
        request = ForkRequest(run_id=self.run_id, seq=seq, actor=WHO, **given)
        await self.host.fork(request, on_started=self._began)

    async def resolve(self, resolution: Resolution) -> None:
        """Resolve the call in doubt, which is the last one made."""
        seq = [e.seq for e in await self.history() if isinstance(e.event, ToolInvoked)]
        await self.host.resolve(
            self.run_id, seq[-1], resolution, actor=WHO, reason="I looked"
        )

    async def say(
        self, verdict: Verdict, *, seq: int | None = None, role: str = ""
    ) -> None:
        """Answer the approval request of a waiting call."""
        word = Word(verdict=verdict, actor=WHO, reason="I looked", role=role)
        await say(self.store, self.run_id, seq, word, now=SystemClock().now())

    async def questions(self) -> list[int]:
        """Return the request events of the waiting calls."""
        return [
            one.seq
            for one in await self.history()
            if isinstance(one.event, ApprovalRequested)
        ]

    async def history(self) -> list[Recorded]:
        return await self.store.reader.read(f"run/{self.run_id}")

    @asynccontextmanager
    async def crashed(self, call: int, *, later: int = 0) -> AsyncGenerator[Studio]:
        """Resume from a crash a number of events after the intent of *call*."""
        history = await self.history()
        (end,) = [
            one.seq
            for one in history
            if isinstance(one.event, ToolInvoked) and one.event.call == call
        ]
        target = self.folder / f"{self.name}-crashed.db"
        left = (await Recording.load(self.run_id, self.store.reader)).until(end + later)
        await copy_cut(self.store.reader, left, target)
        async with opened(target) as store:
            yield replace(self, store=store, database=target)

    async def keep(self) -> None:
        """Write the log of the run to the corpus."""
        history = await self.history()
        begun = (one.event for one in history)
        started = next(one for one in begun if isinstance(one, RunStarted))
        found = await replay(
            self.run_id,
            store=self.store.reader,
            sandbox=self.sandbox,
            telemetry=NoTelemetry(),
        )
        about = {
            "run_id": self.run_id,
            "version": __version__,
            "engine": started.engine,
            "verdict": found.verdict,
            "summary": summarise(self.run_id, history).to_document(),
        }
        recording = await Recording.load(self.run_id, self.store.reader)
        runs = [*(one.run_id for one in recording.lineage), self.run_id]
        family = self.called and await self.store.reader.runs(9)
        runs += [row.run_id for row in family or () if row.run_id not in runs]
        files.write(self.name, about, self.database, runs)


def opened(database: Path) -> SqlStore:
    """Return the store in the given file."""
    return SqlStore.open(
        f"sqlite:///{database}", clock=SystemClock(), entropy=os.urandom
    )


@asynccontextmanager
async def studio(name: str, folder: Path) -> AsyncGenerator[Studio]:
    """Set up the studio for one log."""
    database = folder / f"{name}.db"
    async with (
        opened(database) as store,
        WasmSandbox(folder / "cache", b"k" * 32) as sandbox,
    ):
        yield Studio(
            name=name, folder=folder, store=store, sandbox=sandbox, database=database
        )
