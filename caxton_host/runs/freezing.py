"""Freezing and thawing, on every host of a log: agents, tokens, servers, schedules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TypedDict

from ..core.calls import JSON
from ..core.grants.freezes import FREEZES, Freezes, Halted, frozen_in
from ..core.log.events import Event, Frozen, Thawed
from ..core.log.runs import RunFilter
from ..core.names import BY_HAND, nearest
from ..errors import LeaseLost, NotFoundError, StoreError, UsageError
from ..lib.bell import Bell
from ..ports.history import Readings
from ..ports.serving import ServingStore
from .admission import about_to_stop
from .recording import Recording

#: Seconds between two looks at the end of the stream, at least.
EVERY = 0.5

#: Attempts to append to a stream to which other processes append too.
_TRIES = 20

#: Of an authorization server, with its tenant before it.
_SUBJECT = re.compile("(@[^/]+/)?oauth/")

logger = logging.getLogger("caxton_host")


class FreezeWatch:
    """
    What is frozen, as a host has read it last.

    Args:
        log: Where that is recorded; ``None``: nothing is ever frozen.

        bell: Tells of a change.

    Attributes:
        now: What is frozen.

        stopping: The host hands its runs over.

        thawed: Called after something was thawed.
    """

    def __init__(self, log: Readings | None = None, bell: Bell | None = None) -> None:
        self.now = Freezes()
        self.stopping = False
        self.thawed: Callable[[], None] = lambda: None
        self._log = log
        self._bell = bell or Bell()
        self._place = 0
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """
        Read what was recorded since the last look.

        Raises:
            StoreError: It cannot be read.
        """
        if self._log is None:
            return
        thawed = False
        async with self._looking:
            found = self._log.stream_events(FREEZES, after=self._place)
            async with aclosing(found) as events:
                async for recorded in events:
                    self.now = self.now.after(recorded)
                    self._place = recorded.position
                    thawed = thawed or isinstance(recorded.event, Thawed)
        if thawed:
            self.thawed()

    def hand_over(self) -> None:
        """Suspend each run of the host at its next call, for another host."""
        self.stopping = True

    @property
    def of_calls(self) -> Freezes:
        """What stops calls: what is frozen, and that the host hands its runs over."""
        return replace(self.now, stopping=True) if self.stopping else self.now

    @contextlib.asynccontextmanager
    async def watching(self, every: float = EVERY) -> AsyncGenerator[None]:
        """Look now, and then periodically in the background."""
        news = self._bell.news("freezes")
        await self.look()
        watch = asyncio.create_task(self._watch(news, every))
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self, news: asyncio.Event, every: float) -> None:
        while True:
            await self._bell.pause(news, every)
            try:
                await self.look()
            except StoreError as exc:
                # Calls stop too: their intents are recorded in the same log.
                logger.warning("freezes cannot be read: %s", exc)
                news.set()

    async def check(self, agent: str, actor: Mapping[str, JSON]) -> None:
        """
        Return if a run may be started.

        Raises:
            UsageError: Its agent or its actor is frozen.

            OverloadedError: The host hands its runs over.
        """
        if self.stopping:
            raise about_to_stop()
        if self.now.on(agent, actor):
            await self.look()  # It may be thawed since.
            if found := self.now.on(agent, actor):
                raise UsageError(str(halted := Halted(0, found)), fix=halted.fix)

    async def check_resumable(self, recording: Recording) -> None:
        """
        Return if a run may go on.

        Raises:
            Halted: It is frozen.
        """
        if self._halting(recording):
            await self.look()  # It may be thawed since.
            if halted := self._halting(recording):
                raise halted

    def _halting(self, recording: Recording) -> Halted | None:
        started, last = recording.started, recording.latest.event
        kind, name = frozen_in(last) or ("", "")
        server = name if kind == "server" else None
        if found := self.of_calls.on(started.agent, started.actor, server):
            call = getattr(last, "call", None) or 0
            return Halted(call, found, where=f"run {recording.run_id}: ")
        return None


class Fields(TypedDict):
    """The fields of `Frozen` and of `Thawed`."""

    kind: str
    name: str
    actor: dict[str, JSON]
    reason: str


async def freezes_of(store: ServingStore) -> Freezes:
    """Return what is frozen."""
    watch = FreezeWatch(store.reader)
    await watch.look()
    return watch.now


async def freeze(
    store: ServingStore,
    event: Frozen,
    *,
    agents: Collection[str],
    servers: Collection[str],
    schedules: Collection[str] = (),
) -> Frozen:
    """
    Record that something is frozen, and return what.

    Args:
        store: Where it is recorded.

        event: What, who and why. A token may be named by its name.

        agents: The agents that are configured.

        servers: The servers that are configured.

        schedules: The schedules that are configured.

    Raises:
        NotFoundError: There is no such agent, token, server or schedule.

        StoreError: It could not be stored.
    """
    kind, name = event.kind, event.name
    of = {"agent": [*agents, BY_HAND], "server": servers, "schedule": schedules}
    known = {*of.get(kind, ())}
    if kind == "token":
        name, known = await _token(store, name)
    if name not in known and not (
        kind == "agent" and await store.reader.runs(1, RunFilter(agent=name))
    ):
        raise _unknown(kind, name, known)
    event = replace(event, name=name)
    await _append(store, event)
    return event


async def thaw(store: ServingStore, event: Thawed) -> Thawed:
    """
    Record that something is thawed, and return what.

    Raises:
        NotFoundError: It is not frozen.

        StoreError: It could not be stored.
    """
    name = event.name
    standing = (await freezes_of(store)).standing
    if event.kind == "token" and (event.kind, name) not in standing:
        name, _ = await _token(store, name)
    if (event.kind, name) not in standing:
        raise NotFoundError(
            f"{event.kind} {event.name} is not frozen", fix="caxton freeze list"
        )
    event = replace(event, name=name)
    await _append(store, event)
    return event


async def _token(store: ServingStore, name: str) -> tuple[str, set[str]]:
    """Return the id of a token that is named, and all that it could be."""
    rows = await store.tokens.all()
    found = [row.id for row in rows if name in {row.id, row.name}]
    if len(found) > 1:
        raise NotFoundError(
            f"{len(found)} tokens have the name {name!r}",
            fix=f"name one by its id: {', '.join(found)}",
        )
    # A subject of an authorization server has no row.
    known = {name} if _SUBJECT.match(name) else {row.id for row in rows}
    return (found[0] if found else name), known


def _unknown(kind: str, name: str, known: Collection[str]) -> NotFoundError:
    meant = nearest(name, sorted(known))
    lists = "serve token" if kind == "token" else kind
    return NotFoundError(
        f"there is no {kind} {name!r}",
        fix=f"did you mean {meant}?" if meant else f"caxton {lists} list",
    )


async def _append(log: ServingStore, event: Event) -> None:
    for attempt in range(1, _TRIES + 1):
        try:
            end = await log.resume_log(FREEZES)
        except NotFoundError:
            end = log.create(FREEZES)
        try:
            await end.append(event)
        except LeaseLost:  # Another process has appended meanwhile.
            if attempt == _TRIES:
                raise
        else:
            return
