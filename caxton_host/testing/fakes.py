"""Fakes of the ports, in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeAlias

from ..core.calls import JSON, Completed, Effect
from ..core.grants.tool_catalog import Offer, Offered
from ..core.limits import Limits
from ..core.names import exposed_name
from ..core.tools.contexts import ServerResource
from ..errors import ToolError
from ..lib import codec
from ..placement.in_process import InProcess
from ..ports.placement import Job, Record
from ..ports.sandbox import Door, Ending, Guest, Prepared
from ..ports.tools import RunScope, ToolRequest

Script: TypeAlias = Callable[[Door, Guest], Awaitable[Ending]]


@dataclass(slots=True)
class FakeClock:
    """A clock that a test sets."""

    time: int = 1_700_000_000_000_000

    def now(self) -> int:
        """Return microseconds since 1970."""
        return self.time

    def monotonic(self) -> float:
        """Return seconds."""
        return self.time / 1e6


@dataclass(slots=True)
class FakeEntropy:
    """Bytes that look random, and are the same in each test."""

    drawn: int = 0

    def __call__(self, size: int) -> bytes:
        """Return *size* bytes, different on each call."""
        self.drawn += 1
        return hashlib.shake_256(str(self.drawn).encode()).digest(size)


_ANY: Mapping[str, JSON] = {"type": "object"}


def offer(
    server: str,
    tool: str,
    description: str = "",
    effect: Effect = "unsafe",
    input_schema: Mapping[str, JSON] = _ANY,
) -> Offer:
    """Return an offer of a tool, which takes any parameters by default."""
    schema = {**input_schema}
    definition = codec.canonical(
        {"name": tool, "description": description, "inputSchema": schema}
    )
    return Offer(
        server=server,
        tool=tool,
        exposed=exposed_name(server, tool),
        description=description,
        input_schema=schema,
        definition=definition,
        definition_sha256=codec.sha256(definition),
        effect=effect,
    )


_DOWN: dict[str, JSON] = {"problem": "there is no such program"}


@dataclass(slots=True)
class FakeTools:
    """
    Tools with scripted answers, keyed by ``(server, tool)``.

    An answer that is a `ToolError` is raised.

    Attributes:
        asked: The requests that came, in order.

        effects: Of tools whose effect is not ``unsafe``.

        hashed: Tools of whose answers the log keeps a digest.

        readable: The resources of servers.

        schemas: Of tools that do not take any parameters.

        keys: Tool to the parameter for the idempotency key.

        down: Servers that list no tools, and whose calls fail.
    """

    answers: Mapping[tuple[str, str], JSON | ToolError | Completed]
    asked: list[ToolRequest] = field(default_factory=list[ToolRequest])
    effects: Mapping[tuple[str, str], Effect] = field(
        default_factory=dict[tuple[str, str], Effect]
    )
    hashed: Collection[tuple[str, str]] = ()
    readable: Sequence[ServerResource] = ()
    schemas: Mapping[tuple[str, str], Mapping[str, JSON]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, JSON]]
    )
    keys: Mapping[tuple[str, str], str] = field(
        default_factory=dict[tuple[str, str], str]
    )
    down: Collection[str] = ()

    def open(self, scope: RunScope) -> nullcontext[Self]:
        """Return itself: it serves every run alike."""
        del scope
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        """Offer each tool that has an answer."""
        return Offered(
            offers=tuple(
                replace(
                    offer(
                        *key,
                        effect=self.effects.get(key, "unsafe"),
                        input_schema=self.schemas.get(key, _ANY),
                    ),
                    record="hash" if key in self.hashed else "full",
                    key_argument=self.keys.get(key),
                )
                for key in self.answers
                if key[0] in servers and key[0] not in self.down
            ),
            servers={
                name: {"transport": "fake", **(_DOWN if name in self.down else {})}
                for name in servers
            },
        )

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """Return the resources of *servers*."""
        del scope
        return [one for one in self.readable if one.server in servers]

    async def call_tool(self, request: ToolRequest) -> Completed:
        """Return the scripted answer."""
        self.asked.append(request)
        if request.server in self.down:
            raise ToolError("transport", "no", f"the server {request.server} is down")
        answer = self.answers[request.server, request.tool]
        if isinstance(answer, ToolError):
            raise answer
        if isinstance(answer, Completed):
            return answer
        return Completed(message=str(answer), data=answer)


@dataclass(slots=True)
class FakeSandbox:
    """A sandbox whose guest is a Python coroutine."""

    script: Script
    engine: str = "fake"
    guests: list[Guest] = field(default_factory=list[Guest])

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """Accept any bytes as a module."""
        del limits, entry
        digest = codec.sha256(module)
        return Prepared(sha256=digest, abi="core/1", engine=self.engine, key=digest)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """Run the coroutine."""
        del prepared
        self.guests.append(guest)
        return await self.script(door, guest)


#: What an engine does to a job that it gives out: it loses it, or gives it out again.
Fate: TypeAlias = Literal["lost", "doubled"]


def _kept(_job: Job) -> Fate | None:
    return None


@dataclass(slots=True, eq=False)
class FakePlacement:
    """
    One host's view of a queue that hosts share, in the memory of one process.

    Attributes:
        queue: The same for all hosts.

        fate: Returns what happens to a job that is given out, beside that.

        delay: Returns for how many seconds a job is on its way to the host.
    """

    queue: InProcess = field(default_factory=InProcess)
    fate: Callable[[Job], Fate | None] = _kept
    delay: Callable[[], float] = float
    shared: bool = True
    _claimed: set[str] = field(default_factory=set[str], init=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self.queue.is_empty

    def running(self) -> AbstractAsyncContextManager[None]:
        """Do nothing: the queue is that of this process."""
        return self.queue.running()

    async def submit(self, job: Job, record: Record | None = None) -> None:
        """Record a job, and put it into the queue."""
        await self.queue.submit(job, record)

    async def claim(self) -> Job:
        """Return the next job that is not lost, once there is one."""
        while True:
            job = await self.queue.claim()
            # As far as other hosts can tell, it is in nobody's hands.
            await self.queue.release(job)
            fate = self.fate(job)
            if fate == "lost":
                continue
            if fate == "doubled":
                await self.queue.submit(job)
            try:
                await asyncio.sleep(self.delay())
            except asyncio.CancelledError:
                await self.queue.submit(job)
                raise
            self._claimed.add(job.run_id)
            return job

    async def waiting(self, who: str) -> tuple[int, int]:
        """Return how many jobs wait, and how many of them are of that principal."""
        return self.queue.known(who)

    def known(self, who: str) -> tuple[int, int]:
        """Return the same."""
        return self.queue.known(who)

    async def missing(self, run_ids: Collection[str]) -> set[str]:
        """Return those of the runs that neither wait nor are claimed by this host."""
        return await self.queue.missing(run_ids) - self._claimed

    async def release(self, job: Job, *, again: bool = False) -> None:
        """Forget a job, or put it back."""
        self._claimed.discard(job.run_id)
        if again:
            await self.queue.submit(job)

    async def cancel(self, run_id: str) -> None:
        """Take a run out of the queue."""
        await self.queue.cancel(run_id)
