# ruff: noqa: INP001 -- Alembic loads it by its path
"""
The tree over all events, and the checkpoints of it.

The tree of a log that is there already is empty at first: whoever appends next makes
up for it. Checkpoints stay as they were written.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Bring the schema here from the one before."""
    shared = op.get_bind().dialect.name == "postgresql"
    tree = op.create_table(
        "tree",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("frontier", sa.LargeBinary, nullable=False),
        sa.Column("xid", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="ck_tree_id"),
    )
    first = {"id": 1, "size": 0, "frontier": b"", "xid": "0", "position": 0}
    op.bulk_insert(tree, [first])
    op.create_table(
        "checkpoints",
        sa.Column(
            "id",
            _POSITION,
            *([sa.Identity(always=True)] if shared else []),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("note", sa.LargeBinary, nullable=False),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("signed_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_checkpoints_size", "checkpoints", ["size"])
    if shared:
        _create_postgresql_triggers()
    else:
        _create_sqlite_triggers()


def _create_postgresql_triggers() -> None:
    for verb in ("UPDATE", "DELETE", "TRUNCATE"):
        name = f"checkpoints_no_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON checkpoints "
            "FOR EACH STATEMENT EXECUTE FUNCTION caxton_append_only()"
        )
        op.execute(f"ALTER TABLE checkpoints ENABLE ALWAYS TRIGGER {name}")


def _create_sqlite_triggers() -> None:
    refuse = "BEGIN SELECT RAISE(ABORT, 'checkpoints are append-only'); END"
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER checkpoints_no_{verb.lower()} "
            f"BEFORE {verb} ON checkpoints {refuse}"
        )
    victim = "EXISTS (SELECT 1 FROM checkpoints WHERE id = NEW.id)"
    op.execute(
        "CREATE TRIGGER checkpoints_no_replace "
        f"BEFORE INSERT ON checkpoints WHEN {victim} {refuse}"
    )
