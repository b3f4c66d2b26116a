"""
The tables, declared once.

Databases are built by the migrations, never from here; a test holds both equal.
The triggers that make `events` and `blobs` append-only are in the migrations.
"""

from __future__ import annotations

import sqlalchemy as sa

from ..core.events import ENDS

__all__ = ["blobs", "budgets", "events", "metadata", "payloads", "runs"]

metadata = sa.MetaData()

# SQLite makes only an INTEGER primary key the row's own address.
_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_STATES = ", ".join(f"'{state}'" for state in sorted(set(ENDS.values())))

events = sa.Table(
    "events",
    metadata,
    sa.Column("position", _POSITION, primary_key=True, autoincrement=True),
    sa.Column("stream", sa.Text, nullable=False),
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
    sqlite_autoincrement=True,
)

#: The only table whose rows may ever be deleted: by an erasure, itself an event.
payloads = sa.Table(
    "payloads",
    metadata,
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

blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("bytes", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
)

#: A projection of `events`, kept in the transaction of the event that changes it.
runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.Text, primary_key=True),
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
    sa.CheckConstraint(f"state IN ({_STATES})", name="ck_runs_state"),
    sa.Index("ix_runs_started_at", "started_at"),
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)
