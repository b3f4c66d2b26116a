"""The runs through which the values of a run are traced: itself, and its parents."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.analysis.tracing import Traced, TracedRun, tool_of, traced
from ..core.calls import JSON
from ..core.log.runs import call_of
from ..errors import NotFoundError, NotKeptError, UsageError
from ..ports.history import Streams
from .recording import Recording

#: Most parents of a run. Children are bounded by a limit that is lower.
_MOST = 32


async def lineage(recording: Recording, store: Streams) -> list[TracedRun]:
    """Return a run and its parents, as far as the log has them, the nearest first."""
    found: list[TracedRun] = []
    while True:
        started = recording.started
        found.append(recording.traced)
        if started.parent is None or len(found) > _MOST:
            return found
        try:
            recording = await Recording.load(started.parent, store)
        except (NotFoundError, NotKeptError):
            return found


def call_at(recording: Recording, seq: int) -> int:
    """
    Return the number of the call that event *seq* of a run is about.

    Raises:
        UsageError: It is about none.
    """
    chosen = next((e for e in recording.own if e.seq == seq), None)
    if chosen is None or (call := call_of(chosen)) is None:
        what = f"is {chosen.type}, not of a call" if chosen else "does not exist"
        raise UsageError(
            f"event {seq} {what}", fix=f"caxton runs show {recording.run_id}"
        )
    return call


def traced_call(
    recording: Recording, runs: Sequence[TracedRun], call: int, below: str = ""
) -> tuple[dict[str, JSON], list[Traced]]:
    """
    Return the ``caxton.trace/v1`` document of a call without its values, and these.

    Args:
        recording: The run.

        runs: It and its parents; see `lineage`.

        call: The number of the call.

        below: Only values at this JSON path, or under it.

    Raises:
        UsageError: The run has no such call, or the call no such value.
    """
    calls = recording.traced.said.calls
    if call not in calls:
        raise UsageError(
            f"run {recording.run_id} has no call {call}",
            fix=f"caxton runs show {recording.run_id}",
        )
    _, recorded, invoked = calls[call]
    found = list(traced(runs, call, below))
    if below and not found:
        names = ", ".join(invoked.params or {}) or "none"
        raise UsageError(
            f"call {call} has no value at {below}; its parameters are: {names}",
            fix="name one of them, or a JSON path below one",
        )
    document: dict[str, JSON] = {
        "$type": "caxton.trace/v1",
        "run_id": recording.run_id,
        "call": call,
        "event": recorded.seq,
        "tool": tool_of(invoked),
    }
    return document, found
