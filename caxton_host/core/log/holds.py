"""Holds: each is an event, in a stream of its own run."""

from __future__ import annotations

from collections.abc import Sequence

from ..calls import JSON
from .events import Recorded, RunHeld

#: Before the id of a run: the stream of its holds.
HOLDS = "holds/"


def hold_document(run_id: str, holds: Sequence[Recorded]) -> dict[str, JSON]:
    """Return the ``caxton.hold/v1`` document of a run, by the stream of its holds."""
    last = holds[-1] if holds else None
    held = last.event if last else None
    return {
        "$type": "caxton.hold/v1",
        "run_id": run_id,
        "hold": {"actor": held.actor, "reason": held.reason, "at": last.recorded_at}
        if last and isinstance(held, RunHeld)
        else None,
    }
