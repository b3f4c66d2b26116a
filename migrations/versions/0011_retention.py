# ruff: noqa: INP001 -- Alembic loads it by its path
"""Indices of the runs that retention looks for, and of erasures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_INDICES = {
    "ix_runs_ended": (
        "runs",
        ["state", "ended_at", "run_id"],
        "ended_at IS NOT NULL AND actor <> '{}'",
    ),
    "ix_events_erased": ("events", ["position"], "type = 'RunErased'"),
}


def upgrade() -> None:
    """Bring the schema here from 0010."""
    for name, (table, columns, where) in _INDICES.items():
        only = sa.text(where)
        op.create_index(name, table, columns, sqlite_where=only, postgresql_where=only)
