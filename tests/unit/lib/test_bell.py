"""Who waits for news of other processes is woken, or looks periodically."""

from __future__ import annotations

import asyncio

import pytest

from caxton_host.lib import bell
from caxton_host.lib.bell import Bell


@pytest.fixture
def heard() -> Bell:
    found = Bell()
    found.note(is_heard=True)
    return found


async def soon(bell: Bell, news: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await bell.pause(news, 0)


async def test_news_between_two_looks_is_not_missed(heard: Bell) -> None:
    news = heard.news("freezes")
    heard.ring("freezes")

    await soon(heard, news)

    assert not news.is_set()


async def test_one_is_woken_by_what_one_waits_for_alone(heard: Bell) -> None:
    freezes, requests = heard.news("freezes"), heard.news("requests")
    waits = asyncio.create_task(soon(heard, freezes))
    await asyncio.sleep(0)

    heard.ring("freezes")
    await waits

    assert not requests.is_set()


async def test_where_nothing_is_heard_one_looks_periodically() -> None:
    deaf = Bell()
    await soon(deaf, deaf.news("jobs"))


async def test_who_waits_looks_when_nothing_is_heard_any_more(heard: Bell) -> None:
    news = heard.news("requests")
    waits = asyncio.create_task(soon(heard, news))
    await asyncio.sleep(0)

    heard.note(is_heard=False)

    await waits


async def test_one_looks_now_and_then_whatever_is_heard(
    heard: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bell, "SLOW_S", 0.01)
    await soon(heard, heard.news("requests"))
