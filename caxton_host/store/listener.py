"""
A connection to PostgreSQL of its own, which hears what others announce.

Statements are executed in its thread, so it waits for no other connection. In between,
the event loop watches its socket, and no thread waits. Behind a pooler nothing is
heard: hosts look periodically then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ..errors import StoreError
from ..lib.bell import Bell
from .channels import CHANNELS
from .engine import alone, is_pooled

_T = TypeVar("_T")


class Listener:
    """
    One connection, and what it hears.

    Args:
        engine: To the database.

        name: What its statements are for.

        bell: Rung by what is announced.

    Attributes:
        host: What is announced to another host is not heard.
    """

    def __init__(self, engine: sa.Engine, name: str, bell: Bell) -> None:
        self.host = ""
        self._engine = alone(engine, name)
        self._bell = bell
        self._thread = ThreadPoolExecutor(1, f"caxton-{name}")
        self._connection: sa.Connection | None = None
        # The socket that the event loop watches, and what reads from it.
        self._ear: int | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def do(self, function: Callable[[psycopg.Connection], _T]) -> _T:
        """
        Return what *function* returns for the connection, from its thread.

        Raises:
            psycopg.Error: A statement failed.

            SQLAlchemyError: There is no connection.
        """
        loop = asyncio.get_running_loop()
        self._cover(loop)
        try:
            found, notes = await loop.run_in_executor(self._thread, self._do, function)
        finally:
            self._uncover(loop)
        for note in notes:
            topic = CHANNELS[note.channel]
            if topic != "requests" or note.payload in {"", self.host}:
                self._bell.ring(topic)
        return found

    def _do(
        self, function: Callable[[psycopg.Connection], _T]
    ) -> tuple[_T, list[psycopg.Notify]]:
        driver = self._open() or self._connect()
        return function(driver), [*driver.notifies(timeout=0)]

    def _connect(self) -> psycopg.Connection:
        self._hang_up()
        self._connection = self._engine.connect()
        driver = cast("psycopg.Connection", self._open())
        if not is_pooled(driver):
            for channel in CHANNELS:
                driver.execute(f"LISTEN {channel}".encode())
        return driver

    def _open(self) -> psycopg.Connection | None:
        if self._connection is None or self._connection.invalidated:
            return None
        found = self._connection.connection.driver_connection
        driver = cast("psycopg.Connection", found)
        return None if driver.closed else driver

    def _uncover(self, loop: asyncio.AbstractEventLoop) -> None:
        driver = self._open()
        hears = driver is not None and not is_pooled(driver)
        if driver is not None and hears:
            self._ear = driver.fileno()
            loop.add_reader(self._ear, self._listen, loop)
        self._bell.note(is_heard=hears)

    def _cover(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._ear is not None:
            loop.remove_reader(self._ear)
            self._ear = None

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._cover(loop)
        self._hearing = loop.create_task(self._hear())

    async def _hear(self) -> None:
        # Who executes the next statement hears of a failure.
        with contextlib.suppress(psycopg.Error, SQLAlchemyError, StoreError):
            await self.do(lambda _: None)

    async def aclose(self) -> None:
        """Close the connection."""
        loop = asyncio.get_running_loop()
        self._cover(loop)
        if self._hearing is not None:
            await asyncio.wait([self._hearing])
            self._cover(loop)
        if self._connection is not None:
            await loop.run_in_executor(self._thread, self._hang_up)
        self._thread.shutdown()

    def _hang_up(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None
