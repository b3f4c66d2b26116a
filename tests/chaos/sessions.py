"""
Sessions of the kill loop: a host that serves them, and their clients.

The socket of the hosts outlives them, so a client waits for the next host.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from socket import socket
from typing import Any

import httpx

from caxton_host.app.serve_app import serving
from caxton_host.config import Agent, Config, Serve
from caxton_host.config.model import Session
from caxton_host.core.grants.budgets import UNIT, CallCount, Concurrency, Sum
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.core.limits import Limits
from caxton_host.service.sessions import Sessions
from caxton_host.web.app import application
from caxton_host.web.edge.listen import listening
from caxton_host.web.mcp.http_router import sessions_app
from tests.office import Names

from .scene import Place, rule

SESSION = "dev"
#: How many looks a client may take, what all may pay together, how many messages may be
#: on their way, and after how many calls the next stream begins.
LOOKS, PAYMENTS, PAID, SENDING, CALLS = 4, 600, 2_000, 10_000, 25
GRANT = Grant(
    allow=(
        rule(1, "world/look", calls=LOOKS),
        rule(
            2,
            "world/pay",
            CallCount(limit=PAYMENTS, per="month"),
            Sum(of="n", limit=PAID * UNIT, per="month"),
        ),
        rule(3, "world/send", Concurrency(limit=SENDING)),
    )
)
_TOOLS = ("send", "look", "pay", "none")
_PAUSE, _PATIENCE = 0.02, 60.0
_ID = re.compile(r"[0-9a-f-]{36}")
#: Every so many clients, one never comes back to a call that it was not answered.
_LEAVES = 4


def config(place: Place) -> Config:
    """Return the configuration of a host that serves the session."""
    agent = Agent(
        name=SESSION,
        grant=GRANT,
        session=Session(),
        limits=replace(Limits(), total_calls=CALLS),
    )
    return replace(place.config(), agents={SESSION: agent})


def clients(count: int) -> list[str]:
    """Return the names of the clients, which are their tokens too."""
    return [f"c{number}" for number in range(count)]


async def live(place: Place, listener: socket, count: int) -> None:
    """Serve until all clients have ended."""
    of = {
        name: Principal(
            kind="token", id=name, scopes=frozenset(), agents=(), sessions=(SESSION,)
        )
        for name in clients(count)
    }
    async with serving(config(place), place.paths) as it:
        sessions = Sessions.of(it.up.host, it.up.store, it.service.config)
        mcp = sessions_app(sessions, lambda: False)
        serve = Serve(rate=10**9)
        app = application(it.service, Names(of), serve, sessions=mcp)
        async with sessions.running(), mcp.running(), listening(app, listener.dup()):
            while not place.done.exists():  # noqa: ASYNC110 -- of another process
                await asyncio.sleep(_PAUSE)


#: Whether an answer is an error, and its text.
Said = tuple[bool, str]


@dataclass(slots=True)
class Answers:
    """
    What clients got.

    Attributes:
        said: The answers of each.

        refused: Why there was none.
    """

    said: dict[str, Counter[Said]] = field(default_factory=dict[str, Counter[Said]])
    refused: Counter[str] = field(default_factory=Counter)


async def work(place: Place, port: int, count: int) -> Answers:
    """Call tools as all clients, until the kills are over and each was answered."""
    found = Answers()
    url = f"http://127.0.0.1:{port}/mcp/{SESSION}"
    try:
        await asyncio.gather(
            *(_client(place, url, name, found) for name in clients(count))
        )
    finally:
        place.done.touch()
    return found


async def _client(place: Place, url: str, name: str, found: Answers) -> None:
    said = found.said[name] = Counter()
    headers = {"authorization": f"Bearer {name}", "accept": "application/json"}
    number, is_over = 0, False
    leaves = int(name[1:]) % _LEAVES == _LEAVES - 1
    async with httpx.AsyncClient(headers=headers, timeout=_PATIENCE) as http:
        while not is_over:
            was_over = place.stop.exists()
            tool = f"mcp__world__{_TOOLS[number % len(_TOOLS)]}"
            number += 1
            message = _call(number, tool)
            answer: Mapping[str, Any] = {}
            with contextlib.suppress(httpx.TransportError):  # The host was killed.
                answer = (await http.post(url, json=message)).json()
            if result := answer.get("result"):
                said[result["isError"], result["content"][0]["text"]] += 1
                is_over = was_over
            else:
                is_over = leaves and not answer and bool(said)
                why = answer.get("error", {}).get("message", "the host was killed")
                found.refused[_ID.sub("*", why)] += 1
                await asyncio.sleep(_PAUSE)


def _call(number: int, tool: str) -> dict[str, object]:
    params = {"name": tool, "arguments": {"n": number % 10}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
