"""A worker in this process: its real frames, threads and guests, unconfined."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NoReturn, Self

import pytest
import wasmtime

from caxton_host.core.limits import Limits
from caxton_host.errors import SandboxError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Ending
from caxton_host.sandbox import wire, worker
from caxton_host.sandbox.artifacts import Artifact
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.link import Link, NoRoom
from caxton_host.sandbox.settings import settings_for
from caxton_host.sandbox.worker import Turns

from .support import CALL, ECHO, LOOP, SOON, FakeDoor, guest, never, until, wasm

MEMORY = 4 * 65536
SETTINGS = settings_for(Limits(memory=MEMORY))
LONG = Limits(compute=60, fuel=2**62)
WAIT = wasm(f"(drop {CALL}) (i32.const 3)", before=ECHO)
SPIN = wasm(LOOP)


class Here:
    """A worker in a thread, and the host's link to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["sleep", "600"])
        self.link = Link(self._process)
        self.ours, self.theirs = socket.socketpair()
        self.left: list[int] = []
        self.worker = worker.Worker(self.theirs, self._leave)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._engine = build_engine(SETTINGS)

    def _leave(self, code: int) -> NoReturn:
        self.left.append(code)
        with suppress(OSError):
            self.theirs.shutdown(socket.SHUT_RDWR)
        raise SystemExit(code)

    def _serve(self) -> None:
        with suppress(SystemExit):
            self.worker.serve()

    async def __aenter__(self) -> Self:
        self.ours.setblocking(False)  # noqa: FBT003 -- its shape
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.link, sock=self.ours)
        self.worker.channel.send(wire.frame(wire.READY, 0, codec.encode([])))
        self._thread.start()
        await self.link.started()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.link.kill("the test is over")
        await self.link.closed
        await asyncio.to_thread(self._thread.join, SOON)
        assert not self._thread.is_alive()
        self.theirs.close()

    async def run(
        self, module: bytes, door: FakeDoor | None = None, limits: Limits | None = None
    ) -> Ending:
        artifact = wasmtime.Module(self._engine, module).serialize()
        self.link.load(
            Artifact(key=str(hash(module)), data=bytes(artifact)), SETTINGS.to_json()
        )
        async with asyncio.timeout(SOON):
            return await self.link.run(
                str(hash(module)), MEMORY, guest(limits), door or FakeDoor()
            )


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    async with Here() as made:
        yield made


async def test_guest_runs_from_start_to_end(here: Here) -> None:
    door = FakeDoor()
    module = wasm(
        f"(call $log (i32.const 2) (i32.const 0) (i32.const 4)) (drop {CALL})"
        "(i32.const 3)",
        before=ECHO,
    )
    ending = await here.run(module, door)
    assert (ending.kind, ending.code) == ("returned", 3)
    assert door.lines == [(2, b"echo")]
    assert [call[:2] for call in door.calls] == [(b"echo", b"\x80")]


async def test_guest_that_computes_too_long_is_ended_by_the_clock(here: Here) -> None:
    ending = await here.run(SPIN, limits=Limits(compute=0.05))
    assert (ending.kind, ending.limit, ending.fuel) == ("limit", "compute", None)


async def test_guest_is_stopped_while_it_computes_and_while_it_waits(
    here: Here,
) -> None:
    spinning = asyncio.ensure_future(here.run(SPIN, limits=LONG))
    waiting = asyncio.ensure_future(here.run(WAIT, door := FakeDoor(never)))
    await door.called.wait()
    for one in (spinning, waiting):
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
    assert not here.worker._runs
    assert (await here.run(WAIT)).code == 3


async def test_guest_is_stopped_while_it_waits_for_its_turn(here: Here) -> None:
    here.worker.turns = turns = Turns(1)
    turns.take("somebody", bool)
    waiting = asyncio.ensure_future(here.run(WAIT))
    await until(lambda: turns.wanted)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    turns.give()
    assert (await here.run(WAIT)).code == 3


async def test_guests_that_compute_share_their_turns(here: Here) -> None:
    here.worker.turns = Turns(1)
    spinning = asyncio.ensure_future(here.run(SPIN, limits=LONG))
    await until(lambda: bool(here.worker._runs))
    assert (await here.run(WAIT)).code == 3
    assert not spinning.done()
    spinning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spinning


async def test_waiting_for_a_turn_is_not_compute(here: Here) -> None:
    here.worker.turns = turns = Turns(1)
    turns.take("somebody", bool)
    run = asyncio.ensure_future(here.run(WAIT, limits=Limits(compute=0.5)))
    await until(lambda: turns.wanted)
    await asyncio.sleep(0.8)
    turns.give()
    assert (await run).kind == "returned"


async def test_guest_that_waits_has_given_its_turn_back(here: Here) -> None:
    here.worker.turns = Turns(1)
    waiting = asyncio.ensure_future(here.run(WAIT, door := FakeDoor(never)))
    await door.called.wait()
    assert (await here.run(WAIT)).code == 3
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_module_that_cannot_be_loaded_has_no_room_here(here: Here) -> None:
    here.link.load(Artifact(key="bad", data=b"not native code"), SETTINGS.to_json())
    with pytest.raises(NoRoom):
        await here.link.run("bad", MEMORY, guest(), FakeDoor())


async def test_thread_that_cannot_start_is_no_room(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("_thread.start_new_thread", refuse)
        with pytest.raises(NoRoom):
            await here.run(WAIT)
    assert (await here.run(WAIT)).code == 3


async def test_answer_and_stop_that_come_too_late_are_nobodys(here: Here) -> None:
    here.link._send(wire.frame(wire.STOP, 77))
    here.link._send(wire.reply(77, Answer(0, b"", 1)))
    assert (await here.run(WAIT)).code == 3


async def test_worker_leaves_with_its_host() -> None:
    async with Here() as here:
        assert (await here.run(WAIT)).code == 3
    assert here.left == [0]


async def test_worker_leaves_when_it_cannot_make_sense_of_a_frame() -> None:
    async with Here() as here:
        here.link._send(wire.frame(wire.START, 1, b"\xc1"))
        await here.link.closed
    assert here.left[0] == 70


async def test_worker_leaves_with_its_host_while_a_guest_computes() -> None:
    async with Here() as here:
        run = asyncio.ensure_future(here.run(SPIN, limits=Limits(fuel=10**9)))
        await until(lambda: bool(here.worker._runs))
    assert here.left[0] == 0
    with pytest.raises(SandboxError):
        await run
    await until(lambda: not here.worker._runs)
