"""The log of a host, read through its control API like a local log."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import fields

from ..core.calls import JSON
from ..core.log.events import Recorded, RunErased, RunStarted, blobs_of
from ..core.log.runs import ENDS, GOING_ON, RunFilter, RunRow, RunSummary
from ..core.names import RUN, run_of, stream_of
from ..errors import NotFoundError, OverloadedError, ToolError
from ..lib.codec import sha256 as digest
from ..lib.http_rules import Lost
from ..runs.approvals import Waiting
from ..runs.questions import Inbox, Question
from ..store.drafts import chosen
from .client import MOST_BYTES, Remote, TooMuch, path, read_json, unreached
from .documents import (
    check,
    erased,
    is_of,
    listed,
    listed_run,
    mapping,
    question,
    recorded,
    run_id,
    stranger,
    text,
    waiting,
)

_PAGE = 100
#: Events per page; smaller pages if an answer is too large.
_EVENTS = (200, 10, 1)
#: The most bytes of the events of a run, as sent.
_MOST_BYTES = 1024 * 1024 * 1024
_PREFIX = re.compile(r"[0-9a-f-]{1,64}")
_MATCHES = 6


class RemoteLog:
    """
    See `caxton_host.ports.history.History`.

    Attributes:
        remote: The host.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._runs: dict[str, str] = {}

    async def runs(self, limit: int, only: RunFilter) -> list[RunRow]:
        """Return at most *limit* runs, newest first."""
        asked = {one.name: getattr(only, one.name) or None for one in fields(only)}
        asked["top"] = "true" if only.top else None
        found: list[RunRow] = []
        cursor: str | None = None
        while True:
            most = min(_PAGE, limit - len(found))
            page = mapping(
                await self.remote.get("/runs", limit=most, cursor=cursor, **asked)
            )
            runs = listed(page.get("runs"))[:most]
            found += map(listed_run, runs)
            cursor = text(page, "next") if page.get("next") is not None else None
            if cursor is None or len(found) >= limit:
                return found

    async def find_run(self, name: str) -> str:
        """
        Return the id of the run that *name* means.

        Raises:
            NotFoundError: It matches no run, or more than one.
        """
        if name == "@last":
            found = await self.runs(1, RunFilter(top=True))
        elif _PREFIX.fullmatch(prefix := name.removeprefix(RUN)):
            name, found = prefix, await self.runs(_MATCHES, RunFilter(prefix=prefix))
        else:
            found = []
        return chosen(name, sorted(run.run_id for run in found))

    async def read(self, stream: str) -> list[Recorded]:
        """
        Return all events of a run's stream, in order.

        Raises:
            ServerUnavailable: They are more than a run can have.
        """
        events: list[Recorded] = []
        most = self.remote.received + _MOST_BYTES
        async with aclosing(self.tail(stream=stream, follow=False)) as found:
            async for one, _ in found:
                events.append(one)
                if isinstance(one.event, RunStarted):
                    self._learn(run_of(stream), one.event)
                if self.remote.received > most:
                    raise stranger("a run has no end of events")
        return events

    def _learn(self, run_id: str, started: RunStarted) -> None:
        self._runs |= dict.fromkeys(blobs_of(started), run_id)

    async def follow(self, run_id: str) -> AsyncGenerator[Recorded]:
        """Yield each event of a run once, until it has ended."""
        stream = stream_of(run_id)
        async with aclosing(self.tail(stream=stream, follow=True)) as found:
            async for one, _ in found:
                yield one
                if ENDS.get(one.type, "running") not in GOING_ON:
                    return

    async def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """Yield each event exactly once, with the cursor after it."""
        del patience  # The host and `_follow` have their own.
        where = path("runs", run_of(stream), "events") if stream else "/events"
        events = (
            _follow(self.remote, where, after) if follow else self._pages(where, after)
        )
        async with aclosing(events) as found:
            async for document, cursor in found:
                one = recorded(document)
                if stream not in {None, one.stream}:
                    raise stranger("it sends events of another run")
                yield one, cursor

    async def attributed(
        self,
        stream: str | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        agent: str | None = None,
    ) -> AsyncGenerator[tuple[Recorded, str | None, str | None]]:
        """Yield events with agent and actor of their run, as `Reader` does."""
        runs: dict[str, tuple[str | None, str | None]] = {"": (None, None)}
        async with aclosing(self.tail(stream=stream, follow=False)) as found:
            async for one, _ in found:
                if not (since or 0) <= one.recorded_at < (until or math.inf):
                    continue
                run = run_of(one.stream)
                if run not in runs:
                    known = summary(await self.remote.get(path("runs", run)))
                    actor = json.dumps(known.actor, sort_keys=True)
                    runs[run] = known.agent, actor
                if agent in {None, runs[run][0]}:
                    yield one, *runs[run]

    async def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        """Yield the events of a stream after a position."""
        async with aclosing(self.tail(stream=stream, follow=False)) as found:
            async for one, _ in found:
                if (one.position or one.seq) > after:
                    yield one

    async def _pages(
        self, where: str, after: str | None
    ) -> AsyncGenerator[tuple[JSON, str]]:
        sizes = list(_EVENTS)
        while True:
            try:
                page = mapping(
                    await self.remote.get(where, after=after, limit=sizes[0])
                )
            except TooMuch:
                if len(sizes) == 1:
                    raise
                del sizes[0]
                continue
            for document in listed(page.get("events")):
                yield document, text(mapping(document), "cursor")
            # A page may be empty, if this caller may see none of its events.
            before, after = after, text(page, "cursor") if page.get("more") else None
            if after in {before, None}:
                return

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest, of a run that was read.

        Raises:
            NotFoundError: No such run speaks of them.
        """
        if sha256 not in self._runs:
            raise NotFoundError(f"no run that was read has bytes with digest {sha256}")
        where = path("runs", self._runs[sha256], "blobs", sha256)
        data = await self.remote.fetch(where)
        if digest(data) != sha256:
            raise stranger("the bytes with a digest are others")
        return data

    async def inbox(self, agent: str | None, limit: int) -> Inbox:
        """Return at most *limit* things that people are asked, oldest first."""
        calls, questions, cursor = list[Waiting](), list[Question](), None
        while True:
            most = min(_PAGE, limit - len(calls) - len(questions))
            page = mapping(
                await self.remote.get(
                    "/approvals", agent=agent, cursor=cursor, limit=most
                )
            )
            found = listed(page.get("approvals")), listed(page.get("questions", []))
            calls += map(waiting, found[0][:most])
            questions += map(question, found[1][:most])
            cursor = text(page, "next") if page.get("next") is not None else None
            is_over = len(calls) + len(questions) >= limit or not any(found)
            if cursor is None or is_over:
                return Inbox(calls, questions, cursor)

    async def explanation(self, run_id: str, seq: int) -> Mapping[str, JSON]:
        """Return the ``caxton.explanation/v1`` document of a call."""
        where = path("runs", run_id, "explain")
        return mapping(await self.remote.get(where, seq=seq))

    async def erasure(self, run_id: str) -> RunErased | None:
        """Return the record of the erasure of a run, if any."""
        told = mapping(await self.remote.get(path("runs", run_id))).get("erasure")
        return None if told is None else erased(told)


def summary(document: JSON) -> RunSummary:
    """Return the summary in a ``caxton.run/v1`` document."""
    told = mapping(document)
    run_id(told)
    known = {field.name for field in fields(RunSummary)}
    try:
        run = RunSummary(**{key: told[key] for key in told if key in known})  # type: ignore[arg-type]  # checked below
        check(run)
    except (TypeError, ValueError):
        raise stranger("a run is not one") from None
    return run


_SSE, _NOTHING = "text/event-stream", 204

#: Seconds without a byte, after which a connection counts as lost.
_IDLE = 60.0
#: Seconds that a host may be unreachable.
_PATIENCE = 60.0
_PAUSE = 0.2
#: Kinds of errors that may pass.
_PASSING = {"timeout", "transport"}
#: Seconds after which a connection counts as established.
_LASTED = 5.0


class _Over(Exception):  # noqa: N818 -- an end, not a fault
    """The stream has ended at the cursor."""


async def _follow(
    remote: Remote, where: str, after: str | None
) -> AsyncGenerator[tuple[JSON, str]]:
    """
    Yield each event after a cursor exactly once, with its own cursor.

    A lost connection is reopened after the last event.

    Args:
        remote: The host.

        where: The path of the events.

        after: The cursor, or ``None``: from the first one on.

    Raises:
        ServerUnavailable: The host is unreachable for too long, or is not a host.

        CaxtonError: The host reports an error.
    """
    clock = asyncio.get_running_loop().time
    since, met = clock(), False
    while True:
        began = clock()
        try:
            async with aclosing(_connection(remote, where, after)) as found:
                async for document, cursor in found:
                    after, since = cursor, clock()
                    if document is not None:
                        yield document, cursor
            lost, met = ToolError("transport", "yes", "it ends the connection"), True
        except ToolError as exc:
            met = met or exc.sent != "no"
            if not (met and (isinstance(exc, Lost) or exc.kind in _PASSING)):
                raise unreached(exc, remote.address) from None
            lost = exc
        except _Over:
            return
        except OverloadedError as exc:
            await asyncio.sleep(min(exc.retry_after, _PATIENCE))
            lost = ToolError("transport", "no", str(exc))
        if clock() - began > _LASTED:
            since = clock()
        if clock() - since > _PATIENCE:
            raise unreached(lost, remote.address)
        await asyncio.sleep(_PAUSE)


async def _connection(
    remote: Remote, where: str, after: str | None
) -> AsyncGenerator[tuple[JSON, str]]:
    """Yield the documents of one connection; a cursor may come without one."""
    headers = {"accept": _SSE}
    if after is not None:
        headers["last-event-id"] = after
    from ..mcp.transport.frames import Events  # noqa: PLC0415 -- imports what speaks MCP

    events = Events(MOST_BYTES)
    async with remote.stream(where, headers) as stream:
        if stream.status == _NOTHING:
            raise _Over
        if not is_of(stream.headers, _SSE):
            raise stranger("it does not send events")
        async with aclosing(stream.chunks(_IDLE)) as chunks:
            async for chunk in chunks:
                for event in events.feed(chunk):
                    document = read_json(event.data) if event.data else None
                    if event.id:
                        yield document, event.id.decode("ascii", "replace")
