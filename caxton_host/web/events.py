"""Events: page by page, or as they come."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..core.documents import event_document
from ..core.events import Recorded
from ..core.names import RUN, run_of, stream_of
from ..core.principals import Principal
from ..core.runs import ENDS, GOING_ON
from ..service import Service
from .edge import Crowd
from .operations import Answer, Asked, Operation, Parameter
from .pages import Page
from .streams import EventStream

__all__ = ["OPERATIONS"]

Found: TypeAlias = AsyncGenerator[tuple[Recorded, str]]

#: Seconds that the log may be away from whoever follows it.
_PATIENCE = 60.0
_LAST = {kind for kind, state in ENDS.items() if state not in GOING_ON}
_STREAM = "text/event-stream"
#: Agents of so many runs are remembered by who follows all.
_REMEMBERED = 1_000


async def of_run(asked: Asked) -> Response:
    """Return events of a run."""
    row = await asked.service.row(asked.who, asked.path["run"])
    stream, after = stream_of(row.run_id), _after(asked)
    if not _wants_stream(asked):
        return await _page(
            asked, asked.service.store.tail(after, stream=stream, follow=False)
        )
    is_over = row.state not in GOING_ON
    if is_over and await _nothing_behind(asked.service, stream, after):
        return Response(status_code=204)
    return _follow(asked, _to_its_end(asked.service, stream, after, is_over=is_over))


async def of_all(asked: Asked) -> Response:
    """Return events of all streams that who asks may see."""
    follow = _wants_stream(asked)
    found = asked.service.store.tail(
        _after(asked), follow=follow, patience=_PATIENCE if follow else 0.0
    )
    seen = _Seen(asked.who, asked.service).of(found)
    return _follow(asked, seen) if follow else await _page(asked, seen)


def _wants_stream(asked: Asked) -> bool:
    request = asked.request
    # Whoever wants to know the head alone would wait for ever.
    return request.method == "GET" and _STREAM in request.headers.get("accept", "")


def _after(asked: Asked) -> str | None:
    return asked.text("last-event-id") or asked.text("after")


async def _page(asked: Asked, found: Found) -> Response:
    events = Page()
    limit, cursor, more = asked.number("limit"), _after(asked), False
    async with aclosing(found) as coming:
        async for recorded, place in coming:
            if len(events) == limit or events.is_full:
                more = True
                break
            cursor = place
            events.add(event_document(recorded) | {"cursor": cursor})
    about = {"$type": "caxton.events/v1", "cursor": cursor, "more": more}
    return events.answer(about, "events")


def _follow(asked: Asked, found: Found) -> Response:
    who, streams = asked.who, asked.desk.streams
    line = asked.service.line
    return _Counted(
        EventStream(found, lambda: line.closed), streams, f"{who.kind}/{who.id}"
    )


class _Counted(Response):
    """A response that has its place among the streams."""

    def __init__(self, inner: EventStream, streams: Crowd, who: str) -> None:
        super().__init__()
        self._inner = inner
        self._streams = streams
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, if there is a place."""
        with self._streams.one(self._who):
            await self._inner(scope, receive, send)


async def _nothing_behind(service: Service, stream: str, after: str | None) -> bool:
    async with aclosing(
        service.store.tail(after, stream=stream, follow=False)
    ) as found:
        async for _ in found:
            return False
    return True


async def _to_its_end(
    service: Service, stream: str, after: str | None, *, is_over: bool
) -> Found:
    found = service.store.tail(
        after, stream=stream, follow=not is_over, patience=0.0 if is_over else _PATIENCE
    )
    async with aclosing(found) as events:
        async for recorded, cursor in events:
            yield recorded, cursor
            if recorded.type in _LAST:
                return


@dataclass(slots=True)
class _Seen:
    """Leaves out the events that are not for a principal."""

    who: Principal
    service: Service
    _runs: OrderedDict[str, bool] = field(
        default_factory=OrderedDict[str, bool], init=False
    )

    async def of(self, found: Found) -> Found:
        async with aclosing(found) as events:
            async for recorded, cursor in events:
                if await self._may(recorded.stream):
                    yield recorded, cursor

    async def _may(self, stream: str) -> bool:
        if not stream.startswith(RUN):
            return self.who.may("admin")
        if stream not in self._runs:
            row = await self.service.store.row(run_of(stream))
            self._runs[stream] = row is not None and self.who.sees(
                row.agent, json.loads(row.actor)
            )
            if len(self._runs) > _REMEMBERED:
                self._runs.popitem(last=False)
        return self._runs[stream]


_PARAMETERS = (
    Parameter(
        name="after",
        about='Only events behind this cursor; "end": only those to come.',
        schema={"type": "string", "maxLength": 100},
    ),
    Parameter(
        name="limit",
        about="How many at most, on one page.",
        schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 200},
    ),
    Parameter(
        name="last-event-id",
        about="The same as `after`, as browsers send it.",
        schema={"type": "string", "maxLength": 100},
        place="header",
    ),
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="runEvents",
        method="GET",
        path="/runs/{run}/events",
        about="Events of a run, in order. With `Accept: text/event-stream` they are "
        "sent as they come, and the stream ends with the run.",
        scopes=("run", "read", "decide"),
        handler=of_run,
        parameters=_PARAMETERS,
        answers={
            200: Answer(about="Events.", schema="Events", stream=True),
            204: Answer(about="The run has ended, and nothing is behind the cursor."),
        },
        problems=("not-found", "refused"),
    ),
    Operation(
        id="allEvents",
        method="GET",
        path="/events",
        about="Events of all runs that you may see, and of hosts for admin.",
        scopes=("read",),
        handler=of_all,
        parameters=_PARAMETERS,
        answers={200: Answer(about="Events.", schema="Events", stream=True)},
        problems=("refused",),
    ),
)
