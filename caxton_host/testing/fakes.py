"""Fakes of the ports, in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

from ..core.calls import JSON, Completed, Effect
from ..core.grants.tool_catalog import Offer, Offered
from ..core.limits import Limits
from ..core.names import exposed_name
from ..core.tools.contexts import ServerResource
from ..errors import ToolError
from ..lib import codec
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
