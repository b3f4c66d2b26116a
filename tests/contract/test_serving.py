"""What a host that is served remembers. Each store passes all of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core import clients
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    RunCancelled,
    RunSuspended,
    TokenCreated,
    TokenRevoked,
)
from caxton_host.core.log.runs import RunFilter
from caxton_host.errors import NotFoundError, StoreError, UsageError
from caxton_host.ports.log import Reservation
from caxton_host.ports.serving import TokenRow
from caxton_host.store.sql import SqlStore
from tests.contract.conftest import Store
from tests.unit.store.fakes import FakeClock, FakeEntropy, run_queued, run_started, url

HOST = "host/1"
ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
ROW = TokenRow(
    id="0011223344556677",
    name="ci",
    digest="ab" * 32,
    scopes=("run", "read"),
    agents=("weather", "bank*"),
    roles=("finance",),
    created_at=7,
    expires_at=9,
    tenant="acme",
)
CREATED = TokenCreated(
    id=ROW.id, name="ci", scopes=("run", "read"), agents=("weather",), actor=ANN
)
REVOKED = TokenRevoked(id=ROW.id, actor=ANN)


async def test_token_is_kept_with_the_event_that_says_so(store: Store) -> None:
    assert await store.tokens.find(ROW.id) is None

    await store.tokens.add(ROW, HOST, CREATED)

    assert await store.tokens.find(ROW.id) == ROW
    assert await store.tokens.all() == [ROW]
    assert [one.event for one in await store.reader.read(HOST)] == [CREATED]


async def test_tokens_are_listed_oldest_first(store: Store) -> None:
    plain = TokenRow(id="b", name="", digest="c", scopes=(), created_at=1)

    await store.tokens.add(ROW, HOST, CREATED)
    await store.tokens.add(plain, HOST, CREATED)

    assert await store.tokens.all() == [plain, ROW]


async def test_a_name_is_that_of_one_token_which_is_good(store: Store) -> None:
    await store.tokens.add(ROW, HOST, CREATED)
    same = replace(ROW, id="other")

    with pytest.raises(UsageError, match="has the name 'ci'") as refusal:
        await store.tokens.add(replace(same, created_at=8), HOST, CREATED)

    assert ROW.id in refusal.value.fix
    assert await store.tokens.all() == [ROW]
    assert [one.event for one in await store.reader.read(HOST)] == [CREATED]
    expired = replace(same, created_at=9, expires_at=None)
    await store.tokens.add(expired, HOST, CREATED)
    await store.tokens.revoke(expired.id, 10, HOST, REVOKED)
    revoked = replace(same, id="third", created_at=11)
    await store.tokens.add(revoked, HOST, CREATED)
    for nameless in ("c", "d"):
        await store.tokens.add(replace(ROW, id=nameless, name=""), HOST, CREATED)
    assert len(await store.tokens.all()) == 5


async def test_revoked_token_says_since_when(store: Store) -> None:
    await store.tokens.add(ROW, HOST, CREATED)

    await store.tokens.revoke(ROW.id, 8, HOST, REVOKED)

    assert await store.tokens.find(ROW.id) == replace(ROW, revoked_at=8)
    assert [one.event for one in await store.reader.read(HOST)] == [CREATED, REVOKED]


async def test_token_is_revoked_once_and_what_is_not_there_never(store: Store) -> None:
    await store.tokens.add(ROW, HOST, CREATED)
    await store.tokens.revoke(ROW.id, 8, HOST, REVOKED)

    for known in (ROW.id, "else"):
        with pytest.raises(NotFoundError, match="no token") as refusal:
            await store.tokens.revoke(known, 99, HOST, REVOKED)
        assert "token list" in refusal.value.fix

    assert await store.tokens.find(ROW.id) == replace(ROW, revoked_at=8)
    assert len(await store.reader.read(HOST)) == 2


async def test_token_that_somebody_edited_lets_nobody_in(tmp_path: Path) -> None:
    clock = FakeClock()
    async with SqlStore.open(
        url(tmp_path), clock=clock, entropy=FakeEntropy()
    ) as store:
        await store.tokens.add(ROW, HOST, CREATED)
        for edited in ("run", "7", "NULL"):
            with store.engine.connect() as connection:
                change = f"UPDATE tokens SET scopes = '{edited}'"  # noqa: S608 -- ours
                connection.exec_driver_sql(change)
            with pytest.raises(StoreError, match="in the database is damaged"):
                await store.tokens.find(ROW.id)


async def test_what_cannot_be_read_or_kept_is_an_error_without_what_was_asked(
    tmp_path: Path,
) -> None:  # law 8
    clock = FakeClock()
    async with SqlStore.open(
        url(tmp_path), clock=clock, entropy=FakeEntropy()
    ) as store:
        with store.engine.connect() as connection:
            for table in ("tokens", "submissions"):
                connection.exec_driver_sql(f"DROP TABLE {table}")
        for asking in (
            store.tokens.find("secret"),
            store.submissions.register("secret", "secret", "secret", "secret"),
            store.tokens.add(replace(ROW, digest="secret"), HOST, CREATED),
        ):
            with pytest.raises(StoreError) as refusal:
                await asking
            assert "secret" not in str(refusal.value)
        assert await store.reader.read(HOST) == []


async def test_key_stands_for_the_run_that_it_was_first_used_for(store: Store) -> None:
    assert await store.submissions.register("token/ann", "k1", "d1", "r1") == (
        "d1",
        "r1",
    )

    assert await store.submissions.register("token/ann", "k1", "d2", "r2") == (
        "d1",
        "r1",
    )
    assert await store.submissions.register("token/ann", "k1", "d1", "r3") == (
        "d1",
        "r1",
    )


async def test_keys_of_one_are_not_those_of_another(store: Store) -> None:
    await store.submissions.register("token/ann", "k1", "d1", "r1")

    assert await store.submissions.register("token/bob", "k1", "d2", "r2") == (
        "d2",
        "r2",
    )
    assert await store.submissions.register("token/ann", "K1", "d3", "r3") == (
        "d3",
        "r3",
    )


async def test_of_many_at_once_all_are_told_of_one_run(store: Store) -> None:
    told = await asyncio.gather(
        *(store.submissions.register("token/ann", "k", "d", f"r{n}") for n in range(20))
    )

    assert len(set(told)) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_of_two_hosts_both_are_told_of_one_run_and_one_token(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shared = kind == "postgresql"
    place = request.getfixturevalue("postgres_url") if shared else url(tmp_path)
    clock = FakeClock()
    async with (
        SqlStore.open(place, clock=clock, entropy=FakeEntropy()) as one,
        SqlStore.open(place, clock=clock, entropy=FakeEntropy()) as other,
    ):
        told = await asyncio.gather(
            *(
                host.submissions.register("token/ann", f"k{n % 5}", "d", f"r{n}")
                for n, host in enumerate([one, other] * 10)
            )
        )
        await one.tokens.add(ROW, HOST, CREATED)
        await other.tokens.revoke(ROW.id, 8, "host/2", REVOKED)

        assert all(len({told[n] for n in range(k, 20, 5)}) == 1 for k in range(5))
        assert await one.tokens.find(ROW.id) == replace(ROW, revoked_at=8)


async def test_token_is_found_though_the_nearest_way_to_it_is_gone(
    tmp_path: Path,
) -> None:
    async with SqlStore.open(
        f"sqlite:///{tmp_path}/a.db", clock=FakeClock(), entropy=FakeEntropy()
    ) as store:
        await store.tokens.add(ROW, "host/1", CREATED)
        assert await store.tokens.find(ROW.id) == ROW
        store.tokens._inline._driver().close()

        assert await store.tokens.find(ROW.id) == ROW
        assert await store.tokens.find(ROW.id) == ROW


async def test_a_store_that_can_be_read_is_well(store: Store) -> None:
    await store.health.check()

    if isinstance(store, SqlStore):
        with store.engine.connect() as connection:
            connection.exec_driver_sql("ALTER TABLE runs RENAME TO others")
        with pytest.raises(StoreError, match="cannot be read"):
            await store.health.check()


async def test_rates_are_spent_together_or_not_at_all(store: Store) -> None:
    def rate(key: str, limit: int) -> Reservation:
        every = 3_600_000_000
        return Reservation(key=key, amount=1, limit=limit, rule="", every=every)

    assert await store.reserve([rate("!b", 2), rate("!a", 1)]) is None
    refused = await store.reserve([rate("!b", 2), rate("!a", 1)])
    assert refused
    assert refused.index == 1
    assert refused.retry_after
    assert await store.reserve([rate("!b", 2)]) is None
    assert await store.reserve([rate("!b", 2)])


async def test_runs_that_go_on_are_counted_by_actor_and_tenant(store: Store) -> None:
    ann: dict[str, JSON] = {"kind": "token", "id": "ann", "tenant": "acme"}
    bob: dict[str, JSON] = {"kind": "token", "id": "bob", "tenant": "acme"}
    called = "0193a5e0-0000-8000-8000-000000000001"
    session = replace(run_started(), actor=ann, abi=clients.ABI)
    await store.enter("run/1", replace(run_queued(), actor=ann))
    logs = {}
    for name, event in (
        ("2", replace(run_started(), actor=ann)),
        ("3", replace(run_started(), actor=bob)),
        ("4", session),
        (called, replace(run_started(), actor=ann)),
    ):
        logs[name] = store.create(f"run/{name}")
        await logs[name].append(event)

    async def counted(tenant: str, actor: str | None = None) -> int:
        return await store.reader.going_on(RunFilter(tenant=tenant, actor=actor))

    assert await counted("acme") == 3
    assert await counted("acme", "ann") == 2
    assert await counted("bolt") == 0
    await logs["2"].append(RunSuspended(reason="approval", call=1))
    await logs["3"].append(RunCancelled(actor=bob, reason=""))
    assert await counted("acme") == 1
