"""Too many failed authentications are answered so, and lock nobody out."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_network

import pytest

from caxton_host.core.grants.principals import Principal
from caxton_host.web.edge import failures
from caxton_host.web.edge.authentication import Challenge, Unauthenticated
from caxton_host.web.edge.failures import CountedIdentity, TooManyFailures, note_client
from caxton_host.web.edge.messages import problem_of

ANN = Principal(kind="token", id="ann", scopes=frozenset())


class Door:
    """Knows one token, and how many are looked up at a time."""

    def __init__(self) -> None:
        self.present = self.most = 0
        self.let = asyncio.Event()
        self.let.set()

    async def principal(self, authorization: str | None) -> Principal:
        self.present += 1
        self.most = max(self.most, self.present)
        try:
            await self.let.wait()
        finally:
            self.present -= 1
        if authorization != "Bearer good":
            raise Challenge().refusal("the token is unknown" if authorization else "")
        return ANN


class Counted:
    """An identity that is asked from addresses, at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.door = Door()
        self.identity = CountedIdentity(self.door, lambda: self.now)

    async def ask(
        self, client: str, authorization: str | None = "Bearer bad"
    ) -> Principal:
        note_client({"client": (client, 1)}, {}, ())
        return await self.identity.principal(authorization)

    async def fail(self, client: str, times: int = 1) -> list[type[Exception]]:
        found: list[type[Exception]] = []
        for _ in range(times):
            with pytest.raises(Unauthenticated) as refusal:
                await self.ask(client)
            found.append(refusal.type)
        return found


async def test_the_failure_after_too_many_says_when_to_come_again() -> None:
    it = Counted()
    assert await it.fail("192.0.2.1", 31) == [Unauthenticated] * 30 + [TooManyFailures]

    with pytest.raises(TooManyFailures) as refusal:
        await it.ask("192.0.2.1")
    problem = problem_of(refusal.value)
    assert (problem.status, problem.headers) == (429, {"retry-after": "4"})
    it.now += 60
    assert await it.fail("192.0.2.1") == [Unauthenticated]


async def test_a_good_token_passes_from_where_others_fail() -> None:
    it = Counted()
    await it.fail("192.0.2.1", 40)

    assert await it.ask("192.0.2.1", "Bearer good") == ANN
    assert await it.fail("192.0.2.2") == [Unauthenticated]


async def test_who_shows_nothing_has_not_failed() -> None:
    it = Counted()
    for _ in range(40):
        with pytest.raises(Unauthenticated) as refusal:
            await it.ask("192.0.2.1", None)
        assert refusal.type is Unauthenticated


async def test_a_flood_from_one_address_is_looked_up_one_by_one() -> None:
    it = Counted()
    await it.fail("192.0.2.1", 40)
    it.door.most, it.door.let = 0, asyncio.Event()
    flood = [asyncio.create_task(it.fail("192.0.2.1")) for _ in range(20)]
    other = asyncio.create_task(it.ask("192.0.2.2", "Bearer good"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert it.door.present == 2
    it.door.let.set()
    assert await other == ANN
    await asyncio.gather(*flood)
    assert it.door.most == 2


async def test_failures_everywhere_are_too_many_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failures, "_MOST", 64)
    caplog.set_level(logging.WARNING)
    it = Counted()
    found = [await it.fail(f"10.0.{n // 250}.{n % 250}") for n in range(1005)]

    assert found[999:1001] == [[Unauthenticated], [TooManyFailures]]
    # Addresses are forgotten, so that they fit into memory; and one line is enough.
    assert len(it.identity._each) == 64
    assert len(caplog.records) == 1
    # Nobody else is concerned.
    assert await it.ask("192.0.2.1", "Bearer good") == ANN


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),  # Not a proxy of ours.
        ("10.0.0.1", ["6.6.6.6, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["6.6.6.6", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["6.6.6.6, not an address"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::"),
    ],
)
def test_an_address_is_that_of_the_connection_or_what_a_trusted_proxy_says(
    peer: str, forwarded: list[str], found: str
) -> None:
    proxies = [ip_network("10.0.0.0/8")]
    note_client({"client": (peer, 1)}, {"x-forwarded-for": forwarded}, proxies)
    assert failures._client.get() == found
