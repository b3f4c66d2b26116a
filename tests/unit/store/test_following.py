"""Delivery to a sink: at least once, in order, and nothing lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from caxton_host.core.log.runs import ExportLine
from caxton_host.errors import LogBrokenError
from caxton_host.store import following
from caxton_host.store.following import Delivery
from caxton_host.store.sinks import FileSink


class Flaky:
    """A sink that fails as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.failures, self.taken = failures, list[bytes]()

    async def send(self, data: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("it is down")
        self.taken += data.splitlines()

    async def aclose(self) -> None:
        pass


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_FIRST_S", 0.001)
    monkeypatch.setattr(following, "_LONGEST_S", 0.01)


async def numbers(
    count: int, *, broken: bool = False
) -> AsyncGenerator[tuple[ExportLine | None, str]]:
    for number in range(count):
        yield cast("ExportLine", number + 1), f"p-{number}"
    if broken:
        raise LogBrokenError("an event was changed")


def delivery(
    sink: Any,  # noqa: ANN401
    saved: list[str],
    told: list[Any],
) -> Delivery[ExportLine]:
    async def save(cursor: str) -> None:
        saved.append(cursor)

    return Delivery(sink=sink, render=lambda x: x, save=save, failed=told.append)


async def test_a_sink_that_was_down_gets_everything_in_order() -> None:
    sink, saved, told = Flaky(5), list[str](), list[Any]()
    assert await delivery(sink, saved, told).run(numbers(2_000)) == 2_000
    assert sink.taken == [str(n + 1).encode() for n in range(2_000)]
    assert saved[-1] == "p-1999"
    assert [str(one) for one in told] == ["it is down", "None"]


async def test_what_came_before_a_broken_event_is_delivered() -> None:
    sink, saved = Flaky(0), list[str]()
    with pytest.raises(LogBrokenError):
        await delivery(sink, saved, []).run(numbers(300, broken=True))
    assert (len(sink.taken), saved[-1]) == (300, "p-299")


async def test_a_cursor_that_cannot_be_saved_is_saved_later() -> None:
    saved, told = list[str](), list[Any]()
    failing = [OSError("no space left")]

    async def save(cursor: str) -> None:
        if failing:
            raise failing.pop()
        saved.append(cursor)

    sink = Flaky(0)
    work = Delivery(sink=sink, render=lambda x: x, save=save, failed=told.append)
    await work.run(numbers(3))
    assert (len(sink.taken), saved[-1], len(told)) == (3, "p-2", 2)


async def test_a_line_that_a_crash_cut_off_is_replaced(tmp_path: Path) -> None:
    path, sink = tmp_path / "out.jsonl", FileSink(tmp_path / "out.jsonl")
    path.write_bytes(b'{"n": 1}\n' + b'{"n": ' + b"x" * 200_000)
    await sink.send(b'{"n": 2}\n')
    assert path.read_bytes() == b'{"n": 1}\n{"n": 2}\n'
    path.write_bytes(b"torn")
    await sink.send(b"whole\n")
    assert path.read_bytes() == b"whole\n"
