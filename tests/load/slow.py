"""Clients that are slow: to say what they want, to send it, or to read the answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

__all__ = ["slow"]

_HEAD = "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
#: A head without an end, a body without an end, and many requests whose answers nobody
#: reads.
_KINDS = (
    _HEAD + "X-Slow: ",
    _HEAD + "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n",
)
#: Seconds between two bytes.
_PAUSE = 5.0


@asynccontextmanager
async def slow(url: str, token: str, count: int) -> AsyncGenerator[None]:
    """Have *count* slow clients, each of which comes again when it is hung up on."""
    tasks = [asyncio.create_task(_client(url, token, n)) for n in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _client(url: str, token: str, number: int) -> None:
    at = urlsplit(url)
    kind = number % len(_KINDS)
    text = _KINDS[kind].format(host=at.netloc, token=token).encode()
    unread = kind == len(_KINDS) - 1
    await asyncio.sleep(number / 200)  # Not all in one moment.
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(at.hostname, at.port)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            try:
                writer.write(text)
                while not writer.is_closing():
                    writer.write(text if unread else b"x")
                    await asyncio.wait_for(writer.drain(), 60)
                    await asyncio.sleep(_PAUSE)
            except TimeoutError:
                pass
            finally:
                writer.close()
        await asyncio.sleep(_PAUSE)
