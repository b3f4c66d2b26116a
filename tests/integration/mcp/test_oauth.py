"""Servers that want tokens: who gets the credentials, and who never does."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from caxton_host.core.grants.principals import Callers, Principal
from caxton_host.core.log.events import BreakerOpened, Event
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import OAuth, ServerConfig
from caxton_host.demo_server import sse_app
from caxton_host.errors import ServerUnavailable, ToolError
from caxton_host.lib.machine import SystemClock
from caxton_host.mcp import McpTools, Pool
from caxton_host.ports.tools import RunScope, ToolClient

from .authority import CLIENT, CLIENT_SECRET, Authority, Guarded, served
from .conftest import request


class Scene(NamedTuple):
    authority: Authority
    guarded: Guarded
    config: ServerConfig
    redact: Redactor
    events: list[Event]

    def tools(self, pool: Pool | None = None, **changes: Any) -> McpTools:  # noqa: ANN401
        assert self.config.oauth
        config = replace(self.config, oauth=replace(self.config.oauth, **changes))
        return McpTools(
            {"crm": config},
            redact=self.redact,
            on_event=self.events.append,
            pool=pool,
        )


@asynccontextmanager
async def scene() -> AsyncGenerator[Scene]:
    authority = Authority()
    guarded = Guarded(authority)
    async with served(authority.app()) as issuer, served(guarded) as origin:
        authority.url, guarded.url = issuer, f"{origin}/mcp"
        oauth = OAuth(
            client_id=CLIENT,
            client_secret=CLIENT_SECRET,
            issuer=issuer,
            allow_private=True,
        )
        config = ServerConfig(
            name="crm", url=guarded.url, transport="http", oauth=oauth
        )
        yield Scene(authority, guarded, config, Redactor([CLIENT_SECRET]), [])


async def said(tools: ToolClient, text: str = "hello") -> str:
    call = request("echo", {"text": text}, server="crm")
    return (await tools.call_tool(call)).message


async def refused(tools: McpTools) -> str:
    """Return why the server is down, of which no part may be a secret (law 8)."""
    with pytest.raises(ToolError) as caught:
        await said(tools)
    assert caught.value.sent == "no"
    why = f"{caught.value} {tools.problem('crm')}"
    assert CLIENT_SECRET not in why
    return why


@pytest.mark.parametrize("method", ["basic", "post"])
async def test_a_token_is_got_once_and_goes_with_every_request(method: str) -> None:
    async with scene() as at, at.tools(method=method) as tools:
        assert await said(tools) == "hello"
        await asyncio.gather(*(said(tools, str(n)) for n in range(20)))
        assert len(at.authority.given) == 1
        assert at.guarded.seen[0] == ""
        assert {*at.guarded.seen[1:]} == {f"Bearer {at.authority.given[0]}"}
        [form] = at.authority.asked
        assert form["grant_type"] == "client_credentials"
        assert form["resource"] == at.guarded.url


async def test_a_token_is_a_secret_as_soon_as_it_is_there() -> None:
    async with scene() as at, at.tools() as tools:
        await said(tools)
        [token] = at.authority.given
        # law 8
        assert await said(tools, f"it is {token}!") == "it is [redacted]!"
        assert token not in repr(at.events)
        assert CLIENT_SECRET not in repr(at.config)


async def test_what_the_server_asks_for_is_the_scope_unless_the_operator_says() -> None:
    async with scene() as at:
        async with at.tools() as tools:
            await said(tools)
        async with at.tools(scope="read") as tools:
            await said(tools)
        assert [form["scope"] for form in at.authority.asked] == ["everything", "read"]


async def test_an_expired_token_is_replaced_before_the_call_is_sent() -> None:
    async with scene() as at, at.tools() as tools:
        at.authority.lasts = 2
        await said(tools)
        at.authority.good.clear()
        at.authority.lasts = 3600
        await asyncio.sleep(2.1)
        assert await said(tools) == "hello"
        assert len(at.authority.given) == 2
        assert at.guarded.seen.count("") == 1


async def test_a_call_that_is_turned_away_fails_unsent_and_the_next_has_a_token() -> (
    None
):
    async with scene() as at, at.tools() as tools:
        await said(tools)
        at.authority.good.clear()
        await asyncio.sleep(1.1)
        sent = at.guarded.calls.count("tools/call")
        with pytest.raises(ToolError, match="rejected the token") as caught:
            await said(tools)
        # law 2: a second send is for the log to hold first
        assert (caught.value.kind, caught.value.sent) == ("transport", "no")
        assert at.guarded.calls.count("tools/call") == sent + 1
        assert await said(tools) == "hello"
        assert len(at.authority.given) == 2


async def test_a_token_that_is_never_good_is_not_asked_for_again_and_again() -> None:
    async with scene() as at, at.tools() as tools:
        at.authority.good = _Nothing()
        assert "rejected it" in await refused(tools)
        assert "rejected it" in await refused(tools)
        # Once each time that the server was tried.
        assert len(at.authority.given) <= 2


class _Nothing(set[str]):
    def add(self, _: str) -> None:
        """Keep nothing."""


async def test_two_configurations_of_a_server_have_one_token() -> None:
    async with scene() as at, at.tools() as tools:
        await said(tools)
        slower = replace(at.config, timeout=20.0)
        shared = tools._shared
        async with McpTools({"crm": slower}, redact=at.redact, pool=shared) as more:
            await said(more)
        assert len(at.authority.given) == 1


async def test_a_token_to_refresh_with_is_used_and_the_credentials_if_it_fails() -> (
    None
):
    async with scene() as at, at.tools() as tools:
        at.authority.refreshes = True
        await said(tools)
        for forgets, grant in (
            (False, ["refresh_token"]),
            (True, ["refresh_token", "client_credentials"]),
        ):
            at.authority.forgets = forgets
            before = len(at.authority.asked)
            _let_expire(tools)
            assert await said(tools) == "hello"
            asked = at.authority.asked[before:]
            assert [form["grant_type"] for form in asked] == grant
        last = f"refresh-{at.authority.given[-1]}"
        assert await said(tools, last) == "[redacted]"  # law 8


def _let_expire(tools: McpTools) -> None:
    [access] = tools._shared._access.values()
    assert access._provider
    access._provider.context.token_expiry_time = 1.0
    access._not_before = 0.0


async def test_a_token_that_no_header_takes_is_refused() -> None:
    async with scene() as at, at.tools() as tools:
        at.authority.length = 10_000
        assert "it cannot be sent" in await refused(tools)


async def test_an_issuer_that_does_not_answer_takes_no_longer_than_the_start() -> None:
    stop = asyncio.Event()

    async def silent(scope: Any, *_: Any) -> None:  # noqa: ANN401
        if scope["type"] == "http":
            await stop.wait()

    async with scene() as at, served(silent) as issuer:
        at.guarded.silent = True
        config = replace(at.config, start_timeout=1.0)
        tools = at._replace(config=config).tools(issuer=issuer)
        async with tools:
            await refused(tools)
        stop.set()
        assert at.authority.asked == []


async def test_the_transport_of_2024_shows_its_token_too() -> None:
    authority = Authority()
    guarded = Guarded(authority, sse_app())
    async with served(authority.app()) as issuer, served(guarded) as origin:
        authority.url, guarded.url = issuer, f"{origin}/sse"
        guarded.silent = True
        config = ServerConfig(
            name="crm",
            url=guarded.url,
            transport="sse",
            oauth=OAuth(
                client_id=CLIENT,
                client_secret=CLIENT_SECRET,
                issuer=issuer,
                allow_private=True,
            ),
        )
        async with McpTools({"crm": config}, redact=Redactor()) as tools:
            assert await said(tools) == "hello"
            authority.good.clear()
            await asyncio.sleep(1.1)
            with pytest.raises(ToolError, match="rejected the token"):
                await said(tools)
            assert await said(tools) == "hello"
        assert len(authority.given) == 2


async def test_credentials_go_to_no_issuer_but_the_one_that_is_named() -> None:
    thief = Authority()
    async with scene() as at, served(thief.app()) as other:
        thief.url = other
        at.guarded.sends_to = other
        async with at.tools() as tools:
            assert "would leave the origins" in await refused(tools)
        assert at.authority.asked == thief.asked == []


async def test_credentials_go_to_no_place_off_the_issuer() -> None:
    thief = Authority()
    async with scene() as at, served(thief.app()) as other:
        at.authority.elsewhere = f"{other}/token"
        async with at.tools() as tools:
            assert "would leave the origins" in await refused(tools)
        assert at.authority.asked == thief.asked == []


async def test_a_server_cannot_make_the_host_look_elsewhere() -> None:
    # attack 36
    thief = Authority()
    async with scene() as at, served(thief.app()) as other:
        at.guarded.metadata = f"{other}/.well-known/oauth-authorization-server"
        async with at.tools() as tools:
            assert "would leave the origins" in await refused(tools)
        assert thief.paths == []


async def test_a_server_that_says_nothing_of_its_issuer_is_taken_at_the_operators() -> (
    None
):
    async with scene() as at, at.tools() as tools:
        at.guarded.silent = True
        assert await said(tools) == "hello"


async def test_an_issuer_with_a_private_address_has_to_be_allowed() -> None:
    # attack 36
    async with scene() as at, at.tools(allow_private=False) as tools:
        assert "is not public" in await refused(tools)
        assert at.authority.paths == []


async def test_no_redirect_of_an_issuer_is_followed() -> None:
    async with scene() as at, at.tools() as tools:
        at.authority.redirects = True
        assert "a redirect, 307 (Temporary Redirect), is not followed" in await refused(
            tools
        )
        assert at.authority.paths.count("/token") == 1


@pytest.mark.parametrize("way", ["refuses", "empty"])
async def test_nothing_that_an_issuer_says_is_repeated(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scene() as at, at.tools(method="post") as tools:
        setattr(at.authority, way, True)
        assert "there is no token" in await refused(tools)
    for secret in (CLIENT_SECRET, "correct+horse", "invalid_client"):  # law 8
        assert secret not in caplog.text


# -- where the credentials go ------------------------------------------------------


async def test_an_endpoint_at_another_host_is_used_if_the_operator_lists_it() -> None:
    login = Authority()
    async with scene() as at, served(login.app()) as other:
        login.url, login.good = other, at.authority.good
        at.authority.elsewhere = f"{other}/token"
        async with at.tools(endpoints=("https://else.test", other)) as tools:
            assert await said(tools) == "hello"
        assert (len(login.asked), at.authority.asked) == (1, [])


async def test_a_listed_endpoint_takes_tokens_and_says_nothing_of_the_issuer() -> None:
    thief = Authority()
    async with scene() as at, served(thief.app()) as other:
        thief.url = at.guarded.sends_to = other
        async with at.tools(endpoints=(other,)) as tools:
            assert "would leave the origins" in await refused(tools)
        assert (thief.paths, thief.asked) == ([], [])


async def test_an_answer_without_end_is_not_read() -> None:
    async with scene() as at, at.tools() as tools:
        at.authority.padding = 10_000_000
        assert "65536 bytes" in await refused(tools)


# -- when they change --------------------------------------------------------------


async def test_a_rotated_secret_is_used_and_the_old_one_fails_unsent() -> None:
    async with scene() as at, at.tools() as tools:
        at.authority.secret = "a new secret, for all calls"  # noqa: S105 -- made up
        assert "its issuer answered 401" in await refused(tools)
        pool = tools._shared
        async with at.tools(pool, client_secret=at.authority.secret) as more:
            assert await said(more) == "hello"


async def test_a_token_is_replaced_before_its_end_once_for_all_calls() -> None:
    async with scene() as at, at.tools() as tools:
        await said(tools)
        [access] = tools._shared._access.values()
        assert access._provider
        _let_expire(tools)
        await asyncio.gather(*(said(tools, str(n)) for n in range(20)))
        assert len(at.authority.given) == 2
        # The issuer says 3600 s: clocks differ, and a call takes a while.
        ends = access._provider.context.token_expiry_time
        assert ends
        assert ends <= SystemClock().now() / 1e6 + 3570


# -- a key instead of a secret -----------------------------------------------------

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def pem(algorithm: str) -> str:
    made: bytes = KEYS[algorithm].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return made.decode()


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_client_with_a_key_signs_for_its_issuer_and_shows_no_secret(
    algorithm: str,
) -> None:
    async with scene() as at:
        at.authority.key = KEYS[algorithm].public_key(), algorithm
        at.authority.refreshes = True
        key = pem(algorithm)
        async with at.tools(client_secret="", private_key=key, key_id="k1") as tools:
            assert await said(tools) == "hello"
            _let_expire(tools)
            assert await said(tools) == "hello"
        one, other = (form["client_assertion"] for form in at.authority.asked)
        assert jwt.get_unverified_header(one)["kid"] == "k1"
        claims = [
            jwt.decode(it, options={"verify_signature": False}) for it in (one, other)
        ]
        assert claims[0]["aud"] == at.authority.url
        assert claims[0]["jti"] != claims[1]["jti"]
        for form in at.authority.asked:
            assert "client_secret" not in form
            assert form["grant_type"] == "client_credentials"


@pytest.mark.parametrize("ahead", [-25, 250])
async def test_an_issuer_whose_clock_differs_takes_what_is_signed(ahead: int) -> None:
    async with scene() as at:
        at.authority.key = KEYS["ES256"].public_key(), "ES256"
        at.authority.ahead = ahead
        async with at.tools(client_secret="", private_key=pem("ES256")) as tools:
            assert await said(tools) == "hello"


# -- on behalf of somebody ---------------------------------------------------------


def person(name: str, token: str) -> Principal:
    return Principal(kind="oauth", id=name, scopes=frozenset({"run"}), token=token)


def run(who: Principal, run_id: str = "run") -> RunScope:
    return RunScope(run_id=run_id, agent="a", actor=who.actor)


ANN, BOB = person("ann", "access-token-of-ann"), person("bob", "access-token-of-bob")


async def test_a_run_acts_with_a_token_for_its_caller_and_no_other_does() -> None:
    callers = Callers()
    async with scene() as at, at.tools(Pool(callers), flow="exchange") as tools:
        for who in (ANN, BOB, ANN):
            with callers.kept(who):
                async with tools.open(run(who)) as own:
                    await own.offered(["crm"])
                    assert await said(own, f"it is {who.token}") == "it is [redacted]"
        # Kept for each principal, and shared by its runs.
        subjects = [form["subject_token"] for form in at.authority.asked]
        assert subjects == [ANN.token, BOB.token]
        for form in at.authority.asked:
            assert form["grant_type"].endswith(":grant-type:token-exchange")
            assert form["subject_token_type"].endswith(":token-type:access_token")
            assert form["resource"] == at.guarded.url
        assert {*at.guarded.seen[1:]} - {""} == {
            f"Bearer {token}" for token in at.authority.given
        }
        for secret in (ANN.token, BOB.token, *at.authority.given):  # law 8
            assert secret not in repr(at.events) + repr(ANN) + repr(BOB)


@pytest.mark.parametrize("required", [False, True])
async def test_a_caller_without_an_access_token_has_nothing_sent_for_it(
    *, required: bool
) -> None:
    callers = Callers()
    local = Principal(kind="local", id="ann", scopes=frozenset({"admin"}))
    async with scene() as scene_:
        at = scene_._replace(config=replace(scene_.config, required=required))
        async with at.tools(Pool(callers), flow="exchange") as tools:
            # Another one is here: that is no reason to act for it.
            with callers.kept(ANN), callers.kept(local):
                async with tools.open(run(local)) as own:
                    with pytest.raises(ToolError, match="no access token") as caught:
                        await said(own)
                    assert caught.value.sent == "no"
                    if required:
                        with pytest.raises(ServerUnavailable) as down:
                            await own.offered(["crm"])
                        assert "access token" in down.value.fix
                    else:
                        assert (await own.offered(["crm"])).unlisted == ("crm",)
        assert at.authority.paths == at.guarded.seen == []


async def test_what_was_exchanged_ends_with_the_call_and_is_not_refreshed() -> None:
    callers = Callers()
    async with scene() as at, at.tools(Pool(callers), flow="exchange") as tools:
        at.authority.refreshes = True
        with callers.kept(ANN):
            opened = tools.open(run(ANN))
            own = await opened.__aenter__()
            await said(own)
        _let_expire(tools)
        with pytest.raises(ToolError, match="no access token") as caught:
            await said(own)
        assert caught.value.sent == "no"
        newer = person("ann", "a newer access token of ann")
        [access] = tools._shared._access.values()
        access._not_before = 0.0
        with callers.kept(newer):
            assert await said(own) == "hello"
        await opened.__aexit__(None, None, None)
        asked = at.authority.asked
        assert [form["subject_token"] for form in asked] == [ANN.token, newer.token]


async def test_a_caller_without_a_good_token_says_nothing_about_the_server() -> None:
    callers = Callers()
    async with scene() as at, at.tools(Pool(callers), flow="exchange") as tools:
        with callers.kept(ANN):
            async with tools.open(run(ANN)) as own:
                await said(own)
                at.authority.good.clear()
                at.authority.refuses = True
                [access] = tools._shared._access.values()
                for again in (False, True, True) * 4:
                    access._not_before *= again
                    with pytest.raises(ToolError, match="token") as caught:
                        await said(own)
                    assert caught.value.sent == "no"
                at.authority.refuses = False
                access._not_before = 0.0
                assert await said(own) == "hello"
        assert not [one for one in at.events if isinstance(one, BreakerOpened)]


async def test_tokens_of_callers_that_are_gone_are_not_looked_for_for_ever() -> None:
    callers = Callers()
    async with scene() as at:
        async with at.tools(Pool(callers), flow="exchange") as tools:
            for number in range(12):
                await _visit(tools, callers, number)
            await tools._shared.clear(["crm"])
            await asyncio.sleep(0)
        gc.collect()
        assert len(at.redact._passing) <= 8


async def _visit(tools: McpTools, callers: Callers, number: int) -> None:
    who = person(f"p{number}", f"access-token-of-{number}")
    with callers.kept(who):
        async with tools.open(run(who)) as own:
            await said(own)
