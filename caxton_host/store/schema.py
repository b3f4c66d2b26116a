"""
The tables, declared once.

Databases are built by the migrations, never from here; a test holds both equal.
The triggers that make `events` and `blobs` append-only are in the migrations.
PostgreSQL has one column and one table more: `declared` adds them.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.base import ischema_names

from ..core.log.runs import ENDS

metadata = sa.MetaData()

# SQLite makes only an INTEGER primary key the row's own address.
_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")
# Ordered by code point, independent of the locale of a server.
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_STATES = ", ".join(f"'{state}'" for state in sorted(set(ENDS.values())))

events = sa.Table(
    "events",
    metadata,
    sa.Column(
        "position",
        _POSITION,
        sa.Identity(always=True),  # PostgreSQL
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

_ERASED = sa.text("type = 'RunErased'")
sa.Index(
    "ix_events_erased",
    events.c.position,
    sqlite_where=_ERASED,
    postgresql_where=_ERASED,
)

#: What a hash binds besides the digest, in the order of `core.log.chain.envelope`.
ENVELOPE = (
    events.c.stream,
    events.c.seq,
    events.c.type,
    events.c.schema_version,
    events.c.recorded_at,
    events.c.trace_id,
    events.c.span_id,
)

#: The only log table whose rows may be deleted: by an erasure, itself an event.
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
    sa.Column("sha256", _NAME, primary_key=True),
    sa.Column("bytes", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
)

#: A projection of `events`, updated in the transaction of the event that changes it.
runs = sa.Table(
    "runs",
    metadata,
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
    sa.Column("tenant", _NAME),
    sa.Column("kind", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text),
    sa.Column("actor_id", _NAME),
    sa.Column("parent", _NAME),
    sa.Column("calls", sa.Text, nullable=False, server_default="{}"),
    sa.Column("tools", sa.Text, nullable=False, server_default="[]"),
    sa.Column("events", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("changed_at", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("due", sa.BigInteger),
    sa.Column("phase", sa.Text),
    sa.CheckConstraint(f"state IN ({_STATES})", name="ck_runs_state"),
    sa.Index("ix_runs_started_at", "started_at"),
    sa.Index("ix_runs_tenant", "tenant", "started_at"),
    sa.Index("ix_runs_agent", "agent", "started_at"),
    sa.Index("ix_runs_state", "state", "started_at"),
    sa.Index("ix_runs_kind", "kind", "started_at"),
    sa.Index("ix_runs_actor_id", "actor_id", "started_at"),
)


def _partial(name: str, where: str, *columns: sa.Column[Any]) -> sa.ColumnElement[bool]:
    condition = sa.text(where)
    sa.Index(name, *columns, sqlite_where=condition, postgresql_where=condition)
    # Without a type: of a boolean, SQLite would compare the value.
    return sa.literal_column(f"({where})")


_partial("ix_runs_running", "state = 'running'", runs.c.owner)
_partial("ix_runs_queued", "state = 'queued'", runs.c.started_at)
_partial("ix_runs_reason", "reason IS NOT NULL", runs.c.reason, runs.c.started_at)
_partial(
    "ix_runs_callees",
    "state = 'suspended' AND parent IS NOT NULL",
    runs.c.state,
    runs.c.parent,
)
_partial(
    "ix_runs_ended",
    "ended_at IS NOT NULL AND actor <> '{}'",
    runs.c.state,
    runs.c.ended_at,
    runs.c.run_id,
)
_partial("ix_runs_due", "due IS NOT NULL", runs.c.due)
#: Runs that an older release has begun or changed: see `RunRow.phase`.
STALE = _partial(
    "ix_runs_stale",
    "phase IS NULL OR phase <> (state || '/' || CAST(epoch AS TEXT))",
    runs.c.run_id,
)

#: The tools and outcomes of each run in `runs.tools`, as filters look for them: both,
#: or one of them and an empty text for the other.
run_tools = sa.Table(
    "run_tools",
    metadata,
    sa.Column("tool", _NAME, primary_key=True),
    sa.Column("outcome", _NAME, primary_key=True),
    sa.Column("started_at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("run_id", _NAME, primary_key=True),
    sqlite_with_rowid=False,
)

#: What people have to decide: see `core.log.projection.Wait`.
waits = sa.Table(
    "waits",
    metadata,
    sa.Column("asked_at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("run_id", _NAME, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("call", sa.BigInteger, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("until", sa.BigInteger),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("tenant", _NAME),
    sa.Index("ix_waits_agent", "agent", "asked_at"),
    sa.Index("ix_waits_tenant", "tenant", "asked_at"),
    sa.Index("ix_waits_run_id", "run_id"),
    sqlite_with_rowid=False,
)

#: Requests to a host, or to the one that drives a run, and their outcomes.
requests = sa.Table(
    "requests",
    metadata,
    sa.Column(
        "id", _POSITION, sa.Identity(always=True), primary_key=True, autoincrement=True
    ),
    sa.Column(
        "run_id",
        _NAME,
        sa.ForeignKey("runs.run_id", name="fk_requests_run_id"),
    ),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("requested_at", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("host", _NAME),
    sa.Column("subject", sa.Text),
    sa.CheckConstraint("(run_id IS NULL) <> (host IS NULL)", name="ck_requests_to"),
    sqlite_autoincrement=True,
)
_partial("ix_requests_open", "outcome IS NULL", requests.c.run_id)

#: The protocol of each tool server, by the key of its address, shared by hosts.
servers = sa.Table(
    "servers",
    metadata,
    sa.Column("key", _NAME, primary_key=True),
    sa.Column("protocol", sa.Text, nullable=False),
    sa.Column("legacy", sa.Boolean, nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
)

#: The definition of each tool that was accepted last: at first use, or by a person.
tools = sa.Table(
    "tools",
    metadata,
    sa.Column("server", _NAME, primary_key=True),
    sa.Column("tool", _NAME, primary_key=True),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("accepted_at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
)

#: How far each follower of the log has come; see `Followers`.
followers = sa.Table(
    "followers",
    metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("host", _NAME),
)

#: Leases of hosts, by the server's clock; only in PostgreSQL.
hosts = sa.Table(
    "hosts",
    sa.MetaData(),
    sa.Column("host", _NAME, primary_key=True),
    sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("key", _NAME, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)

#: Calls that are open or in doubt, and hold a place of a budget.
slots = sa.Table(
    "slots",
    metadata,
    sa.Column("key", _NAME, primary_key=True),
    sa.Column("stream", _NAME, primary_key=True),
    sa.Column("call", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Index("ix_slots_stream", "stream"),
)

#: Who may call a host that serves. Scopes, agents and roles are JSON.
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", _NAME, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("agents", sa.Text, nullable=False),
    sa.Column("roles", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
    sa.Column("tenant", _NAME),
)

#: The run of each idempotency key of a client.
submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("principal", _NAME, primary_key=True),
    sa.Column("key", _NAME, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("submitted_at", sa.BigInteger, nullable=False),
    sa.Index("ix_submissions_run_id", "run_id"),
)

#: One row: the tree of RFC 6962 over the hashes of all events, and its last event. Its
#: order is that of positions; on PostgreSQL, of transactions first. Also the name of
#: the log and its server: see `incarnation`.
tree = sa.Table(
    "tree",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("frontier", sa.LargeBinary, nullable=False),
    sa.Column("xid", sa.Text, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("incarnation", sa.Text),
    sa.Column("place", sa.Text),
    sa.CheckConstraint("id = 1", name="ck_tree_id"),
)

#: Signed notes, each over the first events of the log. Only their signatures count; the
#: public key tells which one to look for, and is no reason to trust it.
checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column(
        "id",
        _POSITION,
        sa.Identity(always=True),  # PostgreSQL
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("note", sa.LargeBinary, nullable=False),
    sa.Column("public_key", sa.LargeBinary, nullable=False),
    sa.Column("signed_at", sa.BigInteger, nullable=False),
    sa.Index("ix_checkpoints_size", "size"),
)


class XID8(sa.types.UserDefinedType[str]):
    """The number of a transaction in PostgreSQL, as text: it has 64 bits, unsigned."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return its name."""
        return "XID8"


# Otherwise every comparison of tables finds a column of an unknown type.
ischema_names["xid8"] = XID8  # pyright: ignore[reportArgumentType] -- it lists its own

#: The transaction that wrote an event; only in PostgreSQL.
xid = sa.column("xid", XID8(), _selectable=events)


def declared(dialect: str) -> sa.MetaData:
    """Return the tables of a database of that *dialect*."""
    if dialect != "postgresql":
        return metadata
    tables = sa.MetaData()
    for table in metadata.sorted_tables:
        table.to_metadata(tables)
    hosts.to_metadata(tables)
    copy = tables.tables["events"]
    default = sa.text("pg_current_xact_id()")
    copy.append_column(sa.Column("xid", XID8(), nullable=False, server_default=default))
    sa.Index("ix_events_xid_position", copy.c.xid, copy.c.position)
    return tables
