"""Answers that last end when whoever gets them may no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caxton_host.config import Serve
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import TokenCreated, TokenRevoked
from caxton_host.core.tokens import Token
from caxton_host.errors import StoreError
from caxton_host.ports import TokenRow
from caxton_host.runs.admission import Line
from caxton_host.store.memory import MemoryStore
from caxton_host.web.edge.authentication import Lasting, TokenIdentity
from caxton_host.web.edge.middleware import Edge
from tests.unit.store.fakes import FakeClock, FakeEntropy

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
TOKEN = Token.new(FakeEntropy())
ROW = TokenRow(
    id=TOKEN.id, name="", digest=TOKEN.digest, scopes=("read",), created_at=0
)
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
END: Message = {"type": "http.response.body", "body": b""}


def part(text: bytes) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": True}


class Desk:
    """A host with one token, and an answer that is told what to say and when."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock, entropy=FakeEntropy())
        self.sent: list[Message] = []
        self.looks = 0

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def still(self) -> object:
        self.looks += 1
        return await TokenIdentity(self.store, self.clock).principal(
            f"Bearer {TOKEN.text}"
        )

    async def lasting(self, row: TokenRow = ROW) -> Lasting:
        await self.store.add_token(row, "host/1", created())
        return Lasting(self.send, self.still, self.clock.monotonic)

    async def revoke(self) -> None:
        revoked = TokenRevoked(id=ROW.id, actor=ANN)
        await self.store.revoke_token(ROW.id, 1, "host/1", revoked)


def created() -> TokenCreated:
    return TokenCreated(id=ROW.id, name="", scopes=(), agents=(), actor=ANN)


async def through(desk: Desk, app: ASGIApp, method: str, path: str) -> None:
    """Ask for something behind an edge, with the token."""
    line = Line(places=1, queue=1, each=1, rate=60, now=desk.clock.monotonic)
    identity = TokenIdentity(desk.store, desk.clock)
    edge = Edge.around(
        app, identity=identity, line=line, serve=Serve(), open=frozenset()
    )
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "server": ("127.0.0.1", 8080),
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"authorization", f"Bearer {TOKEN.text}".encode()),
        ],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b'{"method": "x"}'}

    await edge(scope, receive, desk.send)


async def test_answer_goes_on_while_its_token_is_good() -> None:
    desk = Desk()
    said = [START, *(part(bytes([n])) for n in range(4)), END]

    send = await desk.lasting()
    for message in said:
        await send(message)
        desk.clock.time += 3_000_000

    assert desk.sent == said
    assert desk.looks == 2


async def test_answer_ends_before_it_says_more_to_a_token_that_is_revoked() -> None:
    desk = Desk()
    send = await desk.lasting()
    await send(START)
    await send(part(b"one"))

    await desk.revoke()
    desk.clock.time += 5_000_000
    for message in (part(b"two"), part(b"three"), END):
        await send(message)

    assert desk.sent == [START, part(b"one"), END]


async def test_nothing_is_said_later_than_a_period_after_the_token_is_revoked() -> None:
    # law 9: however long it was silent before, and whatever it says last
    desk = Desk()
    send = await desk.lasting()
    await send(START)
    desk.clock.time += 4_000_000
    await desk.revoke()
    desk.clock.time += 999_999
    await send(part(b"within"))
    desk.clock.time += 4_000_001
    await send({"type": "http.response.body", "body": b"late"})

    assert desk.sent == [START, part(b"within"), END]


async def test_answer_ends_when_its_token_expires() -> None:
    desk = Desk()
    send = await desk.lasting(replace(ROW, expires_at=desk.clock.now() + 6_000_000))
    await send(START)

    desk.clock.time += 6_000_000
    await send(part(b"late"))

    assert desk.sent == [START, END]


async def test_answer_ends_when_nobody_can_be_looked_up() -> None:
    desk = Desk()

    async def lost() -> object:
        raise StoreError("no database")

    send = Lasting(desk.send, lost, desk.clock.monotonic)
    desk.clock.time += 5_000_000
    await send(part(b"more"))

    assert desk.sent == [END]


async def test_what_is_said_at_once_costs_no_second_look() -> None:
    desk = Desk()
    send = await desk.lasting()
    desk.clock.time += 4_000_000

    await send(START)
    await send({"type": "http.response.body", "body": b"all"})

    assert (desk.looks, len(desk.sent)) == (0, 2)


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/x"), ("POST", "/mcp")])
async def test_what_was_waited_for_is_not_told_to_a_token_that_is_revoked(
    method: str, path: str
) -> None:
    # law 9
    desk = Desk()
    await desk.lasting()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await desk.revoke()
        desk.clock.time += 5_000_000
        await send(START)
        await send({"type": "http.response.body", "body": b"the result"})

    await through(desk, app, method, path)

    begun, told = desk.sent
    assert (begun["status"], b"the result" in told["body"]) == (401, False)


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/x"), ("POST", "/mcp")])
async def test_every_answer_through_the_edge_is_such_a_one(
    method: str, path: str
) -> None:
    desk = Desk()
    await desk.lasting()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send(START)
        await send(part(b"one"))
        await desk.revoke()
        desk.clock.time += 5_000_000
        await send(part(b"two"))

    await through(desk, app, method, path)

    assert [one.get("body") for one in desk.sent] == [None, b"one", b""]
