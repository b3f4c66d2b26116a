# ruff: noqa: INP001 -- Alembic loads it by its path
"""Budgets of a period and of a rate, and places for calls that are under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Bring the schema here from 0004."""
    op.add_column(
        "budgets",
        sa.Column("since", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "slots",
        sa.Column("key", _NAME, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("call", sa.BigInteger, primary_key=True, autoincrement=False),
    )
    op.create_index("ix_slots_stream", "slots", ["stream"])
