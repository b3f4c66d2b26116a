"""The one address of this machine at which somebody who logged in comes back."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import httpx2
import pytest

from caxton_host.errors import ToolError, UsageError
from caxton_host.mcp.auth.login import Asked
from caxton_host.mcp.auth.redirect import Browser, browser

STATE = "state-of-this-login"
ASKED = Asked(address="https://a.example/", issuer="i", scope=None, state=STATE)


async def visit(person: Browser, query: str, path: str = "") -> tuple[int, str]:
    address = person.redirect_uri + path + query
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(address)
    return answer.status_code, answer.text


async def waiting(person: Browser) -> asyncio.Task[object]:
    task: asyncio.Task[object] = asyncio.create_task(person.allow(ASKED))
    await asyncio.sleep(0)
    return task


def nothing(_: Asked) -> None:
    """Show nothing."""


async def test_the_right_answer_counts_once_whatever_came_before() -> None:
    shown: list[Asked] = []
    async with browser(shown.append, wait=20) as person:
        right = f"?code=c&state={STATE}&iss=i"
        assert (await visit(person, right))[0] == 400  # Nobody was asked yet.
        task = await waiting(person)
        for query, path, status in (
            ("?code=x&state=of-another", "", 400),
            ("?code=x", "", 400),
            (f"?state={STATE}", "", 400),
            (f"?code=x&state={STATE}&state={STATE}", "", 400),
            (right, "/more", 404),
        ):
            assert (await visit(person, query, path))[0] == status
        status, text = await visit(person, right)
        assert (status, "close this page" in text) == (200, True)
        assert (await visit(person, right))[0] == 400
        result = await task
    assert result.model_dump() == {"code": "c", "state": STATE, "iss": "i"}  # type: ignore[attr-defined]
    assert shown == [ASKED]


@pytest.mark.parametrize(
    ("error", "told"),
    [("access_denied", "access_denied"), ("<b>%1b[31m", "an error")],
)
async def test_a_refusal_ends_the_wait(error: str, told: str) -> None:
    async with browser(nothing, wait=20) as person:
        task = await waiting(person)
        assert (await visit(person, f"?error={error}&state={STATE}"))[0] == 200
        with pytest.raises(ToolError, match=f"its issuer answered {told}$"):
            await task


async def test_nobody_is_waited_for_without_end() -> None:
    async with browser(nothing, wait=0.05) as person:
        with pytest.raises(ToolError, match="no login within") as caught:
            await person.allow(ASKED)
        assert (caught.value.kind, caught.value.sent) == ("timeout", "no")


@pytest.mark.parametrize("head", [b"", b"GET /callback", b"x" * 100_000])
async def test_what_is_no_request_is_dropped(head: bytes) -> None:
    async with browser(nothing, wait=20) as person:
        where = urlsplit(person.redirect_uri)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(head)
        if len(head) < 100:
            writer.write_eof()
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass  # It was closed before all was read.
        finally:
            writer.close()


async def test_a_port_that_is_taken_is_told() -> None:
    async with browser(nothing, wait=1) as person:
        port = urlsplit(person.redirect_uri).port
        assert port
        with pytest.raises(UsageError, match="is in use"):
            async with browser(nothing, wait=1, port=port):
                pass
