"""`caxton audit verify` finds tokens that were made or changed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from caxton_host.core.calls import JSON
from caxton_host.core.grants.principals import digest_recorded
from caxton_host.core.log.events import TokenCreated, TokenRevoked
from caxton_host.ports.serving import TokenRow
from caxton_host.store.schema import payloads, tokens
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify

from .support import opened

HOST = "host/1"
ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
GOOD = TokenRow(
    id="0011223344556677",
    name="ci",
    digest="ab" * 32,
    scopes=("run",),
    created_at=7,
    expires_at=9,
)
REVOKED = replace(GOOD, id="8899aabbccddeeff", name="old")


def created(row: TokenRow, digest: str | None = None) -> TokenCreated:
    return TokenCreated(
        id=row.id,
        name=row.name,
        scopes=row.scopes,
        agents=row.agents,
        roles=row.roles,
        expires_at=row.expires_at,
        actor=ANN,
        digest=digest_recorded(row.digest) if digest is None else digest,
    )


async def filled(store: SqlStore) -> None:
    for row in (GOOD, REVOKED):
        await store.tokens.add(row, HOST, created(row))
    revoked = TokenRevoked(id=REVOKED.id, actor=ANN)
    await store.tokens.revoke(REVOKED.id, 8, HOST, revoked)


async def found(store: SqlStore) -> list[str]:
    verdict = await verify(store.reader)
    assert {fault.kind for fault in verdict.faults} <= {"token"}
    return [str(fault) for fault in verdict.faults]


_HERE = tokens.c.id == GOOD.id
_CHANGED = tokens.update().where(_HERE)
BY_HAND = {
    "no event records that it was created": tokens.insert().from_select(
        tokens.columns.keys(),
        sa.select(
            sa.literal("aa" * 8), *(c for c in tokens.columns if c.name != "id")
        ).where(_HERE),
    ),
    "its row was removed": tokens.delete().where(_HERE),
    "its scopes was changed": _CHANGED.values(scopes='["admin"]'),
    "its agents was changed": _CHANGED.values(agents="not even JSON"),
    "its roles was changed": _CHANGED.values(roles='["finance"]'),
    "its digest was changed": _CHANGED.values(digest="cd" * 32),
    "its expires_at was changed": _CHANGED.values(expires_at=None),
    "its tenant was changed": _CHANGED.values(tenant="acme"),
    "its row is revoked, and no event records that": _CHANGED.values(revoked_at=8),
    "it was revoked, and its row is valid again": tokens.update()
    .where(tokens.c.id == REVOKED.id)
    .values(revoked_at=None),
}


@pytest.mark.parametrize("text", BY_HAND)
async def test_a_row_that_was_changed_by_hand_is_a_finding(
    text: str, database: str
) -> None:
    async with opened(database) as store:
        await filled(store)
        assert await found(store) == []

        with store.engine.connect() as connection:
            connection.execute(BY_HAND[text])

        (fault,) = await found(store)
        assert fault.endswith(f": {text}")


async def test_events_of_older_hosts_name_no_digest(database: str) -> None:
    async with opened(database) as store:
        await store.tokens.add(GOOD, HOST, created(GOOD, digest=""))
        assert await found(store) == []


async def test_an_event_that_was_edited_vouches_for_nothing(database: str) -> None:
    async with opened(database) as store:
        await filled(store)
        is_file = store.engine.dialect.name == "sqlite"
        with store.engine.connect() as connection:
            connection.exec_driver_sql(
                "DROP TRIGGER payloads_no_update" + " ON payloads" * (not is_file)
            )
            connection.execute(payloads.update().values(salt=bytes(16)))
        faults = [fault.kind for fault in (await verify(store.reader)).faults]
        assert faults == ["payload", "token", "token"]
