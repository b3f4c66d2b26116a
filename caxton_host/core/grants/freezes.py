"""
Freezes: agents, tokens, servers and schedules whose calls an operator has stopped.

What is frozen is the fold of one stream, which every host reads. A call of a frozen
agent is not denied: its run is suspended, and goes on when the agent is thawed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ...errors import Suspend
from ..calls import JSON
from ..log.events import Event, Frozen, Recorded, RunSuspended, Thawed
from .principals import named

#: The stream of all freezes.
FREEZES = "freezes"

Kind: TypeAlias = Literal["agent", "token", "server", "schedule"]
KINDS: tuple[Kind, ...] = ("agent", "token", "server", "schedule")

#: What stops the runs of a host that hands them over.
STOPPING = ("host", "this one")

#: Kind and name.
Key: TypeAlias = tuple[str, str]


def actor_key(actor: Mapping[str, JSON]) -> Key:
    """
    Return kind and name under which an actor is frozen.

    >>> actor_key({"kind": "oauth", "id": "ann"})
    ('token', 'oauth/ann')
    >>> actor_key({"kind": "schedule", "id": "nightly"})
    ('schedule', 'nightly')
    """
    kind, name = actor.get("kind"), str(actor.get("id"))
    if kind == "schedule":
        return "schedule", name
    return "token", name if kind == "token" else named(actor)


@dataclass(frozen=True, slots=True)
class Freezes:
    """
    What is frozen.

    Attributes:
        standing: The newest `Frozen` of each, by kind and name, oldest first.

        stopping: The host hands its runs over: each is suspended at its next call.

        thawed: When each was thawed last: microseconds since 1970.
    """

    standing: Mapping[Key, Recorded] = field(default_factory=dict[Key, Recorded])
    stopping: bool = False
    thawed: Mapping[Key, int] = field(default_factory=dict[Key, int])

    def after(self, recorded: Recorded) -> Freezes:
        """Return what is frozen after an event of the stream."""
        event = recorded.event
        if not isinstance(event, (Frozen, Thawed)):
            return self
        key = event.kind, event.name
        left = {k: one for k, one in self.standing.items() if k != key}
        if isinstance(event, Frozen):
            return replace(self, standing=left | {key: recorded})
        thawed = {**self.thawed, key: recorded.recorded_at}
        return replace(self, standing=left, thawed=thawed)

    def on(
        self, agent: str, actor: Mapping[str, JSON], server: str | None = None
    ) -> Key | None:
        """
        Return what stops a run, if something does.

        Args:
            agent: Its agent.

            actor: Who started it.

            server: The server of its next call.
        """
        if self.stopping:
            return STOPPING
        if not self.standing:
            return None
        keys = ("agent", agent), actor_key(actor), ("server", server or "")
        return next((key for key in keys if key in self.standing), None)

    def documents(self) -> list[dict[str, JSON]]:
        """Return the ``caxton.freeze/v1`` documents of all that is frozen."""
        return [freeze_document(one) for one in self.standing.values()]


def freeze_document(recorded: Recorded) -> dict[str, JSON]:
    """Return the ``caxton.freeze/v1`` document of a `Frozen` or a `Thawed`."""
    event = recorded.event
    assert isinstance(event, (Frozen, Thawed))  # noqa: S101 -- the stream has no other
    return {
        "$type": "caxton.freeze/v1",
        "kind": event.kind,
        "name": event.name,
        "frozen": isinstance(event, Frozen),
        "actor": event.actor,
        "reason": event.reason,
        "at": recorded.recorded_at,
    }


def frozen_in(event: Event | None) -> Key | None:
    """Return kind and name of what was frozen, if *event* suspended a run for that."""
    if not isinstance(event, RunSuspended) or not event.frozen:
        return None
    return str(event.frozen.get("kind")), str(event.frozen.get("name"))


class Halted(Suspend):
    """
    A run is frozen.

    Attributes:
        frozen: Kind and name of what is frozen.

        unsent: Calls whose intents are recorded and that were not sent.
    """

    def __init__(
        self, call: int, frozen: Key, unsent: Sequence[int] = (), *, where: str = ""
    ) -> None:
        kind, name = frozen
        super().__init__(
            call, f"{where}{kind} {name} is frozen", fix=f"caxton thaw {kind} {name}"
        )
        self.frozen = frozen
        self.unsent = unsent

    def with_others(self, others: Iterable[Halted]) -> Halted:
        """Return the same for all calls of a batch that were not sent."""
        unsent = {number for one in others for number in one.unsent}
        return Halted(self.call, self.frozen, sorted(unsent))

    @property
    def recorded(self) -> RunSuspended:
        """The event that records it."""
        if self.frozen == STOPPING:
            return RunSuspended(reason="host_stopped", unsent=tuple(self.unsent))
        kind, name = self.frozen
        return RunSuspended(
            reason="frozen",
            call=self.call,
            frozen={"kind": kind, "name": name},
            unsent=tuple(self.unsent),
        )
