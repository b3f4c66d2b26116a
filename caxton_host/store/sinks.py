"""Sinks: a file that grows, or a URL that takes what is posted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ..errors import ToolError
from ..lib.http import Client

_TIMEOUT = 10.0
_MAX_ANSWER = 65_536
_BLOCK = 65_536


class Sink(Protocol):
    """Takes bytes, whole or not at all."""

    async def send(self, data: bytes) -> None:
        """
        Send *data*.

        Raises:
            OSError: It cannot be written.

            ToolError: It was not accepted.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class FileSink:
    """An append-only file of lines, best on another machine or on write-once media."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(self, data: bytes) -> None:
        """Add *data* to the file; see `Sink`."""
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        handle = os.open(self._path, flags, 0o644)
        with open(handle, "r+b", buffering=0) as file:  # noqa: PTH123 -- a descriptor
            end = _end_of_lines(handle)
            # An append-only file refuses this, even if nothing is cut off.
            if end < os.fstat(handle).st_size:
                os.ftruncate(handle, end)
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            os.fsync(handle)

    async def aclose(self) -> None:
        """Do nothing."""


def _end_of_lines(handle: int) -> int:
    """Return where the last whole line ends: a crash may have cut off the next one."""
    at = os.fstat(handle).st_size
    while at > 0:
        begin = max(0, at - _BLOCK)
        last = os.pread(handle, at - begin, begin).rfind(b"\n")
        if last >= 0:
            return begin + last + 1
        at = begin
    return 0


class HttpSink:
    """
    A URL that stores the body of a POST.

    Args:
        url: The URL.

        proxy: The proxy for it.

        kind: The media type of the body.

        headers: Returns further headers of a request with that body.
    """

    def __init__(
        self,
        url: str,
        proxy: str | None = None,
        *,
        kind: str = "text/plain; charset=utf-8",
        headers: Callable[[bytes], dict[str, str]] = lambda _: {},
    ) -> None:
        self._url, self._kind, self._headers = url, kind, headers
        self._client = Client(proxy=proxy)

    async def send(self, data: bytes) -> None:
        """Post *data*; see `Sink`."""
        answer = await self._client.request(
            "POST",
            self._url,
            timeout=_TIMEOUT,
            max_bytes=_MAX_ANSWER,
            headers={"content-type": self._kind, **self._headers(data)},
            content=data,
            allow_private=True,  # configured by the operator
        )
        if answer.status // 100 != 2:  # noqa: PLR2004 -- success
            raise ToolError("protocol", "yes", f"it answered {answer.status}")

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()
