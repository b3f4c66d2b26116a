"""
Notices to people, from the log: each destination follows it by itself.

    log -> cause -> notice -> the destination took it -> place and counts are saved

One living host sends to a destination. Another goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ..config import Config
from ..config.model import Destination
from ..core.log.notices import EVENTS, Notice, Windows, cause_of, signed
from ..core.names import run_of
from ..errors import CaxtonError, LeaseLost
from ..lib.machine import SystemClock

if TYPE_CHECKING:
    from ..store.sinks import HttpSink
    from ..store.sql import SqlStore

_log = logging.getLogger("caxton_host")

_SECOND_US = 1_000_000
#: Seconds between two looks at the log, and at who sends and where to.
_LOOK_S, _STANDBY_S = 1.0, 5.0
#: Seconds before a notice is tried again, at most.
_LONGEST_S = 300.0
#: Looks that found nothing, before the place is saved all the same.
_IDLE = 600


@dataclass(slots=True, kw_only=True)
class Notifier:
    """
    Sends the notices of a log.

    Attributes:
        store: Has the log.

        host: The stream of this host, which has joined.

        config: Returns the newest configuration.

        failed: Called with the name of a destination after each failed attempt.
    """

    store: SqlStore
    host: str
    config: Callable[[], Config]
    failed: Callable[[str], None]

    async def watch(self) -> None:
        """Send notices to the destinations that are configured now, until cancelled."""
        sending = dict[Destination, asyncio.Task[None]]()
        try:
            while True:
                wanted = {*self.config().notify.values()}
                for gone in sending.keys() - wanted:
                    await _ended(sending.pop(gone))
                for new in wanted - sending.keys():
                    sending[new] = asyncio.create_task(self._send_to(new))
                await asyncio.sleep(_STANDBY_S)
        finally:
            await _ended(*sending.values())

    async def _send_to(self, to: Destination) -> None:
        name, told = f"notify/{to.name}", ""
        while True:
            try:
                first = Windows(0, ()).to_json(await self.store.reader.end())
                state = await self.store.followers.take(name, self.host, first)
                if state is not None:
                    await self._follow(to, name, state)
            except LeaseLost as exc:
                _log.info("notices to %s: %s", to.name, exc)
            except CaxtonError as exc:
                if told != str(exc):
                    told, fix = str(exc), exc.fix or "see `caxton db status`"
                    _log.warning(
                        "notices to %s wait: %s. To fix: %s", to.name, exc, fix
                    )
            except Exception:  # noqa: BLE001 -- it is tried again, and seen
                _log.exception("the host failed to send notices to %s", to.name)
            await asyncio.sleep(_STANDBY_S)

    async def _follow(self, to: Destination, name: str, state: str) -> None:
        from ..store.following import Delivery  # noqa: PLC0415 -- httpx

        config = self.config()

        def failed(exc: Exception | None) -> None:
            if exc:
                text = "a notice to %s is not taken, trying again: %s"
                _log.warning(text, to.name, exc)
            else:
                _log.info("notices to %s are taken again", to.name)

        async with sink_of(to, config.proxy) as sink:
            delivery = Delivery[Notice](
                sink=_Aging(sink=sink, to=to, failed=self.failed),
                render=partial(Notice.to_document, console=config.serve.public_url),
                save=partial(self.store.followers.save, name, self.host),
                failed=failed,
                most=1,
                longest=_LONGEST_S,
            )
            await delivery.run(self._found(to, state))

    async def _found(
        self, to: Destination, state: str
    ) -> AsyncGenerator[tuple[Notice | None, str]]:
        """Yield notices, each with the state behind it: a crash repeats some."""
        window = round(to.window * _SECOND_US)
        windows, cursor = Windows.from_json(state, window, to.events)
        broken, idle = list[str](), 0
        turns = self.store.reader.turns(
            cursor,
            EVENTS,
            _LOOK_S,
            lambda stream, exc: broken.append(f"{stream}: {exc}"),
        )
        async with aclosing(turns) as found:
            async for events, behind in found:
                told: list[Notice] = []
                for recorded in events:
                    run_id = run_of(recorded.stream)
                    row = await self.store.reader.row(run_id) if run_id else None
                    if cause := cause_of(recorded, row.agent if row else None):
                        told += windows.take(cause)
                now = SystemClock().now()
                for text in broken:
                    told += windows.take(Notice.of_fault(text, now))
                broken.clear()
                if not events:  # None that came before is still to be read.
                    told += windows.due(now)
                idle += 1
                former, state = state, windows.to_json(behind)
                for one in told[:-1]:
                    yield one, former
                if told or events or idle == _IDLE:
                    idle = 0
                    yield (told[-1] if told else None), state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aging:
    """A sink that drops what is too old."""

    sink: HttpSink
    to: Destination
    failed: Callable[[str], None]

    async def send(self, data: bytes) -> None:
        notice = json.loads(data)
        at = datetime.fromisoformat(notice["timestamp"]).timestamp()
        if SystemClock().now() / _SECOND_US - at > self.to.max_age:
            text = "a notice to %s is given up, as it is too old: %s"
            _log.error(text, self.to.name, notice["text"])
            return
        try:
            await self.sink.send(data)
        except (CaxtonError, OSError):
            self.failed(self.to.name)
            raise

    async def aclose(self) -> None:
        """Do nothing: the sink is closed by who opened it."""


@asynccontextmanager
async def sink_of(to: Destination, proxy: str | None) -> AsyncGenerator[HttpSink]:
    """Give what signs the documents of notices, and posts them to a destination."""
    from ..store.sinks import HttpSink  # noqa: PLC0415 -- httpx

    def headers(body: bytes) -> dict[str, str]:
        now = SystemClock().now() // _SECOND_US
        return signed(json.loads(body)["id"], now, body, to.secrets)

    sink = HttpSink(to.url, proxy, kind="application/json", headers=headers)
    try:
        yield sink
    finally:
        await sink.aclose()


async def send_test(to: Destination, config: Config) -> str:
    """
    Send a notice that is a test, once, and return its id.

    Raises:
        ToolError: It was not taken.
    """
    notice = Notice(
        id=secrets.token_hex(16), type="test", at=SystemClock().now(), facts={}
    )
    document = notice.to_document(config.serve.public_url)
    async with sink_of(to, config.proxy) as sink:
        await sink.send(json.dumps(document).encode())
    return notice.id


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
