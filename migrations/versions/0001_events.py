# ruff: noqa: INP001 -- Alembic loads it by its path
"""
Events, payloads, blobs, runs and budgets.

What is written once stays: triggers refuse to change or delete events and blobs,
and to change payloads. ``INSERT OR REPLACE`` deletes a row without firing a delete
trigger (https://sqlite.org/lang_conflict.html), so inserts are looked at too.

On PostgreSQL an event also carries the number of its transaction: those below the
oldest one that still runs are all there, in an order that never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_REFUSED = (
    ("events", "UPDATE"),
    ("events", "DELETE"),
    ("blobs", "UPDATE"),
    ("blobs", "DELETE"),
    ("payloads", "UPDATE"),
)

# Blobs have a rowid of their own, by which a replacement can name its victim.
# Bytes that are there already are skipped: their digest says they are the same.
# Events have one trigger for both of their keys: a second one costs each of them more
# than the look at the index.
_REPLACEMENTS = (
    (
        "events",
        ("position = NEW.position", "stream = NEW.stream AND seq = NEW.seq"),
        "ABORT",
    ),
    ("payloads", ("position = NEW.position",), "ABORT"),
    ("blobs", ("sha256 = NEW.sha256",), "IGNORE"),
    ("blobs", ("rowid = NEW.rowid",), "ABORT"),
)


def upgrade() -> None:
    """Bring the schema here from nothing."""
    shared = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "events",
        sa.Column(
            "position",
            _POSITION,
            *([sa.Identity(always=True)] if shared else []),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("stream", _NAME, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("recorded_at", sa.BigInteger, nullable=False),
        sa.Column("trace_id", sa.Text),
        sa.Column("span_id", sa.Text),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("stream", "seq", name="uq_events_stream_seq"),
        sa.CheckConstraint("seq > 0", name="ck_events_seq"),
        sa.CheckConstraint("length(digest) = 32", name="ck_events_digest"),
        sa.CheckConstraint("length(hash) = 32", name="ck_events_hash"),
    )
    op.create_table(
        "payloads",
        sa.Column(
            "position",
            _POSITION,
            sa.ForeignKey("events.position", name="fk_payloads_position"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(salt) = 16", name="ck_payloads_salt"),
    )
    op.create_table(
        "blobs",
        sa.Column("sha256", _NAME, primary_key=True),
        sa.Column("bytes", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
    )
    _create_projections()
    if shared:
        _number_transactions()
        _create_postgresql_triggers()
    else:
        _create_sqlite_triggers()


def _number_transactions() -> None:
    op.execute(
        "ALTER TABLE events ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id()"
    )
    op.create_index("ix_events_xid_position", "events", ["xid", "position"])


def _create_postgresql_triggers() -> None:
    op.execute(
        "CREATE FUNCTION caxton_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% are append-only', TG_TABLE_NAME "
        "USING ERRCODE = 'restrict_violation'; END $$"
    )
    truncated = [(table, "TRUNCATE") for table in ("events", "blobs", "payloads")]
    # Once a statement, so that a batch of events costs nothing. Always, so that
    # session_replication_role does not switch them off.
    for table, verb in (*_REFUSED, *truncated):
        name = f"{table}_no_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION caxton_append_only()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")


def _create_sqlite_triggers() -> None:
    for table, verb in _REFUSED:
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
        )
    for number, (table, keys, action) in enumerate(_REPLACEMENTS, 1):
        reason = f", '{table} are append-only'" if action == "ABORT" else ""
        victim = " OR ".join(
            f"EXISTS (SELECT 1 FROM {table} WHERE {key})"  # noqa: S608 -- constants
            for key in keys
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_replace_{number} BEFORE INSERT ON {table} "
            f"WHEN {victim} BEGIN SELECT RAISE({action}{reason}); END"
        )


def _create_projections() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", _NAME, primary_key=True),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("module_sha256", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("host", sa.Text),
        sa.Column("trace_id", sa.Text),
        sa.Column("owner", sa.Text),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("lease_until", sa.BigInteger),
        sa.CheckConstraint(
            "state IN ('cancelled', 'completed', 'failed', 'running', 'suspended')",
            name="ck_runs_state",
        ),
    )
    op.create_index("ix_runs_started_at", "runs", ["started_at"])
    op.create_table(
        "budgets",
        sa.Column("key", _NAME, primary_key=True),
        sa.Column("used", sa.BigInteger, nullable=False),
    )
