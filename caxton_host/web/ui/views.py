"""The pages: what each asks of the API, and what its template gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlencode

from ...core.calls import JSON
from ...core.log.events import ToolInvoked, from_payload
from ...core.log.runs import ENDS, GOING_ON, OUTCOMES, callee_of
from ...core.names import stream_of
from ...errors import BadBytes, UsageError
from ...lib.codec import load_json
from ..edge.messages import Refusal
from .asking import Asking
from .timeline import Row, rows_of

#: Events on one page of a run.
_EVENTS = 200
#: Approvals and questions on one page, and in the number of the inbox.
WAITING = 100
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
            "runs": found["runs"],
            "given": given,
            "filtered": bool(told),
            "texts": _TEXTS,
            "choices": _CHOICES,
            "times": _TIMES,
            "counts": counts,
            "bulk": asking.who.may("run"),
            "newest": _address("/ui/runs", told),
            "older": _address("/ui/runs", told | {"cursor": found["next"]})
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


def _address(path: str, query: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


async def run(asking: Asking) -> Shown:
    """Show a run: its timeline, and the call of one event."""
    run_id = asking.request.path_params["run"]
    path = f"/ui/runs/{run_id}"
    found = await asking.of("showRun", run=run_id)
    seq = asking.number("seq")
    after = asking.number("after") or 0
    if seq is not None and not after < seq <= after + _EVENTS:
        after = max(seq - _EVENTS // 4, 0)
    # The cursor of a run is the number of an event.
    got = await asking.of(
        "runEvents", run=run_id, limit=_EVENTS, after=f"n-{after}" if after else None
    )
    events: list[dict[str, Any]] = got["events"]
    rows = rows_of(events)
    chosen = next((row for row in rows if seq in row.seqs), None)
    values: dict[str, Any] = {
        "run": found,
        "going_on": GOING_ON,
        "mine": asking.who.owns(found["actor"]) if found["actor"] else False,
        "may": may(asking),
        "rows": rows,
        "chosen": chosen,
        "doubt": _doubt(found, rows),
        "started": _payload(events, "RunStarted"),
        "first": path if after else None,
        "next": _address(path, {"after": events[-1]["seq"]}) if got["more"] else None,
        "row_path": partial(_row_path, path, after),
        "live": f"{path}/live"
        if found["state"] in GOING_ON and not got["more"]
        else None,
        "after": got["cursor"] or "",
    }
    if chosen:
        values |= await _chosen(asking, run_id, chosen, events)
        place = rows.index(chosen)
        for name, at in (("before", place - 1), ("behind", place + 1)):
            near = rows[at] if 0 <= at < len(rows) else None
            values[name] = _row_path(path, after, near) if near else None
    return Shown(template="run", title=f"{found['agent']} {run_id[:8]}", values=values)


def _row_path(path: str, after: int, row: Row) -> str:
    return _address(path, ({"after": after} if after else {}) | {"seq": row.seq})


def _doubt(run: Mapping[str, Any], rows: Iterable[Row]) -> Row | None:
    """Return the call in doubt that a run waits for."""
    if run["waits_for"] != "in_doubt":
        return None
    return next((row for row in rows if row.call and row.outcome == "open"), None)


def _payload(events: Iterable[Mapping[str, Any]], kind: str) -> Any:  # noqa: ANN401 -- a document
    return next((one["payload"] for one in events if one["type"] == kind), None)


def may(asking: Asking) -> dict[str, bool]:
    """Return which of these scopes the caller has."""
    return {
        "auditor": asking.who.may("auditor"),
        "run": asking.who.may("run"),
        "decide": asking.who.may("decide"),
        "admin": asking.who.may("admin"),
    }


async def _chosen(
    asking: Asking, run_id: str, row: Row, events: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Return what is shown of the chosen row."""
    own = [one for one in events if one["seq"] in row.seqs]
    answer: Any = _payload(own, "ToolCompleted") or {}
    explained = traced = None
    if row.call is not None:
        # Refused: it has no beginning in this stream, or the run was erased.
        with suppress(UsageError):
            explained, traced = await asyncio.gather(
                asking.of("explainCall", run=run_id, seq=row.seq),
                asking.of("traceCall", run=run_id, seq=row.seq),
            )
    blobs: list[dict[str, Any]] = answer.get("blobs") or []
    said: dict[str, Any] = {
        key: answer[key] for key in ("message", "data") if answer.get(key)
    }
    return {
        "of_chosen": own,
        "explained": explained,
        "traced": traced and traced["values"],
        "answer": said or _payload(own, "ToolFailed") or _payload(own, "ToolDenied"),
        "images": [one["sha256"] for one in blobs if one.get("media_type") in IMAGES],
        "child": _child(run_id, own),
    }


def _child(run_id: str, events: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the run that answers a call of an agent."""
    for one in events:
        if one["type"] == "ToolInvoked" and one["payload"] is not None:
            event = from_payload(one["type"], one["schema_version"], one["payload"])
            assert isinstance(event, ToolInvoked)  # noqa: S101 -- by its type
            return callee_of(stream_of(run_id), event)
    return None


#: Media types of answers that are shown as images.
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def diff(asking: Asking) -> Shown:
    """Show the differences between two runs."""
    run_id, other = asking.request.path_params["run"], asking.query.get("with", "")
    if len(other) < 32:  # noqa: PLR2004 -- an id that was typed in part
        found = await asking.of("listRuns", prefix=other, limit=2)
        if len(found["runs"]) != 1:
            raise Refusal("not-found", "no one run begins with that")
        other = found["runs"][0]["run_id"]
    found = await asking.of("compareRuns", **{"run": run_id, "with": other})
    return Shown(template="diff", title="Two runs", values={"diff": found})


async def inbox(asking: Asking) -> Shown:
    """Show what waits for a person."""
    found = await asking.of(
        "listApprovals", limit=WAITING, cursor=asking.query.get("cursor")
    )
    doubts = await asking.of("listRuns", state="suspended", reason="in_doubt", limit=50)
    number = waits(found)
    run = asking.query.get("run")
    for kind in ("approvals", "questions"):
        found[kind] = [one for one in found[kind] if run in {None, one["run_id"]}]
        for one in found[kind]:
            one["decidable"] = _decides(asking, one)
    return Shown(
        template="inbox",
        title="Inbox",
        values={
            "approvals": found["approvals"],
            "questions": found["questions"],
            "doubts": doubts["runs"],
            "more": found["next"],
            "inbox": number,
        },
    )


def waits(found: Mapping[str, Any]) -> int:
    """Return how much of a page of approvals waits for a person."""
    return len(found["approvals"]) + len(found["questions"])


def _decides(asking: Asking, one: Mapping[str, Any]) -> bool:
    who = asking.who
    if not who.may("decide", one["agent"]) or one.get("expired"):
        return False
    if one["by"] and not {*one["by"]} & {*who.roles}:
        return False
    return not (one.get("not_by") and who.is_actor(one["not_by"]))


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


def json_of(text: str, name: str) -> JSON:
    """
    Return the value of a field that holds JSON.

    Raises:
        Refusal: It does not.
    """
    try:
        return load_json(text, limit=1_000_000)
    except BadBytes as exc:
        raise Refusal(
            "bad-request", f"{name}: {exc}", fix='write JSON, like {"a": 1}'
        ) from None


#: Paths below ``/ui``, and their pages.
VIEWS: Mapping[str, View] = {
    "/runs": runs,
    "/runs/{run}": run,
    "/runs/{run}/diff": diff,
    "/inbox": inbox,
    "/agents": agents,
    "/servers": servers,
    "/servers/{name}": server,
}
