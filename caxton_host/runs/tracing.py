"""The runs through which the values of a run are traced: itself, and its parents."""

from __future__ import annotations

from ..core.analysis.tracing import TracedRun
from ..errors import NotFoundError, NotKeptError
from ..ports.history import Streams
from .recording import Recording

#: Most parents of a run. Children are bounded by a limit that is lower.
_MOST = 32


async def lineage(recording: Recording, store: Streams) -> list[TracedRun]:
    """Return a run and its parents, as far as the log has them, the nearest first."""
    found: list[TracedRun] = []
    while True:
        started = recording.started
        run = TracedRun(recording.run_id, recording.history, started.called_by)
        found.append(run)
        if started.parent is None or len(found) > _MOST:
            return found
        try:
            recording = await Recording.load(started.parent, store)
        except (NotFoundError, NotKeptError):
            return found
