"""The pages: what each asks of the API, and what its template gets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from ...core.calls import JSON
from ...core.log.events import EVENT_TYPES, Event, RunErased
from ...core.log.runs import ENDS, GOING_ON, OUTCOMES
from ..edge.messages import Refusal
from .asking import Asking, Shown, View
from .forms import json_of

#: Runs that a count goes up to.
_COUNTED = 100
_TEXTS = (
    ("agent", "Agent"),
    ("reason", "Reason"),
    ("tool", "Tool"),
    ("actor", "Started by"),
)
_CHOICES = (
    ("state", "State", sorted({*ENDS.values()})),
    ("kind", "Kind", ["agent", "program", "session"]),
    ("outcome", "With a call that is", [*OUTCOMES]),
)
_TIMES = (("since", "Since (UTC)"), ("until", "Until (UTC)"))
_FILTERS = [name for name, *_ in (*_TEXTS, *_CHOICES, *_TIMES)]


#: Events that change the list of runs.
_TURNS = (*(EVENT_TYPES[name] for name in ENDS), RunErased)


async def runs(asking: Asking) -> Shown:
    """Show runs, by the filters of the address."""
    query = asking.query
    given = {name: query.get(name, "") for name in [*_FILTERS, "cursor"]}
    followed = await live(asking, *_TURNS)
    sent: dict[str, JSON] = {
        name: micros(name, text) if name in {"since", "until"} and text else text
        for name, text in given.items()
    }
    found = await asking.of("listRuns", **sent)
    told = {name: text for name, text in given.items() if text and name != "cursor"}
    counts: dict[str, str] = {}
    for state in sorted(GOING_ON):
        counted = await asking.of("listRuns", state=state, limit=_COUNTED)
        counts[state] = f"{len(counted['runs'])}{'+' if counted['next'] else ''}"
    return Shown(
        template="runs",
        title="Runs",
        values={
            **followed,
            "runs": found["runs"],
            "given": given,
            "filtered": bool(told),
            "texts": _TEXTS,
            "choices": _CHOICES,
            "times": _TIMES,
            "counts": counts,
            "bulk": asking.who.may("run"),
            "newest": address("/ui/runs", told),
            "older": address("/ui/runs", told | {"cursor": found["next"]})
            if found["next"]
            else None,
        },
    )


def micros(name: str, text: str) -> int:
    """
    Return the time in a field, in microseconds since 1970.

    Raises:
        Refusal: It is none.
    """
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)
    except (ValueError, OverflowError):
        raise Refusal(
            "bad-request", f"{name}: not a time", fix="write 2026-01-31T12:00"
        ) from None


async def live(asking: Asking, *kinds: type[Event]) -> dict[str, Any]:
    """Return what has the first page of a list follow events of these kinds."""
    if "cursor" in asking.query:
        return {}
    end = await asking.of("allEvents", limit=1, after="end")
    names = " ".join(one.__name__ for one in kinds)
    return {"live": "/ui/live", "after": end["cursor"] or "", "kinds": names}


def address(path: str, query: Mapping[str, object]) -> str:
    """Return a path with the parameters of a query."""
    return f"{path}?{urlencode(query)}" if query else path


def may(asking: Asking) -> dict[str, bool]:
    """Return which of these scopes the caller has."""
    return {
        "auditor": asking.who.may("auditor"),
        "run": asking.who.may("run"),
        "decide": asking.who.may("decide"),
        "admin": asking.who.may("admin"),
    }


async def agents(asking: Asking) -> Shown:
    """Show the agents, and whether one may make a call."""
    found = await asking.of("listAgents")
    query, said = asking.query, None
    if "agent" in query and "tool" in query:
        body: JSON = {
            "agent": query["agent"],
            "tool": query["tool"],
            "params": json_of(query.get("params", "{}"), "params"),
        }
        said = await asking.of("explainGrant", body)
    return Shown(
        template="agents",
        title="Agents",
        values={
            "agents": found["agents"],
            "said": said,
            "asked_agent": query.get("agent"),
            "asked_tool": query.get("tool"),
        },
    )


#: Paths below ``/ui``, and their pages.
VIEWS: Mapping[str, View] = {
    "/runs": runs,
    "/agents": agents,
}
