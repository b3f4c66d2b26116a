"""Checkpoints leave the machine, and no run waits for that."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from caxton_host.core.log.checkpoint import Checkpoint, Note, parse_notes
from caxton_host.lib.signing import Keyring
from caxton_host.store import anchors
from caxton_host.store.anchors import Anchor, PlainAnchor, anchor
from caxton_host.store.sinks import FileSink, HttpSink
from tests.answering import HERE, Answers, answering

SOON = 30.0


def note(tmp_path: Path, size: int) -> Note:
    checkpoint = Checkpoint(origin="log", size=size, root=bytes(32))
    return Keyring(tmp_path).sign(checkpoint)


class Taker(Answers):
    """Answers as its server is told: a status, a redirect, or not at all."""

    def respond(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = self.body()
        server.asked += 1
        answer = server.answers.pop(0) if server.answers else 200
        if answer == 0:
            server.release.wait(SOON)
            return
        if answer == 200:
            server.taken.append(body)
        self.send_response(answer)
        if answer == 302:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(HERE, Taker)
        self.answers: list[int] = []
        self.taken: list[bytes] = []
        self.asked = 0
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/checkpoints"


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    with answering(running):
        yield running
        running.release.set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the end wait for the last one for a moment."""
    monkeypatch.setattr(anchors, "_GRACE", 0.1)


class Failures:
    """Counts the tries that failed, and the outages that lasted."""

    seen = lasting = 0

    def __call__(self, lasts: bool) -> None:  # noqa: FBT001 -- as it is called
        self.seen += 1
        self.lasting += lasts


@pytest.fixture
def failures() -> Failures:
    return Failures()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not done():  # noqa: ASYNC110 -- told by nobody
            await asyncio.sleep(0.01)


async def test_a_file_takes_one_checkpoint_after_the_other(
    tmp_path: Path, failures: Failures
) -> None:
    file = tmp_path / "anchored.txt"
    written = [note(tmp_path, size) for size in (1, 2)]
    for one in written:
        async with anchor(f"file:{file}", failures) as to:
            to.tell(one)
    assert parse_notes(file.read_bytes()) == written


@pytest.mark.usefixtures("impatient")
async def test_a_file_that_is_a_link_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failures: Failures
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    async with Anchor(
        PlainAnchor(FileSink(tmp_path / "link"), b"\n"), failures, pause=0.01
    ) as to:
        to.tell(note(tmp_path, 1))
        await until(lambda: failures.seen > 1)
    assert not (tmp_path / "target").exists()
    assert caplog.text.count("is not anchored") == 1
    assert "was not anchored" in caplog.text


async def test_a_server_is_posted_the_note(
    tmp_path: Path, server: Server, failures: Failures
) -> None:
    one = note(tmp_path, 1)
    async with anchor(server.url, failures) as to:
        to.tell(one)
        await until(lambda: bool(server.taken))
    assert server.taken == [one.text().encode()]
    assert failures.seen == 0


async def test_a_server_that_fails_is_asked_again(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture, failures: Failures
) -> None:
    server.answers = [500, 302, 404]
    one = note(tmp_path, 1)
    async with Anchor(PlainAnchor(HttpSink(server.url)), failures, pause=0.01) as to:
        to.tell(one)
        await until(lambda: bool(server.taken))
    assert server.taken == [one.text().encode()]
    assert (failures.seen, server.asked) == (3, 4)
    assert caplog.text.count("is not anchored") == 1


async def test_an_outage_that_lasts_is_told_once(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, failures: Failures
) -> None:
    monkeypatch.setattr(anchors, "_LONGEST_PAUSE", 0.04)
    server.answers = 6 * [500]
    async with Anchor(PlainAnchor(HttpSink(server.url)), failures, pause=0.01) as to:
        to.tell(note(tmp_path, 1))
        await until(lambda: bool(server.taken))
    assert (failures.seen, failures.lasting) == (6, 1)


async def test_only_the_newest_is_sent_after_a_failure(
    tmp_path: Path, server: Server, failures: Failures
) -> None:
    server.answers = [500]
    async with Anchor(PlainAnchor(HttpSink(server.url)), failures, pause=0.05) as to:
        to.tell(note(tmp_path, 1))
        await until(lambda: failures.seen == 1)
        for size in (2, 3):
            to.tell(note(tmp_path, size))
        await until(lambda: bool(server.taken))
    assert [parse_notes(body)[0].checkpoint.size for body in server.taken] == [3]


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_hangs_holds_nobody_up(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture, failures: Failures
) -> None:
    server.answers = [0]
    async with asyncio.timeout(8):
        async with anchor(server.url, failures) as to:
            to.tell(note(tmp_path, 1))
            await until(lambda: server.asked == 1)
    assert server.taken == []
    assert "was not anchored" in caplog.text


async def test_nothing_to_send_is_nothing_to_wait_for(
    server: Server, failures: Failures
) -> None:
    async with anchor(server.url, failures):
        pass
    assert (failures.seen, server.asked) == (0, 0)


async def test_one_that_rests_ends_at_once(tmp_path: Path) -> None:
    place = PlainAnchor(FileSink(tmp_path / "notes"), b"\n")
    for _ in range(20):
        async with Anchor(place, Failures(), rest=3600.0) as to:
            to.tell(note(tmp_path, 1))
            await to._idle.wait()
            await asyncio.sleep(0)

    assert len(parse_notes((tmp_path / "notes").read_bytes())) == 20


async def test_a_file_that_only_grows_is_never_cut_unless_a_line_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError  # as an append-only file does

    path, sink = tmp_path / "lines", FileSink(tmp_path / "lines")
    await sink.send(b"one\n")
    path.write_bytes(b"one\ntw")
    await sink.send(b"two\n")
    monkeypatch.setattr(os, "ftruncate", refused)
    await sink.send(b"three\n")

    assert path.read_bytes() == b"one\ntwo\nthree\n"
