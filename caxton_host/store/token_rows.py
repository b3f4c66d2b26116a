"""
Comparing the tokens of callers with the events that record them.

A token authenticates by its row, so anyone who can write to the database can let
themselves in. Each row must be what an unchanged event of its creation says, and must
be revoked if, and only if, an event says so.
"""

from __future__ import annotations

import json
from collections.abc import Generator

import sqlalchemy as sa

from ..core.grants.principals import digest_recorded
from ..core.log.chain import Fault
from ..core.log.events import TokenCreated, TokenRevoked
from ..core.log.server_history import HOST
from .erasure import unchanged
from .schema import events, tokens

_COMPARED = ("name", "scopes", "agents", "roles", "expires_at", "tenant")


def token_faults(connection: sa.Connection) -> Generator[Fault]:
    """Yield how the rows of tokens differ from their events, in one snapshot."""
    is_file = connection.dialect.name == "sqlite"
    connection.exec_driver_sql(
        "BEGIN" if is_file else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    )
    try:
        created: dict[str, TokenCreated] = {}
        revoked: set[str] = set()
        for event, *_ in unchanged(
            connection,
            # Only hosts record tokens; spelled as a range, for the index.
            events.c.stream > HOST,
            events.c.stream < f"{HOST}~",
            events.c.type.in_([TokenCreated.__name__, TokenRevoked.__name__]),
        ):
            if isinstance(event, TokenCreated):
                created[event.id] = event
            elif isinstance(event, TokenRevoked):
                revoked.add(event.id)
        for row in connection.execute(sa.select(tokens).order_by(tokens.c.id)):
            text = _difference(row, created.pop(row.id, None), row.id in revoked)
            if text:
                yield _fault(row.id, text)
    finally:
        connection.exec_driver_sql("ROLLBACK")
    for token_id in created:
        yield _fault(token_id, "its row was removed")


def _difference(
    row: sa.Row[*tuple[object, ...]],
    event: TokenCreated | None,
    is_revoked: bool,  # noqa: FBT001 -- as an event says
) -> str | None:
    if event is None:
        return "no event records that it was created"
    # Older events have no digest.
    if event.digest and event.digest != digest_recorded(str(row.digest)):
        return "its digest was changed"
    for name in _COMPARED:
        said, stored = getattr(event, name), getattr(row, name)
        if (json.dumps(said) if isinstance(said, tuple) else said) != stored:
            return f"its {name} was changed"
    if is_revoked and row.revoked_at is None:
        return "it was revoked, and its row is valid again"
    if row.revoked_at is not None and not is_revoked:
        return "its row is revoked, and no event records that"
    return None


def _fault(token_id: object, text: str) -> Fault:
    return Fault(kind="token", message=f"the token {token_id}: {text}")
