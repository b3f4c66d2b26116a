"""Hosts behind a pooler that hands sessions out by transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from caxton_host.core.log.events import RunCompleted
from caxton_host.errors import StoreError
from caxton_host.lib.signing import Keyring
from tests.contract.test_copies import WITHOUT_EVENT
from tests.pgbouncer import pooled
from tests.postgres import Server, name_of
from tests.unit.store.fakes import line, run_started

from .support import opened

pytestmark = pytest.mark.debian

ROLE = "behind"
NEEDS = (
    "synchronous_commit = 'on'",
    "default_transaction_isolation = 'read committed'",
    "idle_in_transaction_session_timeout = '10s'",
    "lock_timeout = '30s'",
)


@pytest.fixture
def role(postgres: Server, postgres_url: str) -> Iterator[str]:
    """Return the url of a database for a role that a test may change."""
    postgres.execute(f"CREATE ROLE {ROLE} LOGIN SUPERUSER")
    yield postgres.url(name_of(postgres_url), ROLE)
    postgres.execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def behind(postgres: Server, role: str) -> Iterator[str]:
    for each in NEEDS:
        postgres.execute(f"ALTER ROLE {ROLE} SET {each}")
    with pooled(role) as url:
        yield url


async def test_what_the_role_lacks_is_said(postgres: Server, role: str) -> None:
    # law 10
    postgres.execute(f"ALTER ROLE {ROLE} SET synchronous_commit = off")
    with (
        pooled(role) as url,
        pytest.raises(StoreError, match="sessions lack settings") as refused,
    ):
        opened(url)
    fix = refused.value.fix or ""
    assert [each in fix for each in NEEDS] == [True, False, True, True]


async def test_it_works(behind: str, tmp_path: Path) -> None:
    signer = Keyring(tmp_path / "keys")
    async with opened(behind, signer=signer) as one, opened(behind) as two:
        await one.leases.join("host/1")
        await two.leases.join("host/2")
        assert not one.bell.is_heard
        log = one.create("run/1")
        await log.append(run_started())
        for n in range(20):
            await log.append(line(n))
            assert len(await two.reader.read("run/1")) == n + 2
        async with opened(behind, write=False) as reading:
            assert len(await reading.reader.read("run/1")) == 21
        await log.append(RunCompleted(output=None, output_sha256="00", fuel=None))
        assert (await one.seal()).checkpoint.size == 22


async def test_a_server_that_was_set_back_is_noticed_behind_a_pooler(
    behind: str, postgres: Server
) -> None:
    # laws 7 and 10: the connection to the pooler outlives the one to the server
    async with opened(behind) as store:
        log = store.create("run/1")
        await log.append(run_started(), line(1))
        for lost in WITHOUT_EVENT:
            postgres.execute(lost.replace("run/a", "run/1"), name_of(behind))

        with pytest.raises(StoreError, match="lacks events"):
            await log.append(line(2))
        with pytest.raises(StoreError, match="lacks events"):
            await store.create("run/2").append(run_started())
