"""
What a host that is up knows to be committed on its server.

A server that was set back, by a restore or by a replica that lacked the end, has the
same name and address. So each new connection is asked for what was committed last.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

from ..core.log.checkpoint import Note
from ..errors import LogSetBackError
from .schema import checkpoints, events

_Find: TypeAlias = Callable[[sa.Select[Any]], Sized]


@dataclass(slots=True)
class Kept:
    """
    The last things that this process saw committed.

    Attributes:
        event: Stream, number and hash.

        note: The newest checkpoint, of any signer.
    """

    event: tuple[str, int, bytes] | None = None
    note: Note | None = None

    def check(self, find: _Find) -> None:
        """
        Return if the server still has them.

        Args:
            find: Returns the rows of a query.

        Raises:
            LogSetBackError: It has not.
        """
        if self.event:
            stream, seq, hash_ = self.event
            known = events.c.stream == stream, events.c.seq == seq
            query = sa.select(events.c.seq).where(*known, events.c.hash == hash_)
            if not find(query):
                raise _set_back()
        if self.note:
            size, text = self.note.checkpoint.size, self.note.text().encode()
            same = checkpoints.c.size == size, checkpoints.c.note == text
            if not find(sa.select(checkpoints.c.id).where(*same)):
                raise _set_back()


def _set_back() -> LogSetBackError:
    return LogSetBackError(
        "the database lacks events that this host has committed: it was restored "
        "from a copy, or a replica took over that lacked them",
        fix="stop the hosts, then: caxton db accept-copy",
    )
