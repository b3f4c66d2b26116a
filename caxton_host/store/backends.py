"""What a store is made of: one way for a file, another for a server."""

from __future__ import annotations

from collections.abc import MutableMapping

import sqlalchemy as sa

from ..lib.signing import Signer
from ..ports import Clock
from .commit import Line, Transactions
from .commit_sqlite import SqliteCommitter
from .committed_mark import Kept
from .engine import file_of
from .file_guard import Whereabouts
from .files import hosts_of
from .leases import FileLeases, Leases
from .seals import Sealer
from .tree_sqlite import SqliteSealer, SqliteTree
from .writer import OnCommit, Writer


def writer_of(
    engine: sa.Engine,
    clock: Clock,
    place: Whereabouts | Kept,
    signer: Signer | None,
    on_commit: OnCommit,
) -> tuple[Writer, Sealer]:
    """Return what appends, and what signs."""
    if isinstance(place, Whereabouts):
        tree = SqliteTree(engine.dialect, clock, signer)
        writer = Writer(SqliteCommitter(engine, tree, clock, place), on_commit)
        return writer, SqliteSealer(writer, tree)
    from .commit_postgres import PostgresCommitter  # noqa: PLC0415 -- an extra
    from .tree_postgres import PostgresTree  # noqa: PLC0415 -- an extra

    writer = Writer(PostgresCommitter(engine, place), on_commit)
    return writer, PostgresTree(engine, clock, signer)


def committer_of(
    engine: sa.Engine, clock: Clock, place: Whereabouts | Kept
) -> Transactions:
    """Return a committer for one transaction, which nobody signs."""
    if isinstance(place, Whereabouts):
        tree = SqliteTree(engine.dialect, clock, None)
        return SqliteCommitter(engine, tree, clock, place)
    from .commit_postgres import PostgresCommitter  # noqa: PLC0415 -- an extra

    return PostgresCommitter(engine, place)


def leases_of(
    url: str, engine: sa.Engine, lines: MutableMapping[str, Line], lease: float
) -> Leases:
    """Return the leases of the hosts that share the database at *url*."""
    file = file_of(url)
    if file is not None:
        return FileLeases(hosts_of(file))
    from .leases_postgres import PostgresLeases  # noqa: PLC0415 -- an extra

    return PostgresLeases(engine, lines, lease)
