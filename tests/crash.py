"""What a crash leaves, and tools that remember what they did."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Self

from caxton_host.core.calls import Completed, Effect
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import (
    CallResolved,
    Event,
    Recorded,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports import RunScope, ToolRequest
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, offer

EFFECTS: dict[str, Effect] = {
    "look": "read",
    "set": "idempotent",
    "pay": "keyed",
    "send": "unsafe",
    "fail": "read",
}


def answer(request: ToolRequest) -> Completed:
    """Return what a tool of a `Ledger` says: always the same to the same."""
    said = codec.sha256(codec.canonical([request.tool, request.params]))[:8]
    return Completed(message=said, data=said)


@dataclass(slots=True)
class Ledger:
    """
    Tools of one server, one of each effect.

    Attributes:
        asked: What came, in order.

        effects: What repeating a call of each tool may do.
    """

    effects: dict[str, Effect] = field(default_factory=EFFECTS.copy)
    asked: list[ToolRequest] = field(default_factory=list[ToolRequest])

    def open(self, _scope: RunScope) -> nullcontext[Self]:
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        return Offered(
            offers=tuple(
                replace(offer("demo", tool), effect=effect)
                for tool, effect in self.effects.items()
                if "demo" in servers
            ),
            servers={name: {"transport": "fake"} for name in servers},
        )

    async def resources(self, _servers: Collection[str], _scope: RunScope) -> tuple[()]:
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.asked.append(request)
        if request.tool == "fail":
            raise ToolError("timeout", "unknown", "no answer in 5 s")
        return answer(request)


async def leave(
    history: Sequence[Recorded], commits: Sequence[int], store: MemoryStore
) -> None:
    """Put the transactions that end with the numbers *commits* into *store*."""
    clock = store._clock
    assert isinstance(clock, FakeClock)
    log, done = store.create(history[0].stream), 0
    for end in commits:
        group = history[done:end]
        clock.time = group[0].recorded_at
        await log.append(*(one.event for one in group if one.event))
        done = end


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call that was sent, and whose answer is not in the log."""

    invoked: ToolInvoked
    seq: int
    attempts: int
    resolved: bool


def doubts(history: Sequence[Recorded]) -> list[Doubt]:
    """Return the calls in doubt, found without the journal that is under test."""
    found: dict[int, Doubt] = {}
    for one in history:
        event: Event | None = one.event
        match event:
            case ToolInvoked():
                found[event.call] = Doubt(event, one.seq, 1, resolved=False)
            case ToolRetried():
                known = found[event.call]
                found[event.call] = Doubt(
                    known.invoked, known.seq, event.attempt, resolved=False
                )
            case CallResolved(verdict="retry"):
                known = found[event.call]
                found[event.call] = Doubt(
                    known.invoked, known.seq, known.attempts, resolved=True
                )
            case None:
                raise AssertionError
            case _:
                if end := outcome_of(event):
                    del found[end[0]]
    return list(found.values())
