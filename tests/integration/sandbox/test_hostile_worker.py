"""Whatever a worker says, it can only hurt itself."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caxton_host.core.limits import Limits
from caxton_host.errors import SandboxError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Ending
from caxton_host.sandbox import link as link_module
from caxton_host.sandbox import wire
from caxton_host.sandbox.link import Link
from caxton_host.sandbox.wire import End

from .support import SOON, FakeDoor, guest, until

LIMITS = Limits(log=100, output=100, params=100, host_calls=10, fuel=1_000)
CAPS = wire.to_host(LIMITS)
READY = wire.frame(wire.READY, 0, codec.encode(["no-files"]))
RETURNED = wire.end(1, End(kind="returned", code=3, fuel=9))
CALLED = wire.call(1, b"echo", b"\x80", 9)
BATCHED = wire.calls(1, b"\x90", 9)


@dataclass
class Fake:
    """A worker that says what it is told to say."""

    link: Link
    socket: socket.socket

    async def say(self, *frames: bytes) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.socket, b"".join(frames))

    async def heard(self, kind: int) -> bytes:
        """Return the next frame of a kind."""
        loop, inbox = asyncio.get_running_loop(), wire.Inbox(wire.to_worker)
        async with asyncio.timeout(SOON):
            while True:
                count = await loop.sock_recv_into(self.socket, inbox.room())
                assert count
                for came, _, body in inbox.received(count):
                    if came == kind:
                        return body

    def run(self, door: FakeDoor) -> asyncio.Task[Ending]:
        return asyncio.ensure_future(self.link.run("key", 65536, guest(LIMITS), door))


@asynccontextmanager
async def fake() -> AsyncIterator[Fake]:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220 -- as a worker is
    link = Link(process)
    for one in (ours, theirs):
        one.setblocking(False)  # noqa: FBT003 -- its shape
    loop = asyncio.get_running_loop()
    with theirs:
        await loop.create_connection(lambda: link, sock=ours)
        worker = Fake(link, theirs)
        await worker.say(READY)
        await link.started()
        yield worker
        link.kill("the test is over")
        await link.closed
        assert process.returncode == -9


async def test_honest_worker_is_heard() -> None:
    async with fake() as worker:
        door = FakeDoor(Answer(2, b"\x80", 7))
        run = worker.run(door)
        await worker.say(wire.log(1, 2, b"hello"), CALLED)
        answer = wire.read_reply(await worker.heard(wire.REPLY))
        assert answer == Answer(2, b"\x80", 7)
        await worker.say(RETURNED)
        assert (await run) == Ending(kind="returned", code=3, fuel=9)
        assert door.lines == [(2, b"hello")]
        assert not worker.link.lost


def _header(length: int, kind: int, run: int = 1) -> bytes:
    return struct.pack("<IBI", length, kind, run)


def _end(**fields: int) -> bytes:
    given = {"kind": 0, "limit": 0, "code": 0, "fuel": 1, "output": 0, "message": 0}
    return wire.frame(wire.END, 1, struct.pack("<BBiqBH", *(given | fields).values()))


LIES = {
    "unknown kind": _header(0, 99),
    "kind of the host": wire.frame(wire.STOP, 1),
    "huge frame": _header(2**32 - 1, wire.CALL),
    "call over its cap": _header(CAPS[wire.CALL] + 1, wire.CALL),
    "unknown run": wire.end(2, End(kind="returned")),
    "ready again": READY,
    "call that is cut off": wire.frame(wire.CALL, 1, b"abc"),
    "name longer than its frame": wire.frame(wire.CALL, 1, struct.pack("<QI", 1, 9)),
    "params over the limit": wire.call(1, b"echo", bytes(141), 9),
    "fuel it never had": wire.call(1, b"echo", b"", 1_001),
    "batch over its cap": _header(CAPS[wire.CALLS] + 1, wire.CALLS),
    "log over its cap": _header(CAPS[wire.LOG] + 1, wire.LOG),
    "end over its cap": _header(CAPS[wire.END] + 1, wire.END),
    "beginning of a frame of an unknown run": _header(1, wire.END, 2),
    "beginning of another ready": _header(1, wire.READY, 0),
    "batch that is cut off": wire.frame(wire.CALLS, 1, b"abc"),
    "batch with fuel it never had": wire.calls(1, b"\x90", 1_001),
    "batch during a call": CALLED + BATCHED,
    "call during a batch": BATCHED + CALLED,
    "end during a batch": BATCHED + RETURNED,
    "call during a call": CALLED + CALLED,
    "log during a call": CALLED + wire.log(1, 1, b"x"),
    "end during a call": CALLED + RETURNED,
    "log without a level": wire.frame(wire.LOG, 1),
    "log of level 4": wire.frame(wire.LOG, 1, b"\4x"),
    "long log": wire.log(1, 1, bytes(102)),
    "log after the limit": wire.log(1, 1, bytes(101)) * 2,
    "many host calls": wire.log(1, 1, b"") * 11,
    "end that is cut off": wire.frame(wire.END, 1, b"abc"),
    "end of an unknown kind": _end(kind=6),
    "end by an unknown limit": _end(kind=2, limit=9),
    "end with more fuel": _end(fuel=1_001),
    "end with a long message": _end(message=wire.MAX_REASON + 1),
    "output over the limit": wire.end(1, End(kind="returned", output=bytes(101))),
    "end twice": RETURNED + RETURNED,
    "stop that nobody asked for": wire.end(1, End(kind="stopped")),
}


@pytest.mark.parametrize("lie", LIES)
async def test_worker_that_lies_is_killed(lie: str) -> None:
    async with fake() as worker, asyncio.timeout(SOON):

        async def late() -> Answer:
            await asyncio.wait({worker.link.closed})
            return Answer(0, b"\x80", 1)

        run = worker.run(FakeDoor(late))
        await worker.say(LIES[lie])
        await worker.link.closed
        assert "protocol" in worker.link.lost
        if lie == "end twice":
            assert (await run).kind == "returned"
        else:
            with pytest.raises(SandboxError, match="protocol"):
                await run


async def test_worker_that_announces_a_large_end_is_killed_before_it_sends_it() -> None:
    """Law 9: of 64 MiB, the host has taken no more than its first read."""
    async with fake() as worker, asyncio.timeout(SOON):
        run = worker.run(FakeDoor())
        await worker.say(_header(64 << 20, wire.END), bytes(1000))
        with pytest.raises(SandboxError, match="kind 19 and 67108864 bytes"):
            await run
        assert worker.link._inbox.held == 64 * 1024


async def test_call_under_way_is_finished_before_a_run_learns_of_its_loss() -> None:
    async with fake() as worker, asyncio.timeout(SOON):
        served = asyncio.Event()

        async def slow() -> Answer:
            await served.wait()
            return Answer(0, b"\x80", 1)

        run = worker.run(door := FakeDoor(slow))
        await worker.say(CALLED)
        await door.called.wait()
        worker.link.kill("for the test")
        await worker.link.closed
        assert not run.done()
        served.set()
        with pytest.raises(SandboxError, match="for the test"):
            await run
        assert door.left == []
        with pytest.raises(SandboxError):
            await worker.run(door)


async def test_worker_that_fails_a_guest_is_an_error_of_the_sandbox() -> None:
    async with fake() as worker, asyncio.timeout(SOON):
        run = worker.run(FakeDoor())
        await worker.say(wire.end(1, End(kind="failed", message="\x1b[31m no")))
        with pytest.raises(SandboxError) as failed:
            await run
        assert "\x1b" not in str(failed.value)


async def test_batch_of_a_worker_comes_to_the_door() -> None:
    async with fake() as worker:
        run = worker.run(door := FakeDoor(Answer(4, b"\x80", 7)))
        await worker.say(wire.calls(1, b"\x91\xc0", 9))
        answer = wire.read_reply(await worker.heard(wire.REPLY))
        assert answer == Answer(4, b"\x80", 7)
        await worker.say(RETURNED)
        await run
        assert (door.calls, door.batches) == ([], [(b"\x91\xc0", 9)])


@pytest.mark.parametrize("frame", [CALLED, BATCHED], ids=["call", "batch"])
async def test_worker_that_calls_and_never_reads_is_killed(
    monkeypatch: pytest.MonkeyPatch, frame: bytes
) -> None:
    monkeypatch.setattr(link_module, "BACKLOG", 1024 * 1024)
    async with fake() as worker, asyncio.timeout(SOON):
        run = worker.run(FakeDoor(Answer(0, bytes(4 * 1024 * 1024), 1)))
        await worker.say(frame)
        await until(lambda: worker.link._unread() > 0)
        await worker.say(frame)
        with pytest.raises(SandboxError, match="without reading"):
            await run


async def test_answer_that_comes_in_pieces_is_one_answer() -> None:
    async with fake() as worker, asyncio.timeout(SOON):
        output = bytes(range(100))
        run = worker.run(FakeDoor())
        for byte in wire.end(1, End(kind="returned", output=output)):
            await worker.say(bytes([byte]))
            await asyncio.sleep(0)
        assert (await run).output == output


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    noise=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                wire.frame,
                st.sampled_from(
                    [wire.READY, wire.CALL, wire.CALLS, wire.LOG, wire.END]
                ),
                st.integers(0, 2),
                st.binary(max_size=40),
            ),
        ),
        max_size=8,
    )
)
def test_noise_never_hurts_the_host(noise: list[bytes]) -> None:
    async def hear() -> None:
        async with fake() as worker, asyncio.timeout(SOON):
            run = worker.run(FakeDoor())
            with suppress(ConnectionError):
                await worker.say(*noise)
            await asyncio.sleep(0.001)
            worker.socket.close()
            with suppress(SandboxError):
                await run

    asyncio.run(hear())
