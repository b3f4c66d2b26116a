"""What programs are told: documents that each name their type."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..calls import JSON
from ..log.checkpoint import Checkpoint
from ..log.events import Recorded
from ..log.payloads import to_payload
from ..tools.contexts import ServerResource
from .tool_catalog import Offer

#: Why no server of a configuration is there, and what mends it.
SERVERS_OFF = "[mcp] enabled = false turns every tool server off"
SERVERS_ON = "remove enabled = false from [mcp]"


def checkpoint_document(checkpoint: Checkpoint, note: str) -> dict[str, JSON]:
    """Return the ``caxton.checkpoint/v1`` document of a signed *note*."""
    return {
        "$type": "caxton.checkpoint/v1",
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "note": note,
    }


def event_document(recorded: Recorded) -> dict[str, JSON]:
    """Return the ``caxton.event/v1`` document of an event."""
    event = recorded.event
    return {
        "$type": "caxton.event/v1",
        "position": recorded.position or None,
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


def tool_document(
    offer: Offer, accepted: Mapping[tuple[str, str], str]
) -> dict[str, JSON]:
    """Return the ``caxton.tool/v1`` document of a tool."""
    before = accepted.get((offer.server, offer.tool))
    return {
        "$type": "caxton.tool/v1",
        "server": offer.server,
        "tool": offer.tool,
        "exposed": offer.exposed,
        "description": offer.description,
        "input_schema": offer.parameters,
        "effect": offer.effect,
        "definition_sha256": offer.definition_sha256,
        "accepted": None if before is None else before == offer.definition_sha256,
        "on_change": offer.on_change,
    }


def server_document(name: str, described: JSON) -> dict[str, JSON]:
    """Return the ``caxton.server/v1`` document of a server, secrets masked."""
    assert isinstance(described, dict)  # noqa: S101 -- a table
    command = described.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return {
        "$type": "caxton.server/v1",
        "name": name,
        "transport": described["transport"],
        "address": shlex.join(words) if words else described["url"],
        "required": described["required"],
        "origin": described["origin"],
    }


def server_test_document(
    name: str,
    facts: Mapping[str, JSON],
    tools: list[str],
    resources: Sequence[ServerResource],
    problem: str | None = None,
) -> dict[str, JSON]:
    """
    Return the ``caxton.server-test/v1`` document of a server that was asked.

    Args:
        name: The server.

        facts: What it says of itself.

        tools: The names of its tools.

        resources: What a run would read of it.

        problem: Why it does not answer, or ``None``.
    """
    return {
        "$type": "caxton.server-test/v1",
        "server": name,
        "answers": problem is None,
        "problem": problem,
        **{key: facts.get(key) for key in ("name", "version", "protocol")},
        "tools": [*tools],
        "resources": [
            {"key": one.key, "uri": one.uri, "bytes": one.size, "error": one.error}
            for one in resources
        ],
    }
