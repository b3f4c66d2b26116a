# ruff: noqa: INP001 -- Alembic loads it by its path
"""What lists show of runs. The rows of old runs are filled later, a few at a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NONE = sa.text("0")


def upgrade() -> None:
    """Bring the schema here from 0009."""
    for column in (
        sa.Column("kind", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text),
        sa.Column("actor_id", _NAME),
        sa.Column("parent", _NAME),
        sa.Column("calls", sa.Text, nullable=False, server_default="{}"),
        sa.Column("tools", sa.Text, nullable=False, server_default="[]"),
        sa.Column("events", sa.BigInteger, nullable=False, server_default=_NONE),
        sa.Column("changed_at", sa.BigInteger, nullable=False, server_default=_NONE),
        sa.Column("due", sa.BigInteger),
        sa.Column("phase", sa.Text),
    ):
        op.add_column("runs", column)
    for name in ("agent", "state", "kind", "actor_id"):
        op.create_index(f"ix_runs_{name}", "runs", [name, "started_at"])
    _partial("reason", "reason IS NOT NULL", "reason", "started_at")
    _partial("callees", "state = 'suspended' AND parent IS NOT NULL", "state", "parent")
    _partial("due", "due IS NOT NULL", "due")
    stale = "phase IS NULL OR phase <> (state || '/' || CAST(epoch AS TEXT))"
    _partial("stale", stale, "run_id")
    op.create_table(
        "run_tools",
        sa.Column("tool", _NAME, primary_key=True),
        sa.Column("outcome", _NAME, primary_key=True),
        sa.Column("started_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("run_id", _NAME, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "waits",
        sa.Column("asked_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("run_id", _NAME, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("call", sa.BigInteger, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("tenant", _NAME),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_waits_agent", "waits", ["agent", "asked_at"])
    op.create_index("ix_waits_tenant", "waits", ["tenant", "asked_at"])
    op.create_index("ix_waits_run_id", "waits", ["run_id"])


def _partial(name: str, where: str, *columns: str) -> None:
    condition = sa.text(where)
    op.create_index(
        f"ix_runs_{name}",
        "runs",
        [*columns],
        sqlite_where=condition,
        postgresql_where=condition,
    )
