"""
Where a log was verified last on this machine, signed with its key.

    signed/INCARNATION.DATABASE.verified    0600: a signed note, then the frontier

The note is one of another origin than a checkpoint, so that neither can pass for the
other. Its name has what else counts: the log, the times of this and of the last full
verification, where the events end, and which database it was. The root in it is that of
the frontier. Nobody who writes to the database can make one; what is not valid is as if
it were not there, and the log is verified in full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from ..core.log.checkpoint import MAX_NOTE, Checkpoint, origin_of, parse_note
from ..core.log.tree import Frontier
from ..errors import BadBytes
from ..lib.files import replace_file
from ..lib.signing import Keyring, judge
from .diagnosis import path_of
from .file_guard import on_disk
from .incarnation import Marks
from .schema import tree
from .verify import Place

_NUMBER = "(0|[1-9][0-9]{0,18})"
_NAME = re.compile(
    f"caxton-host/verified/([0-9a-f]{{32}})/{_NUMBER}/{_NUMBER}/{_NUMBER}/"
    f"([0-9]{{0,20}})/([0-9a-f]{{32}})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """
    A successful verification.

    Attributes:
        place: Up to where.

        at: When, in microseconds since 1970.

        full_at: When all of it was verified at once.
    """

    place: Place
    at: int
    full_at: int


class Verifications:
    """
    The newest verification of a log, in the state folder.

    Args:
        path: Its file.

        database: Which database it is: a copy has the same name.

        keys: The keys of this machine.
    """

    def __init__(self, path: Path, database: str, keys: Keyring) -> None:
        self._path = path
        self._database = database
        self._keys = keys

    @classmethod
    def of(cls, engine: sa.Engine, state: Path, keys: Keyring) -> Self | None:
        """Return those of a log; ``None``: it has no name yet."""
        with engine.connect() as connection:
            name = connection.scalar(sa.select(tree.c.incarnation))
        if name is None:
            return None
        file = path_of(engine)
        where = engine.url.render_as_string(hide_password=True)
        if file is not None:
            found = file.stat()
            where = f"{found.st_dev} {found.st_ino}"
        database = sha256(where.encode()).hexdigest()[:32]
        path = Marks.of(state).path(name).with_suffix(f".{database[:8]}.verified")
        return cls(path, database, keys)

    def newest(self) -> Verified | None:
        """Return the newest verification, if one is there that this machine signed."""
        try:
            with self._path.open("rb") as file:
                text, _, data = file.read(2 * MAX_NOTE).rpartition(b"\n")
            note = parse_note(text + b"\n")
            size = note.checkpoint.size
            frontier = Frontier.parse(size, bytes.fromhex(data.decode()))
        except (OSError, BadBytes, ValueError):
            return None
        name = _NAME.fullmatch(note.checkpoint.origin)
        is_ours = judge(note, self._keys.known()) == "trusted"
        is_it = frontier.root() == note.checkpoint.root
        if name is None or not (is_ours and is_it) or name[6] != self._database:
            return None
        return Verified(
            place=Place(
                tree=frontier,
                origin=origin_of(bytes.fromhex(name[1])),
                position=int(name[4]),
                xid=name[5],
            ),
            at=int(name[2]),
            full_at=int(name[3]),
        )

    def keep(self, found: Verified) -> None:
        """Sign and keep a verification; no key is made for it."""
        if not self._keys.known():
            return
        place = found.place
        log = place.origin.rpartition("/")[2]
        name = (
            f"caxton-host/verified/{log}/{found.at}/{found.full_at}/"
            f"{place.position}/{place.xid}/{self._database}"
        )
        root = place.tree.root()
        note = self._keys.sign(Checkpoint(origin=name, size=place.tree.size, root=root))
        data = f"{note.text()}{place.tree.to_bytes().hex()}"
        replace_file(self._path, data.encode(), mode=0o600)
        on_disk(self._path)
