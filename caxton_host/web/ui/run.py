"""The page of a run: its timeline, what is known of one call, and its differences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ...config.model import TRACE_ID
from ...core.log.runs import GOING_ON
from ...errors import UsageError
from ..edge.messages import Refusal
from .asking import Asking, Shown, View
from .forms import fields_of
from .lanes import hang
from .timeline import Row, rows_of
from .views import address, may

#: Events on one page of a run.
_EVENTS = 200
#: Characters of a program that are shown, and what names a line of it in an error.
_SOURCE, _LINE = 20_000, re.compile(r"\bline (\d{1,6})\b")
#: Lines that are shown before and behind one that made a call.
_AROUND = 6
#: Characters of each of them.
_WIDE = 1_000
#: What an id of a run is made of.
_PART = re.compile(r"[0-9a-f-]+", re.ASCII)
#: Media types of answers that are shown as images.
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def run(asking: Asking) -> Shown:
    """Show a run: its timeline, and the call of one event."""
    run_id = asking.request.path_params["run"]
    path = f"/ui/runs/{run_id}"
    found = await asking.of("showRun", run=run_id)
    seq = asking.number("seq")
    after = asking.number("after") or 0
    if seq is not None and not after < seq <= after + _EVENTS:
        after = max(seq - _EVENTS // 4, 0)
    # One event more: each is chained to the one before it.
    got = await _events(asking, run_id, after - 1, _EVENTS + (after > 0))
    hashes = {one["seq"]: one["hash"] for one in got["events"]}
    events: list[dict[str, Any]] = [e for e in got["events"] if e["seq"] > after]
    rows = rows_of(events)
    await hang(asking, rows, events)
    chosen = next((row for row in rows if seq in row.seqs), None)
    kept = {"after": after or None, "lines": 1 if asking.query.get("lines") else None}
    values: dict[str, Any] = {
        "run": found,
        "going_on": GOING_ON,
        "mine": asking.who.owns(found["actor"]) if found["actor"] else False,
        "may": may(asking),
        "rows": rows,
        "chosen": chosen,
        "doubt": await doubt_of(asking, found),
        "trace_url": _trace_url(asking, found["trace_id"]),
        "started": _payload(events, "RunStarted"),
        "first": path if after else None,
        "next": address(path, {"after": events[-1]["seq"]}) if got["more"] else None,
        "row_path": partial(_row_path, path, kept),
        "live": f"{path}/live"
        if found["state"] in GOING_ON and not got["more"]
        else None,
        "after": got["cursor"] or "",
        # The events of the runs that answer its calls are not in its stream.
        "counting": found["state"] == "running"
        and any(row.child and row.ended is None for row in rows),
    }
    if chosen:
        values |= await _chosen(asking, run_id, chosen, events)
        values["hashes"] = hashes
        place = rows.index(chosen)
        for name, at in (("before", place - 1), ("behind", place + 1)):
            near = rows[at] if 0 <= at < len(rows) else None
            values[name] = _row_path(path, kept, near) if near else None
        values["source"] = await _calling(asking, found, chosen.call)
    else:
        values["source"] = await _source(asking, found)
    return Shown(template="run", title=f"{found['agent']} {run_id[:8]}", values=values)


def _row_path(path: str, kept: Mapping[str, int | None], row: Row, **more: int) -> str:
    given = {**kept, "seq": row.seq, **more}
    return address(path, {name: it for name, it in given.items() if it is not None})


async def _events(asking: Asking, run_id: str, after: int, limit: int) -> Any:  # noqa: ANN401 -- a document
    """Return a page of the events of a run, behind the one with a number."""
    # The cursor of a run is the number of an event.
    cursor = f"n-{after}" if after > 0 else None
    return await asking.of("runEvents", run=run_id, limit=limit, after=cursor)


async def doubt_of(asking: Asking, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call in doubt that a run waits for, and what it is compared with."""
    if run["waits_for"] != "in_doubt":
        return None
    run_id = run["run_id"]
    got = await _events(asking, run_id, run["events"] - _EVENTS, _EVENTS)
    found = [
        row for row in rows_of(got["events"]) if row.call and row.outcome == "open"
    ]
    if not found:
        return None
    told = await told_of(asking, run_id, found[0].seq)
    schema = told["context"] and told["context"]["output_schema"]
    return {"run": run, "row": found[0], "fields": fields_of(schema), **told}


async def told_of(asking: Asking, run_id: str, seq: int) -> dict[str, Any]:
    """Return what operations say of the call of an event; ``None``: nothing."""

    async def told(operation: str) -> Any:  # noqa: ANN401 -- a document
        # Refused: it has no beginning in this stream, or the run was erased.
        with suppress(UsageError):
            return await asking.maybe(operation, run=run_id, seq=seq)
        return None

    found = await asyncio.gather(*map(told, _TOLD.values()))
    return dict(zip(_TOLD, found, strict=True))


