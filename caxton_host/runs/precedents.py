"""What a person who decides about a call compares it with: what was called before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from ..core.calls import JSON
from ..core.log.diff import changes
from ..core.log.events import ApprovalDecided, Recorded, ToolInvoked
from ..core.log.runs import NAMING, RunFilter, RunRow, call_list
from ..errors import CaxtonError, NotFoundError
from ..lib import codec
from ..ports.history import LogReader, Streams
from .recording import Recording
from .tracing import call_at

#: Calls that are shown, and runs that are searched for an approval.
_CALLS, _RUNS = 5, 10


async def context_of(
    recording: Recording,
    seq: int,
    reader: LogReader,
    only: RunFilter,
    sees: Callable[[RunRow], bool],
) -> dict[str, JSON]:
    """
    Return the ``caxton.call-context/v1`` document of the call of event *seq*.

    Args:
        recording: The run.

        seq: Any event of the call.

        reader: The log.

        only: The runs in which an approved call is looked for.

        sees: Whether such a run is to be looked at.

    Raises:
        UsageError: It is of no call.
    """
    number = call_at(recording, seq)
    events = (one.event for one in reversed(recording.history))
    call = next(e for e in events if isinstance(e, NAMING) and e.call == number)
    last: dict[str, JSON] | None = None
    tool = f"{call.server}/{call.tool}"
    for row in await reader.runs(_RUNS, replace(only, tool=tool, outcome="ok")):
        run = recording if row.run_id == recording.run_id else None
        if sees(row) and (last := await _approved(row.run_id, tool, reader, run)):
            differences = changes(last["params"], call.params)
            last["differences"] = [one.to_document() for one in differences]
            break
    return {
        "$type": "caxton.call-context/v1",
        "run_id": recording.run_id,
        "call": number,
        "before": call_list(_last_calls([e for e in recording.own if e.seq < seq])),
        "last_approved": last,
        "output_schema": await _output_schema(recording, call.name, reader),
    }


def _last_calls(events: Sequence[Recorded]) -> Sequence[Recorded]:
    """Return events from the intents of the last calls on."""
    behind = range(len(events) - 1, -1, -1)
    intents = (n for n in behind if isinstance(events[n].event, ToolInvoked))
    return events[min(islice(intents, _CALLS), default=0) :]


async def _approved(
    run_id: str, tool: str, store: Streams, run: Recording | None
) -> dict[str, JSON] | None:
    """Return the last call to a tool in a run that people approved, and that was ok."""
    try:
        run = run or await Recording.load(run_id, store)
    except CaxtonError:
        return None  # It was erased, or its log is damaged.
    approved = {
        one.event.call: one.recorded_at
        for one in run.own
        if isinstance(one.event, ApprovalDecided) and one.event.verdict == "approve"
    }
    calls: list[Any] = call_list(run.own if approved else ())
    found = [
        one
        for one in calls
        if (one["tool"], one["outcome"]) == (tool, "ok") and one["call"] in approved
    ]
    if not found:
        return None
    last = found[-1]
    return {
        "run_id": run_id,
        "seq": last["seq"],
        "approved_at": approved[last["call"]],
        "params": last["params"],
    }


async def _output_schema(recording: Recording, name: str, store: Streams) -> JSON:
    """Return what the tool says of its answers; ``None``: nothing that is known."""
    entry = recording.started.catalogue.get(name)
    if not isinstance(entry, dict):
        return None
    with suppress(NotFoundError):
        digest = str(entry["definition_sha256"])
        known: dict[str, JSON] = codec.decode_trusted(await store.blob(digest))
        return known.get("outputSchema")
    return None
