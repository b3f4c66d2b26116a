# ruff: noqa: INP001 -- Alembic loads it by its path
"""Tokens of those who may call, and which run each of their keys stands for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Bring the schema here from 0005."""
    op.create_table(
        "tokens",
        sa.Column("id", _NAME, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("agents", sa.Text, nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_table(
        "submissions",
        sa.Column("principal", _NAME, primary_key=True),
        sa.Column("key", _NAME, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_submissions_run_id", "submissions", ["run_id"])
