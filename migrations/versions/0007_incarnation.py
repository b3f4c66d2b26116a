# ruff: noqa: INP001 -- Alembic loads it by its path
"""Which log a database holds, and on which server: a copy is told from the original."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Bring the schema here from 0006."""
    op.add_column("tree", sa.Column("incarnation", sa.Text))
    op.add_column("tree", sa.Column("place", sa.Text))
