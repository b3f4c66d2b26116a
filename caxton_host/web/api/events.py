"""Events: paginated, or streamed as server-sent events."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.responses import Response

from ...core.grants.principals import Principal
from ...core.log.events import Recorded, event_document
from ...core.log.runs import ENDS, GOING_ON
from ...core.names import RUN, run_of, stream_of
from ...ports.history import Readings
from ...service.run_service import sees
from ..edge.event_stream import GREETING, MEDIA, EventStream
from .cursors import Plain
from .operations import Answer, Asked, Operation, Page, Parameter


def _sent(recorded: Recorded, cursor: str) -> str:
    document = event_document(recorded) | {"cursor": cursor}
    data = json.dumps(document, separators=(",", ":"))
    return f"id: {cursor}\nevent: {recorded.type}\ndata: {data}\n\n"


Found: TypeAlias = AsyncGenerator[tuple[Recorded, str]]

#: Seconds that the log may be unavailable to a stream.
_PATIENCE = 60.0
_LAST = {kind for kind, state in ENDS.items() if state not in GOING_ON}
#: Events that are read for one page, visible or not.
_LOOKED_AT = 5_000
#: Runs whose visibility a stream of all events caches.
_REMEMBERED = 1_000


async def of_run(asked: Asked) -> Response:
    """Return events of a run."""
    row = await asked.service.row(asked.who, asked.path["run"])
    store, stream = asked.service.store, stream_of(row.run_id)
    # They count the events of this run alone.
    cursors = Plain()
    after = await _after(asked, cursors, stream)
    if not _wants_stream(asked):
        found = store.reader.tail(after, stream=stream, follow=False)
        return await _page(asked, cursors, after, found)
    goes_on = row.state in GOING_ON
    is_done = after is not None and await _nothing_behind(store.reader, stream, after)
    if is_done and not goes_on:
        return Response(status_code=204)
    found = store.reader.tail(after, stream=stream, follow=goes_on, patience=_PATIENCE)
    return _follow(asked, cursors, after, _to_its_end(found))


async def of_all(asked: Asked) -> Response:
    """Return events of all streams that the caller may see."""
    store, of = asked.service.store, asked.who.tenant
    cursors = await asked.desk.cursors.of(asked.who, store.reader)
    after = await _after(asked, cursors)
    seen = _Seen(asked.who, store.reader)
    if not _wants_stream(asked):
        found = store.reader.tail(after, tenant=of, follow=False)
        return await _page(asked, cursors, after, found, seen)
    if after is not None:
        await _nothing_behind(store.reader, None, after)
    found = store.reader.tail(after, tenant=of, follow=True, patience=_PATIENCE)
    return _follow(asked, cursors, after, seen.of(found))


def _wants_stream(asked: Asked) -> bool:
    request = asked.request
    # A HEAD request would wait for ever.
    return request.method == "GET" and MEDIA in request.headers.get("accept", "")


async def _after(asked: Asked, cursors: Plain, stream: str | None = None) -> str | None:
    """Return the place to continue after; ``end`` is resolved once."""
    after = asked.text("last-event-id") or asked.text("after")
    if after == "end":
        return await asked.service.store.reader.end(stream)
    return after and cursors.read(after)


async def _page(
    asked: Asked,
    cursors: Plain,
    place: str | None,
    found: Found,
    seen: _Seen | None = None,
) -> Response:
    events = Page()
    limit, more, left = asked.number("limit"), False, _LOOKED_AT
    async with aclosing(found) as coming:
        async for recorded, behind in coming:
            if len(events) == limit or events.is_full or not left:
                more = True
                break
            place, left = behind, left - 1
            if seen is None or await seen.may(recorded.stream):
                document = event_document(asked.who.shown(recorded))
                events.add(document | {"cursor": cursors.write(place)})
    cursor = place and cursors.write(place)
    about = {"$type": "caxton.events/v1", "cursor": cursor, "more": more}
    return events.answer(about, "events")


def _follow(asked: Asked, cursors: Plain, after: str | None, found: Found) -> Response:
    who, line = asked.who, asked.service.line

    async def told() -> AsyncGenerator[str]:
        async with aclosing(found) as events:
            # The id is for clients that reconnect before an event.
            yield f"id: {cursors.write(after)}\n\n" if after else GREETING
            async for recorded, place in events:
                yield _sent(who.shown(recorded), cursors.write(place))

    return EventStream(
        told(),
        stops=lambda: line.closed,
        place=asked.desk.streams.one(who.key),
    )


async def _nothing_behind(store: Readings, stream: str | None, after: str) -> bool:
    """Return whether a cursor is at the end; refuse an invalid one."""
    async with aclosing(store.tail(after, stream=stream, follow=False)) as found:
        async for _ in found:
            return False
    return True


async def _to_its_end(found: Found) -> Found:
    async with aclosing(found) as events:
        async for recorded, cursor in events:
            yield recorded, cursor
            if recorded.type in _LAST:
                return


@dataclass(slots=True)
class _Seen:
    """Filters events that a principal may not see."""

    who: Principal
    store: Readings
    _runs: OrderedDict[str, bool] = field(
        default_factory=OrderedDict[str, bool], init=False
    )

    async def of(self, found: Found) -> Found:
        """Yield the visible events."""
        async with aclosing(found) as events:
            async for recorded, cursor in events:
                if await self.may(recorded.stream):
                    yield recorded, cursor

    async def may(self, stream: str) -> bool:
        """Return whether the principal may see a stream."""
        if not stream.startswith(RUN):
            return self.who.may("auditor")
        if stream not in self._runs:
            row = await self.store.row(run_of(stream))
            self._runs[stream] = row is not None and sees(self.who, row)
            if len(self._runs) > _REMEMBERED:
                self._runs.popitem(last=False)
        return self._runs[stream]


_PARAMETERS = (
    Parameter(
        name="after",
        about='Only events after this cursor; "end": only future events.',
        schema={"type": "string", "maxLength": 100},
    ),
    Parameter(
        name="limit",
        about="The maximum number of events per page.",
        schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 200},
    ),
    Parameter(
        name="last-event-id",
        about="The same as `after`, sent by browsers.",
        schema={"type": "string", "maxLength": 100},
        place="header",
    ),
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="runEvents",
        reads=True,
        method="GET",
        path="/runs/{run}/events",
        about="List the events of a run, in order. With `Accept: text/event-stream` "
        "they are "
        "streamed as they are recorded, and the stream ends with the run.",
        scopes=("run", "read", "decide"),
        shows="events",
        handler=of_run,
        parameters=_PARAMETERS,
        answers={
            200: Answer(about="Events.", schema="Events", stream=True),
            204: Answer(
                about="The run has ended, and there are no events after the cursor."
            ),
        },
        problems=("not-found", "refused"),
    ),
    Operation(
        id="allEvents",
        reads=True,
        method="GET",
        path="/events",
        about="List the events of all runs that you may see, and for admin and auditor "
        "those of hosts.",
        scopes=("run", "read", "decide"),
        shows="events",
        handler=of_all,
        parameters=_PARAMETERS,
        answers={200: Answer(about="Events.", schema="Events", stream=True)},
        problems=("refused",),
    ),
)
