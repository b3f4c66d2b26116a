"""The redirect URI of a login: a listener on this machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from ...errors import ToolError, UsageError
from .login import Asked

_HOST: Final = "127.0.0.1"
_PATH: Final = "/callback"
_LONGEST_HEAD = 16 * 1024
_HEAD_SECONDS = 5.0
_ERROR = re.compile("[a-z_]{1,64}")


class Browser:
    """
    A person with a browser on this machine. See `Person`.

    Args:
        show: Shows them the request for consent.

        wait: Seconds for the login.

    Attributes:
        redirect_uri: The address of the listener.
    """

    def __init__(self, show: Callable[[Asked], None], wait: float) -> None:
        self._show = show
        self._wait = wait
        self._state = ""
        self._result: asyncio.Future[AuthorizationCodeResult]
        self._result = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""

    async def allow(self, asked: Asked) -> AuthorizationCodeResult:
        """
        Return the answer that the browser brings.

        Raises:
            ToolError: The issuer refused, or there was no answer in time.
        """
        self._state = asked.state
        self._show(asked)
        try:
            async with asyncio.timeout(self._wait):
                return await self._result
        except TimeoutError:
            why = f"no login within {self._wait:g} s"
            fix = "log in again, with more time: --wait 15m"
            raise ToolError("timeout", "no", why, fix=fix) from None

    async def visited(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request, which may come from any local program."""
        try:
            with suppress(
                TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                async with asyncio.timeout(_HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._answer(head.split(b"\r\n")[0].decode("latin-1"))
                writer.write(_page(status, text))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _answer(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        where = urlsplit(rest.partition(" ")[0])
        if method != "GET" or where.path != _PATH:
            return "404 Not Found", "There is nothing here."
        query = parse_qs(where.query)
        said = {name: texts[0] for name, texts in query.items() if len(texts) == 1}
        if (
            not self._state
            or said.get("state") != self._state
            or self._result.done()
            or not ("code" in said or "error" in said)
        ):
            # The answer to another login, or a forgery: the right one may still come.
            return "400 Bad Request", "This login was not expected."
        if "error" in said:
            error = said["error"] if _ERROR.fullmatch(said["error"]) else "an error"
            why, fix = f"its issuer answered {error}", "log in again, and allow it"
            self._result.set_exception(ToolError("transport", "no", why, fix=fix))
            return "200 OK", "The login was refused. You can close this page."
        self._result.set_result(
            AuthorizationCodeResult(
                code=said["code"], state=said["state"], iss=said.get("iss")
            )
        )
        return "200 OK", "That is all. You can close this page."


@asynccontextmanager
async def browser(
    show: Callable[[Asked], None], *, wait: float, port: int = 0
) -> AsyncGenerator[Browser]:
    """
    Listen for a browser during the block.

    Raises:
        UsageError: The port is in use.
    """
    person = Browser(show, wait)
    try:
        server = await asyncio.start_server(
            person.visited, _HOST, port, limit=_LONGEST_HEAD
        )
    except OSError:
        raise UsageError(
            f"port {port} is in use",
            fix="end what listens there, or choose another redirect_port",
        ) from None
    async with server:
        found = server.sockets[0].getsockname()[1]
        person.redirect_uri = f"http://{_HOST}:{found}{_PATH}"
        yield person


def _page(status: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    return (
        f"HTTP/1.1 {status}\r\n"
        "content-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\n"
        "cache-control: no-store\r\n"
        "referrer-policy: no-referrer\r\n"
        "connection: close\r\n\r\n"
    ).encode() + body
