"""A service on fakes, and who asks it for something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx

from caxton_host.app.maintenance import Maintenance, keeping_for
from caxton_host.app.verification import audit_document
from caxton_host.config import Agent, Config, Serve
from caxton_host.config.model import ContextVar, Expose
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal, Scope
from caxton_host.core.log.chain import Verdict
from caxton_host.core.log.checkpoint import Note
from caxton_host.lib.signing import Keyring
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.serving import TokenRow
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.admission import RunQueue
from caxton_host.service.resumer import Resumer
from caxton_host.service.run_service import Service, Submission
from caxton_host.service.run_tasks import RunTasks
from caxton_host.service.verifying import Verifying
from caxton_host.testing import FakeTools, Script
from caxton_host.web.app import Upkeep, application
from caxton_host.web.edge.authentication import Unauthenticated
from caxton_host.web.edge.listen import bind, listening
from tests.scene import ANSWERS, DEMO, Scene, ended, pack


def who(name: str, *scopes: Scope, agents: tuple[str, ...] = ("*",)) -> Principal:
    return Principal(
        kind="token", id=name, scopes=frozenset(scopes or ("run",)), agents=agents
    )


if TYPE_CHECKING:
    from caxton_host.store.sql import SqlStore

NEVER = 3600.0
#: What a request has to say that changes something.
JSON_SENT = {"content-type": "application/json"}

ANN, BOB = who("ann"), who("bob")
BOSS, EVE = who("boss", "admin"), who("eve", "read")


async def asking_once(door: Door, guest: Guest) -> Ending:
    del guest
    await door.call(b"mcp__demo__get_weather", pack(city="Oslo"), 1)
    return ended({"sky": "clear"})


class Slow(FakeTools):
    """Tools that answer when they are let."""

    def __init__(self) -> None:
        super().__init__(ANSWERS)
        self.let = asyncio.Event()
        self.reached = asyncio.Event()

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.reached.set()
        await self.let.wait()
        return await super().call_tool(request)


class Bundling(Maintenance):
    """What maintains a log in memory, which has no proofs."""

    async def bundle(self, run_id: str, since: Sequence[Note] = ()) -> bytes:
        del since
        return f"bundle of {run_id}".encode()

    async def sign(self) -> None:
        pass


@dataclass
class Office:
    """A service on fakes."""

    folder: Path
    script: Script = asking_once
    tools: FakeTools = field(default_factory=lambda: FakeTools(ANSWERS))
    grant: Grant = DEMO
    context: Mapping[str, ContextVar] = field(default_factory=dict)
    places: int = 8

    def __post_init__(self) -> None:
        module = self.folder / "weather.wasm"
        module.write_bytes(b"\0asm")
        self.scene = Scene(self.script, self.tools)
        agent = Agent(
            name="weather",
            module=module,
            grant=self.grant,
            description="Says what the sky is like.",
            expose=Expose(mcp=True, name="sky"),
        )
        self.config = Config(
            store_url="memory",
            agents={"weather": agent, "broken": Agent(name="broken")},
            context=self.context,
        )
        self.service = Service(
            host=self.scene.host,
            store=self.scene.store,
            config=lambda: self.config,
            background=RunTasks(
                line=RunQueue(
                    places=self.places,
                    queue=2,
                    each=10,
                    rate=600,
                    now=self.scene.clock.monotonic,
                ),
                under_way=self.scene.host.under_way,
            ),
        )
        host = replace(self.scene.host, watch=self.service.watchers.tell)
        self.service.host = self.service.placer.host = self.scene.host = host
        self.keeper = Bundling(
            store=cast("SqlStore", self.scene.store),
            keys=Keyring(self.folder / "state"),
            stream="",
            announced=(),
            actor={},
            redact=self.scene.redact,
        )
        self.upkeep = Upkeep(
            verifying=Verifying(look=self.verified, now=self.scene.clock.now),
            keeping=partial(keeping_for, self.keeper),
        )
        self.placing: asyncio.Task[None] | None = None

    async def verified(
        self, told: Callable[[int], None], *, full: bool
    ) -> dict[str, JSON]:
        """Find the log intact."""
        del full
        events = self.scene.store.events
        told(len(events))
        streams = len(self.scene.store.streams)
        return audit_document(Verdict(streams=streams, events=len(events), faults=()))

    async def start(
        self,
        principal: Principal = ANN,
        key: str | None = None,
        variables: Mapping[str, JSON] | None = None,
    ) -> str:
        if self.placing is None:
            for one in (ANN, BOB):
                scopes = tuple(sorted(one.scopes))
                row = TokenRow(
                    id=one.id, name=one.id, digest="", scopes=scopes, created_at=0
                )
                await self.scene.store.tokens.add(row, "host/0")
            self.placing = asyncio.create_task(self.service.placer.watch())
        wanted = Submission(agent="weather", key=key, variables=variables or {})
        return await self.service.submit(principal, wanted)

    async def done(self, run_id: str) -> str:
        await self.service.over(run_id)
        row = await self.scene.store.reader.row(run_id)
        assert row is not None
        return row.state

    async def types(self, run_id: str) -> list[str]:
        return [
            event.type for event in await self.scene.store.reader.read(f"run/{run_id}")
        ]


@asynccontextmanager
async def resuming(
    office: Office, every: float = NEVER, patience: float = NEVER
) -> AsyncGenerator[Resumer]:
    resumer = Resumer(service=office.service, every=every, patience=patience)
    office.service.decided = resumer.look
    office.service.background.suspended = resumer.look
    watch = asyncio.create_task(resumer.watch())
    await asyncio.sleep(0)
    try:
        yield resumer
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def until_found(resumer: Resumer) -> None:
    async with asyncio.timeout(20):
        while resumer._all or resumer._looking:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.001)


@dataclass(frozen=True)
class Names:
    """Knows who asks by a name instead of a token."""

    known: Mapping[str, Principal] = field(
        default_factory=lambda: {one.id: one for one in (ANN, BOB, BOSS, EVE)}
    )

    async def principal(self, authorization: str | None) -> Principal:
        scheme, _, name = (authorization or "").partition(" ")
        if scheme != "Bearer" or name not in self.known:
            raise Unauthenticated('Bearer realm="caxton"', "a token is required")
        return self.known[name]


def calling(
    office: Office,
    serve: Serve | None = None,
    scrape: Callable[[], tuple[str, bytes]] | None = None,
    ready: Callable[[], Awaitable[Mapping[str, JSON]]] | None = None,
    names: Names | None = None,
) -> httpx.AsyncClient:
    """Return a client of what the office serves, as ann."""
    app = application(
        office.service,
        names or Names(),
        serve or Serve(),
        scrape=scrape,
        ready=ready,
        upkeep=office.upkeep,
    )
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://127.0.0.1:8080",
        headers={"authorization": "Bearer ann", **JSON_SENT},
    )


@asynccontextmanager
async def on_a_port(
    office: Office, serve: Serve | None = None, who: str = "ann"
) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve on a port of this machine, and yield a client of it."""
    app = application(office.service, Names(), serve or Serve())
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        async with (
            listening(app, listener),
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                headers={"authorization": f"Bearer {who}", **JSON_SENT},
            ) as client,
        ):
            yield client
