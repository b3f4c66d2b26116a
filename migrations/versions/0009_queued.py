# ruff: noqa: INP001 -- Alembic loads it by its path
"""The state of runs that wait for a place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_NAME = "ck_runs_state"
_BEFORE = "state IN ('cancelled', 'completed', 'failed', 'running', 'suspended')"
_AFTER = _BEFORE.replace("'failed'", "'failed', 'queued'")
_QUEUED = sa.text("state = 'queued'")


def upgrade() -> None:
    """Bring the schema here from 0008."""
    if op.get_bind().dialect.name == "sqlite":
        _edit()
    else:
        op.drop_constraint(_NAME, "runs")
        op.create_check_constraint(_NAME, "runs", _AFTER)
    op.create_index(
        "ix_runs_queued",
        "runs",
        ["started_at"],
        sqlite_where=_QUEUED,
        postgresql_where=_QUEUED,
    )


def _edit() -> None:
    """Widen the constraint where it stands: SQLite would have the table copied."""
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.execute(
        sa.text(
            "UPDATE sqlite_schema SET sql = replace(sql, :before, :after) "
            "WHERE type = 'table' AND name = 'runs'"
        ),
        {"before": _BEFORE, "after": _AFTER},
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
