# ruff: noqa: INP001 -- Alembic loads it by its path
"""
What is known of servers and of their tools from one host to the next.

And requests that are addressed to a host, whatever it drives.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_TO_ONE = "(run_id IS NULL) <> (host IS NULL)"


def upgrade() -> None:
    """Bring the schema here from 0003."""
    op.create_table(
        "servers",
        sa.Column("key", _NAME, primary_key=True),
        sa.Column("protocol", sa.Text, nullable=False),
        sa.Column("legacy", sa.Boolean, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tools",
        sa.Column("server", _NAME, primary_key=True),
        sa.Column("tool", _NAME, primary_key=True),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("accepted_at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("requests", "run_id", nullable=True)
        op.add_column("requests", sa.Column("host", _NAME))
        op.add_column("requests", sa.Column("subject", sa.Text))
        op.create_check_constraint("ck_requests_to", "requests", _TO_ONE)
    else:
        _make_requests_again()


def _make_requests_again() -> None:
    """Have SQLite allow what a column of it did not: it has to be another table."""
    op.create_table(
        "requests_",
        sa.Column("id", _POSITION, primary_key=True, autoincrement=True),
        sa.Column(
            "run_id", _NAME, sa.ForeignKey("runs.run_id", name="fk_requests_run_id")
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("requested_at", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("host", _NAME),
        sa.Column("subject", sa.Text),
        sa.CheckConstraint(_TO_ONE, name="ck_requests_to"),
        sqlite_autoincrement=True,
    )
    columns = "id, run_id, kind, actor, reason, requested_at, outcome"
    op.execute(
        f"INSERT INTO requests_ ({columns}) SELECT {columns} FROM requests"  # noqa: S608 -- ours
    )
    op.drop_table("requests")
    op.rename_table("requests_", "requests")
    open_ = sa.text("outcome IS NULL")
    op.create_index("ix_requests_open", "requests", ["run_id"], sqlite_where=open_)
