"""Hosts on one PostgreSQL hear what concerns them, and are asked nothing meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.freezes import FREEZES
from caxton_host.core.log.events import Frozen
from caxton_host.errors import NotFoundError
from caxton_host.lib.machine import SystemClock
from caxton_host.store.sql import SqlStore
from tests.postgres import Server
from tests.unit.store.fakes import run_started
from tests.unit.store.fakes import url as file

from .support import opened
from .test_postgres import end_connections

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


async def heard(news: asyncio.Event) -> None:
    async with asyncio.timeout(20):
        await news.wait()
    news.clear()


async def test_a_host_hears_of_freezes_and_of_requests_to_it(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        await one.leases.join("host/1")
        await two.leases.join("host/2")
        news = [store.bell.news("requests") for store in (one, two)]
        freezes = [store.bell.news("freezes") for store in (one, two)]
        await one.create("run/1").append(run_started())

        await two.requests.ask_run("1", "cancel", ANN, "")
        await heard(news[0])
        await one.requests.ask_host("host/2", "reload", ANN, "")
        await heard(news[1])
        assert not news[0].is_set()
        with pytest.raises(NotFoundError):
            await two.requests.ask_run("2", "cancel", ANN, "")

        log = two.create(FREEZES)
        await log.append(Frozen(kind="agent", name="a", actor=ANN, reason=""))
        for each in freezes:
            await heard(each)
        assert [r.kind for r in await one.requests.waiting("host/1")] == ["cancel"]


async def test_a_host_that_does_not_hear_looks_until_it_hears_again(
    postgres: Server, postgres_url: str
) -> None:
    store = SqlStore.open(
        postgres_url, clock=SystemClock(), entropy=os.urandom, lease=3
    )
    async with store:
        assert not store.bell.is_heard
        await store.leases.join("host/1")
        assert store.bell.is_heard
        news = store.bell.news("freezes")

        end_connections(postgres, postgres_url)

        await heard(news)
        assert not store.bell.is_heard
        await heard(news)
        assert store.bell.is_heard


async def test_nothing_is_heard_of_a_file(tmp_path: Path) -> None:
    async with opened(file(tmp_path)) as store:
        await store.leases.join("host/1")
        await store.requests.ask_host("host/1", "reload", ANN, "")
        assert not store.bell.is_heard
