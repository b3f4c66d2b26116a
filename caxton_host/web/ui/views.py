"""The pages: what each asks of the API, and what its template gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import urlencode

from ...core.calls import JSON
from ...core.log.events import EVENT_TYPES, Event, RunErased
from ...core.log.runs import ENDS, GOING_ON, OUTCOMES
from ..edge.messages import Refusal
from .asking import Asking
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """
    A page.

    Attributes:
        template: Its name.

        title: Of the window.

        values: What the template gets.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


View: TypeAlias = Callable[[Asking], Awaitable[Shown]]


async def runs(asking: Asking) -> Shown:
    """Show runs, by the filters of the address."""
    query = asking.query
    given = {name: query.get(name, "") for name in [*_FILTERS, "cursor"]}
    followed = await live(asking, *_TURNS)
    sent: dict[str, JSON] = {
        name: _micros(name, text) if name in {"since", "until"} and text else text
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


def _micros(name: str, text: str) -> int:
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


async def servers(asking: Asking) -> Shown:
    """Show the tool servers, and the tools of all."""
    found = await asking.of("listServers")
    tools = await asking.maybe("listTools")
    wanted = asking.query.get("q", "").lower()
    known: list[dict[str, Any]] = tools["tools"] if tools else []
    listed = [
        one
        for one in known
        if wanted in f"{one['server']}/{one['tool']} {one['description']}".lower()
    ]
    return Shown(
        template="servers",
        title="Servers",
        values={
            "servers": found["servers"],
            "tools": listed,
            "q": wanted,
            "server": None,
            "edit": (await asking.of("showCaller"))["edit"],
        },
    )


async def server(asking: Asking) -> Shown:
    """Show a tool server, and its tools."""
    name = asking.request.path_params["name"]
    found = await asking.of("showServer", name=name)
    tools = await asking.maybe("listTools", server=name)
    return Shown(
        template="server",
        title=name,
        values={
            "server": found,
            "tools": (tools or {"tools": []})["tools"],
            "edit": (await asking.of("showCaller"))["edit"],
        },
    )


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
    "/servers": servers,
    "/servers/{name}": server,
}
