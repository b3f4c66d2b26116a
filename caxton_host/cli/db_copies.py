"""``caxton db``: copy the log, by the clock too, and restore it from a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..errors import CaxtonError, UsageError
from .audit import keys_option, notes_in, outside_option
from .context import SIGNED, HostApi, on_host, wait
from .options import Duration
from .output import (
    AUDIT,
    complain,
    counted,
    note,
    patience,
    progress,
    remedy,
    say,
    show,
)
from .verdict import refuse, trusted

if TYPE_CHECKING:
    from ..app.copies import Copies, Kept, Restored
    from ..config import Config
    from ..core.log.checkpoint import Note
    from ..store.copies import Shelf

#: Seconds until a copy that failed is tried again, at most.
_AGAIN_S = 300.0
_SEE = "see that the folder of the copies exists, and that its disk has room"


@on_host(click.command("backup"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--every", type=Duration(), help="Make a copy now, and again after each such time."
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    help="FILE is a folder: verify the copy, and keep so many.",
)
def backup(
    host: HostApi, file: Path, every: float | None, keep: int | None, as_json: bool
) -> None:
    """
    Copy the store to the new FILE while hosts write.

    The copy is a complete database: every command that reads accepts it as --db.
    PostgreSQL is copied by its own program: the command is printed, with exit code 2,
    since nothing was copied.

    With --keep, FILE is a folder. The copy is verified before it gets its name there,
    like caxton-20260131T120000Z.db, and only then the oldest copies are removed. What
    fails removes nothing. With --every, the command goes on until it is stopped, and
    reports what failed.

    \b
    Exit codes: 0 copied; 1 disk full, or unreadable; 2 FILE exists, or PostgreSQL;
      5 the copy does not verify.

    \b
    Examples:
      caxton db backup caxton-2026-01-31.db
      caxton --db sqlite:///caxton-2026-01-31.db audit verify --copy
      caxton db backup copies --every 1h --keep 24
    """
    from ..store.copies import Shelf, dump_command
    from ..store.engine import file_of

    config = host.look("audit")
    log = file_of(config.store_url)
    if log is None:
        raise UsageError(
            "PostgreSQL is copied by its own program",
            fix=dump_command(config.store_url, file),
        )
    if keep is not None:
        copies = _copies(host, config, trusted(host, ()))
        wait(_keep(copies, Shelf(file, log), keep, every, as_json=as_json))
        return
    if every is not None:
        raise UsageError("--every needs --keep", fix="add --keep 24")
    size = wait(_copy(config, file))
    if as_json:
        show({"$type": "caxton.backup/v1", "file": str(file), "bytes": size})
    else:
        say(f"copied {size} bytes to {file}")
        note(f"check it with: caxton --db sqlite:///{file} audit verify --copy")


def _copies(
    host: HostApi,
    config: Config,
    known: Collection[bytes],
    outside: Sequence[Note] = (),
) -> Copies:
    from ..app.copies import Copies

    return Copies(
        config=config,
        paths=host.paths(),
        trusted=known,
        outside=outside,
        step=patience,
    )


async def _copy(config: Config, file: Path) -> int:
    from ..app.copies import copy_database

    with progress("copying") as tell:
        return await copy_database(config.store_url, file, tell)


async def _keep(
    copies: Copies, shelf: Shelf, keep: int, every: float | None, *, as_json: bool
) -> None:
    while True:
        try:
            _say_kept(await copies.keep(shelf, keep), as_json=as_json)
            pause = every
        except (CaxtonError, OSError) as exc:
            last = shelf.copies()[-1:]
            note(f"the last good copy: {last[0].name if last else 'none'}")
            if not every:
                raise
            complain(str(exc), remedy(exc) if isinstance(exc, CaxtonError) else _SEE)
            pause = min(every, _AGAIN_S)
        if not pause:
            return
        await asyncio.sleep(pause)


def _say_kept(made: Kept, *, as_json: bool) -> None:
    if as_json:
        show(
            {
                "$type": "caxton.backup/v1",
                "file": str(made.file),
                "bytes": made.size,
                "events": made.events,
                "removed": [str(path) for path in made.removed],
            }
        )
    else:
        removed = f", removed {len(made.removed)} older" * bool(made.removed)
        events = counted(made.events, "event")
        say(f"copied {made.size} bytes to {made.file}, verified {events}{removed}")


@on_host(click.command("restore"))
@click.argument("copy", type=click.Path(path_type=Path))
@click.option(
    "--lose-events",
    "lose",
    is_flag=True,
    help="Restore it although the log has events that COPY lacks.",
)
@outside_option
@keys_option
def restore(
    host: HostApi,
    copy: Path,
    lose: bool,
    outside: tuple[Path, ...],
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Put COPY in the place of the log.

    The copy is verified first, with its checkpoints and what this machine has signed.
    Stop all hosts of the log before. The log that is replaced stays beside it, under
    another name. A crash in between leaves the one or the other.

    The restored log is a log of its own: its unfinished runs are suspended until
    caxton runs resume --restored. Tokens that were revoked since, and runs that were
    erased, are revoked and erased again, if the old log can still be read.

    Without --lose-events, nothing is restored if the log has events that COPY lacks, or
    cannot be read, or if checkpoints cover more events than COPY has.

    \b
    Exit codes: 0 restored; 1 a host has the log open, or the disk is full; 2 COPY is no
      copy, or lacks events; 5 COPY is broken, or not signed by a trusted key.

    \b
    Examples:
      caxton db restore copies/caxton-20260131T120000Z.db
      caxton db restore backup.db --lose-events
      caxton --db sqlite:///new.db db restore backup.db --checkpoint anchored.txt
    """
    from ..store.engine import file_of

    config = host.look(*SIGNED)
    log = file_of(config.store_url)
    if log is None:
        raise UsageError(
            "PostgreSQL is restored by its own program",
            fix="createdb, pg_restore, then caxton db accept-copy: "
            "docs/how-to/restore.md#postgresql",
        )
    if not copy.is_file() or (log.exists() and copy.samefile(log)):
        wrong = "is the log itself" if copy.is_file() else "is no file"
        raise UsageError(f"{copy} {wrong}", fix="name a copy of the log")
    kept = [one for path in outside for one in notes_in(path)]
    copies = _copies(host, config, trusted(host, keys), kept)
    done = wait(copies.restore(copy, log, lose=lose))
    if done.verdict.verdict != "intact":
        refuse(done.verdict, bundled=False)
        raise Exit(AUDIT)
    if as_json:
        show(_document(copy, log, done))
    else:
        _say_restored(host, copy, done)


