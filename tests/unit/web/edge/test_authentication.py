"""Authentication: tokens of the host, of an issuer, or none; and long answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caxton_host.config import OAuth, Serve
from caxton_host.core.calls import JSON
from caxton_host.core.grants.freezes import Freezes
from caxton_host.core.grants.principals import Token
from caxton_host.core.log.events import Frozen, TokenCreated, TokenRevoked
from caxton_host.errors import ForbiddenError, StoreError, UsageError
from caxton_host.ports.serving import TokenRow
from caxton_host.runs.admission import RunQueue
from caxton_host.runs.freezing import freeze, freezes_of
from caxton_host.store.memory import MemoryStore, MemoryTokens
from caxton_host.web.edge.authentication import (
    Identity,
    LocalIdentity,
    ReauthenticatedSend,
    ThawedIdentity,
    TokenIdentity,
    Unauthenticated,
    identity_of,
    metadata,
)
from caxton_host.web.edge.middleware import Edge
from tests.unit.store.fakes import FakeClock, FakeEntropy

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
TOKEN, OTHER = (Token.new(random) for random in [FakeEntropy()] * 2)
ROW = TokenRow(
    id=TOKEN.id,
    name="ci",
    digest=TOKEN.digest,
    scopes=("run", "read"),
    agents=("weather", "bank*"),
    roles=("finance",),
    created_at=1,
)
CLOCK = FakeClock(now=1_000)


class Lost:
    """Tokens that cannot be read."""

    async def find(self, token_id: str) -> TokenRow | None:
        raise StoreError(f"no database to look up {token_id}")

    async def all(self) -> list[TokenRow]:
        raise StoreError("no database to read")


async def known(*rows: TokenRow) -> MemoryTokens:
    store = MemoryStore(clock=CLOCK, entropy=FakeEntropy())
    for row in rows:
        created = TokenCreated(id=row.id, name="", scopes=(), agents=(), actor=ANN)
        await store.tokens.add(row, f"host/{row.id}", created)
    return store.tokens


async def refused(identity: Identity, authorization: str | None) -> Unauthenticated:
    with pytest.raises(Unauthenticated) as refusal:
        await identity.principal(authorization)
    return refusal.value


async def test_whoever_has_a_token_is_what_it_says() -> None:
    identity = TokenIdentity(await known(ROW), CLOCK)

    who = await identity.principal(f"Bearer {TOKEN.text}")

    assert (who.kind, who.id, who.authenticated) == ("token", TOKEN.id, True)
    assert who.scopes == {"run", "read"}
    assert (who.agents, who.roles) == (("weather", "bank*"), ("finance",))
    assert await identity.principal(f"bearer {TOKEN.text}") == who


async def test_nobody_is_let_in_without_a_token() -> None:
    # attack 40
    identity = TokenIdentity(await known(ROW), CLOCK)

    refusal = await refused(identity, None)

    assert refusal.challenge == 'Bearer realm="caxton"'


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN.text,
        f"Basic {TOKEN.text}",
        f"Bearer  {TOKEN.text}",
        f"Bearer {TOKEN.text} ",
        f"Bearer {TOKEN.text}, Bearer {TOKEN.text}",
        f"Bearer {TOKEN.text}\r\nX: 1",
        "Bearer " + 17_000 * "a",
        "Bearer " + 100_000_000 * "a",
        "Bearer caxton_",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
    ],
)
async def test_what_is_no_token_is_refused(authorization: str) -> None:
    # attack 40
    identity = TokenIdentity(await known(ROW), CLOCK)

    refusal = await refused(identity, authorization)

    assert 'error="invalid_token"' in refusal.challenge
    assert "\n" not in refusal.challenge


async def test_token_of_another_is_not_known_and_the_secret_decides() -> None:
    # attack 40
    identity = TokenIdentity(await known(ROW), CLOCK)
    forged = Token(id=TOKEN.id, secret=OTHER.secret)

    stranger = await refused(identity, f"Bearer {OTHER.text}")
    thief = await refused(identity, f"Bearer {forged.text}")

    assert stranger.challenge == thief.challenge  # Which ids there are is not told.


async def test_token_is_refused_as_soon_as_it_is_revoked() -> None:
    tokens = await known(ROW)
    identity = TokenIdentity(tokens, CLOCK)
    await identity.principal(f"Bearer {TOKEN.text}")

    await tokens.revoke(ROW.id, 2, "host/9", TokenRevoked(id=ROW.id, actor=ANN))

    assert "revoked" in (await refused(identity, f"Bearer {TOKEN.text}")).challenge


async def test_token_expires_by_the_clock_of_the_host() -> None:
    clock = FakeClock(now=9)
    identity = TokenIdentity(await known(replace(ROW, expires_at=10)), clock)
    await identity.principal(f"Bearer {TOKEN.text}")

    clock.time = 10

    assert "expired" in (await refused(identity, f"Bearer {TOKEN.text}")).challenge


async def test_frozen_token_is_known_and_refused_until_it_is_thawed() -> None:
    store = MemoryStore(clock=CLOCK, entropy=FakeEntropy())
    await store.tokens.add(ROW, "host/1", created())
    frozen = Frozen(kind="token", name="ci", actor=ANN, reason="stolen")
    await freeze(store, frozen, agents=(), servers=())
    now = await freezes_of(store)
    identity = ThawedIdentity(TokenIdentity(store.tokens, CLOCK), lambda: now)
    with pytest.raises(ForbiddenError, match="the token is frozen") as refusal:
        await identity.principal(f"Bearer {TOKEN.text}")
    assert "stolen" not in str(refusal.value)
    await refused(identity, f"Bearer {OTHER.text}")
    now = Freezes()
    assert (await identity.principal(f"Bearer {TOKEN.text}")).id == ROW.id


async def test_who_cannot_be_looked_up_is_not_let_in() -> None:
    identity = TokenIdentity(Lost(), CLOCK)

    with pytest.raises(StoreError) as refusal:
        await identity.principal(f"Bearer {TOKEN.text}")

    assert TOKEN.secret not in str(refusal.value)


async def test_no_refusal_says_the_token(caplog: pytest.LogCaptureFixture) -> None:
    identity = TokenIdentity(await known(replace(ROW, expires_at=1)), CLOCK)

    for text in (TOKEN.text, OTHER.text, f"{TOKEN.text}="):  # law 8
        refusal = await refused(identity, f"Bearer {text}")
        said = f"{refusal!r} {refusal.challenge} {caplog.text}"
        assert text.split("_", 2)[-1].rstrip("=") not in said


# -- nobody's token ------------------------------------------------------------


async def test_without_tokens_whoever_calls_is_the_user_of_the_machine() -> None:
    serve = Serve(allow_unauthenticated=True)
    identity = identity_of(serve, await known(ROW), CLOCK)

    who = await identity.principal(None)

    assert (who.kind, who.authenticated) == ("local", False)
    assert who.may("admin", "anything")


async def test_bad_token_is_refused_where_none_is_needed() -> None:
    identity = LocalIdentity(TokenIdentity(await known(ROW), CLOCK))

    assert (await identity.principal(f"Bearer {TOKEN.text}")).kind == "token"
    await refused(identity, f"Bearer {OTHER.text}")
    await refused(identity, "")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "127.0.0.1.test", ""])  # noqa: S104 -- refused
async def test_only_this_machine_can_do_without_tokens(host: str) -> None:
    serve = Serve(allow_unauthenticated=True, host=host)

    with pytest.raises(UsageError, match="from other machines") as refusal:
        identity_of(serve, await known(), CLOCK)

    assert "--allow-unauthenticated" in refusal.value.fix


async def test_tokens_are_needed_unless_it_is_said_otherwise() -> None:
    await refused(identity_of(Serve(), await known(), CLOCK), None)


# -- where to get one ----------------------------------------------------------


@pytest.mark.parametrize(
    ("audience", "place"),
    [
        ("https://a.test", "https://a.test/.well-known/oauth-protected-resource"),
        ("https://a.test/", "https://a.test/.well-known/oauth-protected-resource"),
        (
            "https://a.test:8/mcp",
            "https://a.test:8/.well-known/oauth-protected-resource/mcp",
        ),
    ],
)
async def test_refusal_says_where_to_read_whose_tokens_are_taken(
    audience: str, place: str
) -> None:
    oauth = OAuth(issuer="https://id.test", audience=audience)
    identity = identity_of(Serve(oauth=oauth), await known(), CLOCK)

    refusal = await refused(identity, None)

    assert f'resource_metadata="{place}"' in refusal.challenge


def test_document_says_whose_tokens_are_taken_and_for_what() -> None:
    found = metadata(OAuth(issuer="https://id.test", audience="https://a.test/mcp"))

    assert found == {
        "resource": "https://a.test/mcp",
        "authorization_servers": ["https://id.test"],
        "scopes_supported": [
            "caxton:run",
            "caxton:read",
            "caxton:decide",
            "caxton:auditor",
            "caxton:admin",
        ],
        "bearer_methods_supported": ["header"],
        "resource_name": "Caxton Host",
    }


async def test_audience_that_is_no_address_has_no_document() -> None:
    oauth = OAuth(issuer="https://id.test", audience="api://caxton")

    assert metadata(oauth) is None
    assert metadata(None) is None
    refusal = await refused(identity_of(Serve(oauth=oauth), await known(), CLOCK), None)
    assert "resource_metadata" not in refusal.challenge


STORED = TokenRow(
    id=TOKEN.id, name="", digest=TOKEN.digest, scopes=("read",), created_at=0
)
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
END: Message = {"type": "http.response.body", "body": b""}


def part(text: bytes) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": True}


class ApiContext:
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
        return await TokenIdentity(self.store.tokens, self.clock).principal(
            f"Bearer {TOKEN.text}"
        )

    async def lasting(self, row: TokenRow = STORED) -> ReauthenticatedSend:
        await self.store.tokens.add(row, "host/1", created())
        return ReauthenticatedSend(self.send, self.still, self.clock.monotonic)

    async def revoke(self) -> None:
        revoked = TokenRevoked(id=STORED.id, actor=ANN)
        await self.store.tokens.revoke(STORED.id, 1, "host/1", revoked)


def created() -> TokenCreated:
    return TokenCreated(id=STORED.id, name="", scopes=(), agents=(), actor=ANN)


async def through(desk: ApiContext, app: ASGIApp, method: str, path: str) -> None:
    """Ask for something behind an edge, with the token."""
    line = RunQueue(places=1, queue=1, each=1, rate=60, now=desk.clock.monotonic)
    identity = TokenIdentity(desk.store.tokens, desk.clock)
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
    desk = ApiContext()
    said = [START, *(part(bytes([n])) for n in range(4)), END]

    send = await desk.lasting()
    for message in said:
        await send(message)
        desk.clock.time += 3_000_000

    assert desk.sent == said
    assert desk.looks == 2


async def test_answer_ends_before_it_says_more_to_a_token_that_is_revoked() -> None:
    desk = ApiContext()
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
    desk = ApiContext()
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
    desk = ApiContext()
    send = await desk.lasting(replace(STORED, expires_at=desk.clock.now() + 6_000_000))
    await send(START)

    desk.clock.time += 6_000_000
    await send(part(b"late"))

    assert desk.sent == [START, END]


async def test_answer_ends_when_nobody_can_be_looked_up() -> None:
    desk = ApiContext()

    async def lost() -> object:
        raise StoreError("no database")

    send = ReauthenticatedSend(desk.send, lost, desk.clock.monotonic)
    desk.clock.time += 5_000_000
    await send(part(b"more"))

    assert desk.sent == [END]


async def test_what_is_said_at_once_costs_no_second_look() -> None:
    desk = ApiContext()
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
    desk = ApiContext()
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
    desk = ApiContext()
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
