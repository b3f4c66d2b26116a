"""What a log holds, in numbers and names: for those who help from elsewhere."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from .diagnosis import path_of, unreadable
from .schema import checkpoints, events, runs, tokens
from .vitals import sizes_of

_NEWEST = 20
_STATES = sa.select(runs.c.state, runs.c.reason, sa.func.count()).group_by(
    runs.c.state, runs.c.reason
)
#: Without messages: those may quote what an agent or a tool said.
_FAILED = (
    sa.select(runs.c.run_id, runs.c.agent, runs.c.reason, runs.c.ended_at)
    .where(runs.c.state == "failed")
    .order_by(runs.c.started_at.desc())
    .limit(_NEWEST)
)
_COUNTS = {
    "events": sa.select(sa.func.max(events.c.position)),
    "signed": sa.select(sa.func.max(checkpoints.c.size)),
    "tokens": sa.select(sa.func.count()).where(tokens.c.revoked_at.is_(None)),
}


def figures(engine: sa.Engine) -> dict[str, JSON]:
    """
    Return counts, sizes and the newest failed runs of a log.

    Raises:
        StoreError: It cannot be read.
    """
    try:
        with engine.connect() as connection:
            found: dict[str, JSON] = {
                name: connection.scalar(query) or 0 for name, query in _COUNTS.items()
            }
            found["runs"] = [
                {"state": state, "reason": reason, "runs": number}
                for state, reason, number in connection.execute(_STATES)
            ]
            rows = connection.execute(_FAILED).mappings()
            found["failed"] = [dict(row) for row in rows]
    except DBAPIError as exc:
        raise unreadable(exc) from None
    if file := path_of(engine):
        sizes = sizes_of(file)
        found |= {"bytes": sizes["database"], "wal_bytes": sizes["wal"]}
    return found
