# ruff: noqa: INP001 -- Alembic loads it by its path
"""
Hosts and their leases, requests to the host of a run.

Leases are of hosts, not of runs. On SQLite they are locks on files, so there is no
table. Runs that were under way have no owner yet: whoever resumes one takes it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Bring the schema here from 0001."""
    shared = op.get_bind().dialect.name == "postgresql"
    op.drop_column("runs", "lease_until")
    op.execute("UPDATE runs SET epoch = 1")
    _index("ix_runs_running", "runs", "owner", "state = 'running'")
    op.create_table(
        "requests",
        sa.Column(
            "id",
            _POSITION,
            *([sa.Identity(always=True)] if shared else []),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column(
            "run_id",
            _NAME,
            sa.ForeignKey("runs.run_id", name="fk_requests_run_id"),
            nullable=False,
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("requested_at", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text),
        sqlite_autoincrement=True,
    )
    _index("ix_requests_open", "requests", "run_id", "outcome IS NULL")
    if shared:
        op.create_table(
            "hosts",
            sa.Column("host", _NAME, primary_key=True),
            sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        )


def _index(name: str, table: str, column: str, where: str) -> None:
    part = sa.text(where)
    op.create_index(name, table, [column], sqlite_where=part, postgresql_where=part)