#: What is told of a call, and the operations that tell it.
_TOLD = {
    "explained": "explainCall",
    "traced": "traceCall",
    "context": "callContext",
}


def _trace_url(asking: Asking, trace_id: str | None) -> str | None:
    """Return where the operator's tools show a trace."""
    url = asking.desk.service.config().telemetry.trace_url
    return url.replace(TRACE_ID, trace_id) if url and trace_id else None


async def _text(asking: Asking, run: Mapping[str, Any]) -> str:
    """Return the source of a run's program."""
    sha256 = run["program"]["sha256"]
    found = await asking.response("runBlob", run=run["run_id"], sha256=sha256)
    return bytes(found.body).decode(errors="replace")


async def _source(asking: Asking, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the source of a run's program, and the lines that its error names."""
    if not run["program"] or not asking.who.may("read"):
        return None
    text = await _text(asking, run)
    error = run["error"]["message"] if run["error"] else ""
    return {
        "name": run["program"]["name"],
        "first": 1,
        "lines": text[:_SOURCE].split("\n"),
        "is_cut": len(text) > _SOURCE,
        "named": {int(n) for n in _LINE.findall(error)},
    }


async def _calling(
    asking: Asking, run: Mapping[str, Any], call: int | None
) -> dict[str, Any] | None:
    """Return the part of a run's program that made a call, once that was asked for."""
    can = asking.who.may("read") and not asking.desk.reading
    if call is None or not run["program"] or not can:
        return None
    if not asking.query.get("lines"):
        return {"lines": None}
    told: dict[str, int] | None = None
    with suppress(UsageError):  # It cannot be executed.
        told = (await asking.of("callingLines", run=run["run_id"]))["lines"]
    line = told.get(str(call)) if told else None
    if line is None:
        return {"lines": []}
    first = max(line - _AROUND, 1)
    lines = (await _text(asking, run)).split("\n")[first - 1 : line + _AROUND]
    return {
        "name": run["program"]["name"],
        "first": first,
        "lines": [one[:_WIDE] for one in lines],
        "named": {line},
    }


def _payload(events: Iterable[Mapping[str, Any]], kind: str) -> Any:  # noqa: ANN401 -- a document
    return next((one["payload"] for one in events if one["type"] == kind), None)


async def _chosen(
    asking: Asking, run_id: str, row: Row, events: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Return what is shown of the chosen row."""
    own = [one for one in events if one["seq"] in row.seqs]
    answer: Any = _payload(own, "ToolCompleted") or {}
    told = dict.fromkeys(_TOLD)
    if row.call is not None:
        told = await told_of(asking, run_id, row.seq)
    blobs: list[dict[str, Any]] = answer.get("blobs") or []
    said: dict[str, Any] = {
        key: answer[key] for key in ("message", "data") if answer.get(key)
    }
    return {
        **told,
        "of_chosen": own,
        "places": await _places(asking, run_id, {own[0]["seq"], own[-1]["seq"]}),
        "invoked": _payload(own, "ToolInvoked"),
        "attempts": 1 + sum(one["type"] == "ToolRetried" for one in own),
        "answer": said or _payload(own, "ToolFailed") or _payload(own, "ToolDenied"),
        "images": [one["sha256"] for one in blobs if one.get("media_type") in IMAGES],
    }


async def _places(asking: Asking, run_id: str, seqs: Iterable[int]) -> Any:  # noqa: ANN401 -- documents
    """Return where events are in the tree, for who may know of those of others."""
    found = [await asking.maybe("placeOfEvent", run=run_id, seq=seq) for seq in seqs]
    return {one["seq"]: one for one in found if one}


async def diff(asking: Asking) -> Shown:
    """Show the differences between two runs."""
    run_id, other = asking.request.path_params["run"], asking.query.get("with", "")
    other = other.strip().lower()
    if len(other) < 32:  # noqa: PLR2004 -- an id that was typed in part
        fix = "type the id of a run of the list, or more of it"
        if not _PART.fullmatch(other):
            raise Refusal("not-found", "no run begins with that", fix=fix)
        found = await asking.of("listRuns", prefix=other, limit=2)
        if len(found["runs"]) != 1:
            raise Refusal("not-found", "no one run begins with that", fix=fix)
        other = found["runs"][0]["run_id"]
    found = await asking.of("compareRuns", **{"run": run_id, "with": other})
    return Shown(template="diff", title="Two runs", values={"diff": found})


#: Paths below ``/ui``, and their pages.
VIEWS: Mapping[str, View] = {"/runs/{run}": run, "/runs/{run}/diff": diff}
