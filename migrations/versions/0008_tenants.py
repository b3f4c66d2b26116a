# ruff: noqa: INP001 -- Alembic loads it by its path
"""The tenants of tokens and of runs. What is there already has none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Bring the schema here from 0007."""
    for table in ("tokens", "runs"):
        op.add_column(table, sa.Column("tenant", _NAME))
    op.create_index("ix_runs_tenant", "runs", ["tenant", "started_at"])
