"""
A copy takes the place of an SQLite log.

It is copied into a draft beside the log first, where it is migrated, checked and made a
log of its own. Then one rename replaces the log, which keeps another name: a crash at
any moment leaves the log as it was, or the restored one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from ..errors import StoreError, UsageError
from .copies import named
from .diagnosis import DAMAGES, code_of, explain
from .file_guard import on_disk
from .migrate import current, upgrade

#: What SQLite keeps beside a database.
_BESIDE = ("-wal", "-shm", "-journal")
#: Seconds to wait for another process that has the log open.
_PATIENCE_S = 2.0

_SAME = "n.stream = o.stream AND n.seq = o.seq"
_LACKING = f"""\
SELECT count(*) FROM old.events o WHERE NOT EXISTS
  (SELECT 1 FROM main.events n WHERE {_SAME} AND n.hash = o.hash)"""  # noqa: S608 -- ours
_ERASED = f"""\
SELECT DISTINCT substr(o.stream, 5) FROM old.events o JOIN main.events n ON {_SAME}
  WHERE o.stream LIKE 'run/%' AND n.position IN (SELECT position FROM main.payloads)
  AND o.position NOT IN (SELECT position FROM old.payloads)"""  # noqa: S608 -- ours
_REVOKED = """\
SELECT id, o.revoked_at FROM old.tokens o JOIN main.tokens n USING (id)
  WHERE o.revoked_at IS NOT NULL AND n.revoked_at IS NULL"""


@dataclass(frozen=True, slots=True)
class Lost:
    """
    What a log has and its copy lacks.

    Attributes:
        events: How many events; ``None``: the log cannot be read.

        erased: Runs whose data the copy still has.

        revoked: Tokens that the copy still accepts, and when they were revoked.
    """

    events: int | None
    erased: tuple[str, ...] = ()
    revoked: tuple[tuple[str, int], ...] = ()


def url_of(file: Path) -> str:
    """Return the address of a database in a file."""
    made = sa.URL.create("sqlite", database=str(file))
    return made.render_as_string(hide_password=False)


def draft_of(log: Path) -> Path:
    """Return the file of the draft."""
    return log.with_name(f".{log.name}.restoring")


def adopt(draft: Path, copy: Path) -> None:
    """
    Give *draft* the schema of this version.

    Raises:
        UsageError: It, and *copy* of which it was made, is not a log.

        StoreError: It is of a later version.
    """
    if current(url_of(draft)) is None:
        raise UsageError(
            f"{copy} holds no log of this host", fix="name a copy of a log"
        )
    upgrade(url_of(draft))


def compare(draft: Path, log: Path) -> Lost:
    """
    Return what *log* has that *draft* lacks.

    Raises:
        StoreError: The log is there and cannot be opened now.
    """
    if not log.exists():
        # Readers leave an empty one.
        wal = log.with_name(f"{log.name}-wal")
        return Lost(None if wal.exists() and wal.stat().st_size else 0)
    opened = sqlite3.connect(_reading(draft), uri=True)
    with contextlib.closing(opened) as connection:
        try:
            connection.execute("ATTACH ? AS old", (_reading(log),))
            (events,) = connection.execute(_LACKING).fetchone()
            erased = connection.execute(_ERASED).fetchall()
            revoked = connection.execute(_REVOKED).fetchall()
        except sqlite3.Error as exc:
            if code_of(exc) in {*DAMAGES, sqlite3.SQLITE_ERROR}:
                return Lost(None)
            text, fix = explain(exc, log, "see `caxton db status`")
            raise StoreError(f"{log} cannot be read: {text}", fix=fix) from None
    return Lost(events, tuple(run for (run,) in erased), tuple(revoked))


def replace_log(draft: Path, log: Path, kept: Path, *, is_sound: bool) -> Path | None:
    """
    Put *draft* in the place of *log*, and return the new name of that if it was there.

    Args:
        draft: A whole database, which no process has open.

        log: The file of the log.

        kept: The new name.

        is_sound: SQLite can read the log; otherwise it is not opened, which could
            change it.

    Raises:
        StoreError: A process has the log open, or the disk does not take it.
    """
    with contextlib.ExitStack() as stack:
        try:
            if is_there := log.exists():
                draft.chmod(log.stat().st_mode & 0o777)
                if is_sound:
                    stack.enter_context(_alone(log))
            for path in _beside(log):
                if path.exists():
                    path.rename(kept.with_name(path.name.replace(log.name, kept.name)))
            if is_there:
                # Where links exist, there is a log at every moment.
                named(log, kept)
            on_disk(draft)
            draft.replace(log)
            on_disk(log)
        except (OSError, sqlite3.Error) as exc:
            text, fix = explain(exc, log, f"see what has it open: fuser {log}")
            raise StoreError(f"{log} cannot be replaced: {text}", fix=fix) from None
    return kept if is_there else None


@contextlib.contextmanager
def _alone(log: Path) -> Generator[None]:
    """
    Lock a database for everybody else, with all of it in its one file.

    SQLite refuses that while another process has it open.
    """
    opened = sqlite3.connect(log, isolation_level=None, timeout=_PATIENCE_S)
    with contextlib.closing(opened) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("BEGIN EXCLUSIVE")
        yield


def _reading(file: Path) -> str:
    return f"file:{quote(str(file))}?mode=ro"


def _beside(log: Path) -> list[Path]:
    return [log.with_name(log.name + end) for end in _BESIDE]
