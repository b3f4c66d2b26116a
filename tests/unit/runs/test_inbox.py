"""What people are asked, page by page: projections find the runs, events say it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from caxton_host.errors import CaxtonError, CursorError
from caxton_host.runs import questions
from caxton_host.runs.questions import Inbox, inbox
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.turns import asked, invoked, question, suspended
from tests.unit.store.fakes import run_started


async def waiting() -> MemoryStore:
    """Return a store with two calls of run a, one of run b, and a question of run c."""
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    for run_id, calls in (("a", (1, 2)), ("b", (1,))):
        log = store.create(f"run/{run_id}")
        await log.append(run_started(), *map(asked, calls), suspended())
    await store.create("run/c").append(run_started("other"), invoked(), question())
    return store


def told(found: Inbox) -> list[tuple[str, int]]:
    seen: Iterable[tuple[str, int]] = (
        *((one.run_id, one.asked.seq or 0) for one in found.calls),
        *((one.run_id, one.seq) for one in found.questions),
    )
    return [*seen]


def unread(run_id: str, exc: CaxtonError) -> None:
    pytest.fail(f"{run_id}: {exc}")


@pytest.mark.parametrize("rows", [1, 2, 1_000])
async def test_pages_tell_each_thing_once(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(questions, "_ROWS", rows)
    store, found, cursor = await waiting(), list[tuple[str, int]](), None
    while True:
        page = await inbox(store.reader, 5, most=1, cursor=cursor, unread=unread)
        found += told(page)
        cursor = page.next
        if cursor is None:
            break

    assert found == [("a", 2), ("a", 3), ("b", 2), ("c", 3)]


async def test_runs_that_a_caller_may_not_see_take_no_place_on_a_page() -> None:
    store = await waiting()

    page = await inbox(
        store.reader,
        5,
        most=1,
        sees=lambda row: row.agent == "other",
        unread=unread,
    )

    assert (told(page), page.next) == ([("c", 3)], None)


async def test_what_the_events_do_not_say_does_not_wait() -> None:
    store = await waiting()
    del store.streams["run/a"][2:4]
    store.streams["run/b"].clear()
    broken = list[str]()

    page = await inbox(
        store.reader, 5, most=9, unread=lambda run_id, _: broken.append(run_id)
    )

    assert (told(page), broken) == ([("c", 3)], ["b"])


async def test_other_text_is_no_cursor() -> None:
    store = await waiting()

    with pytest.raises(CursorError, match="not a cursor"):
        await inbox(store.reader, 5, most=9, cursor="1-2", unread=unread)
