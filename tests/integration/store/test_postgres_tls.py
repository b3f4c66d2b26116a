"""A PostgreSQL on another machine has to show who it is before it is told anything."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa
from anyio.from_thread import start_blocking_portal

from caxton_host.errors import StoreError
from caxton_host.placement import procrastinate
from caxton_host.store import migrate
from caxton_host.store.engine import libpq_address, open_engine
from tests.certificates import Authority
from tests.unit.store.fakes import run_started

from .support import opened

#: What libpq sends first: https://www.postgresql.org/docs/current/protocol-flow.html
_ASKS_FOR_TLS = bytes.fromhex("0000000804d2162f")


class Door:
    """
    What ends TLS before a real server that the wheel built without it.

    Attributes:
        port: Of 127.0.0.1.

        said: What each connection began with.
    """

    def __init__(self, inner: Path, context: ssl.SSLContext) -> None:
        self.port = 0
        self.said: list[bytes] = []
        self._inner = inner
        self._context = context
        self._visits: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield
        await asyncio.gather(*self._visits)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._visits.append(cast("asyncio.Task[None]", asyncio.current_task()))
        with suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            self.said.append(await reader.readexactly(8))
            writer.write(b"S")
            await writer.start_tls(self._context)
            behind = await asyncio.open_unix_connection(self._inner)
            await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))
        await _close(writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()


@contextmanager
def door(url: str, authority: Authority, name: str) -> Iterator[Door]:
    """Run a door in a thread, for a certificate with this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.give(name))
    folder = str(sa.make_url(url).query["host"])
    (inner,) = Path(folder).glob(".s.PGSQL.*[0-9]")
    at = Door(inner, context)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(at.open()),
    ):
        yield at


def beyond(url: str, at: Door, **options: str) -> str:
    """Return the url of a database at a door, under the name of another machine."""
    inner = sa.make_url(url)
    query = {"hostaddr": "127.0.0.1", **options}
    found = inner.set(host="db.test", port=at.port, query=query)
    return found.render_as_string(hide_password=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_a_log_is_written_over_a_verified_connection(
    postgres_url: str, authority: Authority
) -> None:
    with door(postgres_url, authority, "db.test") as at:
        url = beyond(
            postgres_url, at, sslmode="verify-full", sslrootcert=str(authority.file)
        )
        async with opened(url) as store:
            await store.leases.join("host/1")
            await store.create("run/1").append(run_started())
        await procrastinate.prepare(libpq_address(url) or "")
        # The connections that append, listen, read and queue: none spoke before TLS.
        assert {*at.said} == {_ASKS_FOR_TLS}
        assert len(at.said) >= 4


@pytest.mark.parametrize("wrong", ["name", "authority"])
def test_a_server_that_is_another_is_not_told_a_password(
    wrong: str, postgres_url: str, authority: Authority, tmp_path: Path
) -> None:
    name = "other.test" if wrong == "name" else "db.test"
    trusted = authority if wrong == "name" else Authority(tmp_path, "another")
    with door(postgres_url, authority, name) as at:
        url = beyond(
            postgres_url, at, sslmode="verify-full", sslrootcert=str(trusted.file)
        )
        with pytest.raises(StoreError, match="certificate"):
            open_engine(url, write=True)
        assert at.said == [_ASKS_FOR_TLS]


UNVERIFIED = [
    "postgresql://caxton@db.test/log",
    "postgresql://caxton@192.0.2.1/log?sslmode=require",
    "postgresql://caxton@/log?host=127.0.0.1,db.test",
    "postgresql://caxton@localhost/log?hostaddr=192.0.2.1&sslmode=prefer",
    "postgresql://caxton@localhost/log?service=elsewhere",
]


@pytest.mark.parametrize("url", UNVERIFIED)
def test_a_connection_that_would_check_nothing_is_not_made(url: str) -> None:
    for use in (
        lambda: open_engine(url, write=True),
        lambda: open_engine(url, write=False),
        lambda: migrate.upgrade(url),
        lambda: libpq_address(url),
    ):
        with pytest.raises(StoreError, match="would not be checked") as refusal:
            use()
        assert "sslmode=verify-full" in refusal.value.fix


def test_the_environment_may_say_where_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.test")
    with pytest.raises(StoreError, match="would not be checked"):
        libpq_address("postgresql:///log")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert libpq_address("postgresql:///log") == "postgresql:///log"


def test_an_operator_may_accept_a_server_as_it_is(
    postgres_url: str, authority: Authority
) -> None:
    with door(postgres_url, authority, "db.test") as at:
        url = beyond(postgres_url, at).replace("hostaddr=127.0.0.1", "sslmode=require")
        url = f"{url}&unverified=accept".replace("db.test", "0.0.0.0")  # noqa: S104
        engine = open_engine(url, write=True)
        engine.dispose()
        assert at.said == [_ASKS_FOR_TLS]
    assert "unverified" not in (libpq_address(url) or "unverified")
