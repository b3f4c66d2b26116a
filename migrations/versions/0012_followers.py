# ruff: noqa: INP001 -- Alembic loads it by its path
"""How far each follower of the log has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Bring the schema here from 0011."""
    op.create_table(
        "followers",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("host", _NAME),
    )
