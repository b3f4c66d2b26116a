"""
The worker's end of the wire: one socket, read by whoever has nothing else to do.

A guest that waits for an answer reads the socket itself if nobody else does, so that
its answer wakes it and no other thread. The rest of those who wait follow: one of
them takes over when the reader has what it waited for. With no guest at all, the main
thread reads; while guests compute, it looks in at every tick.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from threading import Lock
from typing import NoReturn

from . import wire

HOST_GONE, BROKEN = 0, 70


class Waiter:
    """Someone who waits for something that comes over the channel."""

    __slots__ = ("ready", "wake")

    def __init__(self) -> None:
        self.ready = False
        self.wake = Lock()
        self.wake.acquire()


class Channel:
    """
    Sends and receives frames.

    Args:
        sock: Connected to the host.

        handle: Called with kind, run and body of each frame, by the reader.

        leave: Ends the process, without a word to the threads that are left.
    """

    def __init__(
        self,
        sock: socket.socket,
        handle: Callable[[int, int, bytes], None],
        leave: Callable[[int], NoReturn] = os._exit,
    ) -> None:
        self._socket = sock
        self._handle = handle
        self._leave = leave
        self._inbox = wire.Inbox(wire.to_worker)
        self._sending = Lock()
        self._state = Lock()
        self._read_by: Waiter | None = None
        self._following: dict[Waiter, None] = {}
        self._main = Waiter()

    def send(self, frame: bytes) -> None:
        """Send one frame whole."""
        with self._sending:
            try:
                self._socket.sendall(frame)
            except OSError:
                self._leave(HOST_GONE)

    def wait(self, waiter: Waiter) -> None:
        """Return once *waiter* was released."""
        while True:
            with self._state:
                if waiter.ready:
                    waiter.ready = False
                    return
                leads = self._read_by is None
                if leads:
                    self._read_by = waiter
                else:
                    self._following[waiter] = None
            if leads:
                while not waiter.ready:
                    self._receive(0)
                self._step_down()
            else:
                waiter.wake.acquire()

    def release(self, waiter: Waiter) -> None:
        """Let *waiter* go on, now or when it comes to wait."""
        with self._state:
            waiter.ready = True
            if self._following.pop(waiter, waiter) is None:
                waiter.wake.release()

    def listen(self) -> None:
        """Read until something came. For the main thread, while there is no guest."""
        self._look(once=True)

    def poll(self) -> None:
        """Read what has come, unless somebody else is reading."""
        self._look(once=False)

    def _look(self, *, once: bool) -> None:
        with self._state:
            if self._read_by is not None:
                return
            self._read_by = self._main
        if once:
            self._receive(0)
        else:
            while self._receive(socket.MSG_DONTWAIT):
                pass
        self._step_down()

    def _step_down(self) -> None:
        with self._state:
            self._read_by = None
            if self._following:
                follower = next(iter(self._following))
                del self._following[follower]
                follower.wake.release()

    def _receive(self, flags: int) -> bool:
        """Handle what comes; return whether anything came."""
        try:
            count = self._socket.recv_into(self._inbox.room(), 0, flags)
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            self._leave(HOST_GONE)
        try:
            for kind, run, body in self._inbox.received(count):
                self._handle(kind, run, body)
        except BaseException:  # noqa: BLE001 -- not the fault of the guest that reads
            self._leave(BROKEN)
        return True
