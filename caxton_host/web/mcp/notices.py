"""
What a client of a protocol before 2026-07-28 is told unasked, over HTTP.

It opens a stream with ``GET``, and gets nothing there but a notification for each list
that changed. The id of an event stands for what the client is shown, so a client that
connects again with ``Last-Event-ID`` hears of a change that it missed, and events
need not be kept.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import nullcontext

from ...core.grants.principals import Principal
from ...lib.codec import sha256
from ..edge.event_stream import GREETING, EventStream
from .server import Changes

_LAST = b"last-event-id"
#: The first version whose clients take an event without a message, for its id.
_PRIMED, _VERSION = b"2025-11-25", b"mcp-protocol-version"
#: What is shown may hold what a client must not guess from a digest.
_SALT = secrets.token_hex(32)


def notices(
    changes: Changes, who: Principal, name: str, headers: Mapping[bytes, bytes]
) -> EventStream:
    """
    Return the stream of one client, which ends when it is gone or the host stops.

    Args:
        changes: Watches what clients are shown.

        who: The client's principal.

        name: Of what it is shown.

        headers: Of its request.
    """
    last = headers.get(_LAST, b"").decode("latin-1")
    primed = headers.get(_VERSION) == _PRIMED
    events = _events(changes, who, name, last, primed=primed)
    return EventStream(events, stops=changes.closed, place=nullcontext())


async def _events(
    changes: Changes, who: Principal, name: str, last: str, *, primed: bool
) -> AsyncGenerator[str]:
    def version() -> str:
        return sha256(f"{_SALT} {changes.seen(who, name)!r}".encode())

    with changes.heard(name) as changed:
        begun = version()
        yield f"id: {begun}\ndata:\n\n" if primed and not last else GREETING
        last = last or begun
        while True:
            changed.clear()
            if (now := version()) != last:
                for kind in changes.offered(name):
                    yield _event(now, kind)
            last = now
            await changed.wait()


def _event(version: str, kind: str) -> str:
    method = f'"notifications/{kind}/list_changed"'
    return f'id: {version}\ndata: {{"jsonrpc": "2.0", "method": {method}}}\n\n'