def _document(copy: Path, log: Path, done: Restored) -> dict[str, JSON]:
    return {
        "$type": "caxton.restored/v1",
        "copy": str(copy),
        "file": str(log),
        "kept": str(done.kept) if done.kept else None,
        "events": done.verdict.events,
        "lost": _lost(done),
        "unsigned": done.verdict.lag,
        "suspended": done.runs,
        "erased": [*done.erased],
        "returned": [*done.returned],
        "revoked": [*done.revoked],
        "tokens": done.tokens,
    }


def _lost(done: Restored) -> int | None:
    """Return how many events of the old log are lost, if that is known."""
    return done.lost.events if done.lost and done.kept else None


def _say_restored(host: HostApi, copy: Path, done: Restored) -> None:
    lost = _lost(done)
    said = {
        "restored": f"{counted(done.verdict.events, 'event')} of {copy}",
        "lost": f"{'unknown' if lost is None else counted(lost, 'event')}",
        "lost, and covered by checkpoints": done.verdict.lag,
        "lists repaired": done.repaired,
        "suspended": counted(done.runs, "run"),
        "revoked again": ", ".join(done.revoked),
        "erased again": ", ".join(done.erased),
        "the old log": done.kept,
    }
    for name, value in said.items():
        if value:
            say(f"{name}: {value}")
    for run in done.returned:
        note(f"warning: run {run} had been erased, and its data is back")
        note(host.named(f"To fix: end it, then caxton audit erase {run} --reason WHY"))
    if done.tokens:
        note(
            host.named(
                f"next: revoke what must not be among {counted(done.tokens, 'token')}: "
                "caxton serve token list"
            )
        )
    if done.runs:
        note(host.named("next: caxton runs list --state suspended"))


COMMANDS = (backup, restore)
