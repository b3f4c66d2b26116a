"""
Cursors of the whole log for principals that may not see all of it.

A place in the log reveals the number of all events. Its cursor is sealed
with a key that every host of the log can derive, and no caller: the hash of the first
event of a host. Only `admin` and `auditor` without a tenant see events of hosts; what
is sent of them elsewhere is a hash of that hash.
"""

from __future__ import annotations

import base64
import secrets
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256

from ...core.grants.principals import Principal
from ...core.names import RUN
from ...lib.signing import opened, sealed
from ...ports.history import Readings
from ..edge.messages import NO_CURSOR, Refusal

#: Every place has as many bytes, so that a cursor does not tell how long its number is.
_SIZE = 40
_PREFIX = "o-"


class Plain:
    """Cursors in the form of the store."""

    def write(self, place: str) -> str:
        """Return the cursor of a place."""
        return place

    def read(self, cursor: str) -> str:
        """Return the place that a cursor means."""
        return cursor


@dataclass(frozen=True, slots=True)
class Sealed(Plain):
    """Cursors that only hosts of the log can read."""

    key: bytes = field(repr=False)

    def write(self, place: str) -> str:
        """Return a cursor of a place, different each time."""
        box = sealed(self.key, place.encode().ljust(_SIZE), b"cursor")
        return _PREFIX + base64.urlsafe_b64encode(box).decode()

    def read(self, cursor: str) -> str:
        """
        Return the place that a cursor means.

        Raises:
            Refusal: No host of this log made it.
        """
        try:
            box = base64.urlsafe_b64decode(cursor.removeprefix(_PREFIX))
        except ValueError:
            box = b""
        place = opened(self.key, box, b"cursor")
        if place is None:
            raise Refusal(
                "bad-request",
                "not a cursor that this log gave to a token like yours",
                fix=NO_CURSOR,
            )
        return place.decode().rstrip()


@dataclass(slots=True)
class Cursors:
    """Chooses the form of cursors for a principal."""

    _key: bytes | None = field(default=None, init=False)

    async def of(self, who: Principal, store: Readings) -> Plain:
        """Return the form of cursors of *store* for *who*."""
        if who.may("auditor"):
            return Plain()
        if self._key is None:
            self._key = await _derived(store)
        return Sealed(self._key)


async def _derived(store: Readings) -> bytes:
    async with aclosing(store.tail(None, follow=False)) as events:
        async for recorded, _ in events:
            if not recorded.stream.startswith(RUN):
                return sha256(b"caxton.cursors/v1" + recorded.hash).digest()
    # No host has written yet, so no client has a cursor.
    return secrets.token_bytes(32)
