"""A client of a session, which asks one host after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from caxton_host.core.calls import Completed, Denied, Failed
from caxton_host.core.clients import Client
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import outcome_of
from caxton_host.errors import CaxtonError, Suspend
from caxton_host.service.sessions import Connection, Sessions

from .agents import SESSION
from .loop import Process
from .world import World

_TOOLS = ("look", "set", "pay", "send", "send", "buy", "fail", "nothing")
#: Calls of a client at most, and virtual seconds for which it waits for an answer.
_CALLS, _PATIENCE = 8, 3.0
ANN = Connection(
    who=Principal(kind="token", id="ann", scopes=frozenset(), sessions=(SESSION,)),
    session=SESSION,
    client=Client(name="a client"),
)


class Serving(Protocol):
    """
    A host that serves sessions.

    Attributes:
        alive: Whether it is.

        sessions: What it serves.
    """

    alive: bool
    sessions: Sessions


@dataclass(slots=True)
class Visitor:
    """
    The client.

    Attributes:
        living: The hosts that it may ask, by their places.

        is_gone: It makes no more calls.
    """

    world: World
    living: dict[int, Serving] = field(default_factory=dict[int, "Serving"])
    is_gone: bool = False

    async def visit(self) -> None:
        """Make some calls, and note each answer that is not in the log."""
        chance = self.world.chance
        for _ in range(chance.randrange(_CALLS)):
            await asyncio.sleep(chance.uniform(0, 0.8))
            if found := [one for one in self.living.values() if one.alive]:
                await self._ask(chance.choice(found))
        self.is_gone = True

    async def _ask(self, host: Serving) -> None:
        chance, at = self.world.chance, list[tuple[str, int]]()
        name = f"mcp__demo__{chance.choice(_TOOLS)}"
        params = {"n": chance.randrange(3)}

        def call() -> asyncio.Task[object]:
            asked = host.sessions.call(
                ANN, name, params, begun=lambda run, call: at.append((run, call))
            )
            return asyncio.create_task(asked)

        assert isinstance(host, Process)
        task = self.world.spawn(host, call)
        until = self.world.loop.time() + _PATIENCE
        while host.alive and not task.done() and self.world.loop.time() < until:  # noqa: ASYNC110 -- virtual
            await asyncio.sleep(0.01)
        if not task.done():
            self.world.met["no answer"] += 1
            task.cancel()
        elif task.cancelled() or (exc := task.exception()):
            if not task.cancelled() and not isinstance(exc, (CaxtonError, Suspend)):
                self.world.wrong.append(f"a client was told {exc!r}")
            self.world.met["no session"] += 1
        else:
            self._check(task.result(), at)

    def _check(self, said: object, at: Sequence[tuple[str, int]]) -> None:
        """Check that the log has an answer before the client has it (law 3)."""
        self.world.met[f"told {type(said).__name__}"] += 1
        if not isinstance(said, (Completed, Denied, Failed)):
            return
        run_id, number = at[-1]
        history = self.world.disk.streams[f"run/{run_id}"]
        ends = [outcome_of(one.event) for one in history if one.event]
        if (number, said) not in ends:
            self.world.wrong.append(f"{said} of call {number} of {run_id} is not there")
