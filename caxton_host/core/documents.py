"""What programs are told: documents that each name their type."""

from __future__ import annotations

from .calls import JSON
from .events import Recorded
from .payloads import to_payload

__all__ = ["event_document"]


def event_document(recorded: Recorded) -> dict[str, JSON]:
    """Return the ``caxton.event/v1`` document of an event."""
    event = recorded.event
    return {
        "$type": "caxton.event/v1",
        "position": recorded.position,
        "stream": recorded.stream,
        "seq": recorded.seq,
        "type": recorded.type,
        "schema_version": recorded.schema_version,
        "recorded_at": recorded.recorded_at,
        "trace_id": recorded.trace_id,
        "span_id": recorded.span_id,
        "payload": to_payload(event) if event else None,
        "hash": recorded.hash.hex(),
    }
