"""Sign-in to the console at the authorization server of its callers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.grants.principals import Principal
from caxton_host.lib.http import Client
from caxton_host.web.app import application
from caxton_host.web.ui.oauth_sign_in import OAuthSignIn
from caxton_host.web.ui.visits import Visits
from tests.office import Office

from ..webhooks.conftest import Server
from .test_oauth import EC, NOW, STRANGER, Issuer

HOME = "http://console.localhost"
BACK = f"{HOME}/ui/sign-in/done"
CAME_BACK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
CODE = "the-code"
METADATA = "/.well-known/openid-configuration"


@pytest.fixture
def issuer(server: Server, client: Client) -> Issuer:
    found = Issuer(server, client)
    found.answers[METADATA] |= {
        "authorization_endpoint": f"{server.url}/login?theme=dark",
        "token_endpoint": f"{server.url}/token",
    }
    grant(found, found.token(scope="caxton:read"))
    found.renew(client_id="console")
    return found


def grant(issuer: Issuer, token: str, **more: object) -> None:
    issuer.answers["/token"] = {"access_token": token, "token_type": "Bearer"} | more


@asynccontextmanager
async def browsing(
    issuer: Issuer,
    folder: Path,
    *,
    secure: bool = False,
    origins: tuple[str, ...] = (),
) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a browser, in which nobody is signed in."""
    key = b"k" * 32
    visits = Visits(
        key=key,
        identity=issuer.identity,
        clock=issuer.clock,
        local=Principal(kind="local", id="me", scopes=frozenset({"admin"})),
        name="console.localhost",
        oauth=OAuthSignIn(
            oauth=issuer.oauth,
            client=issuer.client,
            key=key,
            clock=issuer.clock,
            secure=secure,
            origins=origins,
        ),
    )
    app = application(
        Office(folder).service,
        issuer.identity,
        Serve(oauth=issuer.oauth),
        visits=visits,
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=HOME
    ) as client:
        yield client


async def gone(client: httpx.AsyncClient, to: str = "/ui/inbox") -> dict[str, str]:
    """Go to the issuer, and return what it is asked."""
    found = await client.get("/ui/sign-in/oauth", params={"next": to})
    assert found.status_code == 303, found.text
    return dict(parse_qsl(urlsplit(found.headers["location"]).query))


async def back(
    client: httpx.AsyncClient, asked: dict[str, str], **changed: str
) -> httpx.Response:
    query = {"code": CODE, "state": asked["state"]} | changed
    return await client.get(
        "/ui/sign-in/done",
        params={key: value for key, value in query.items() if value},
        headers=CAME_BACK,
    )


async def is_in(client: httpx.AsyncClient) -> bool:
    return (await client.get("/ui/runs")).status_code == 200


async def test_a_person_signs_in_at_the_issuer_and_goes_on(
    issuer: Issuer, tmp_path: Path
) -> None:
    async with browsing(issuer, tmp_path) as client:
        page = await client.get("/ui/sign-in?next=/ui/inbox")
        assert f"Sign in at {issuer.server.url}" in page.text
        asked = await gone(client)
        done = await back(client, asked)

        assert done.status_code == 200
        assert 'content="0; url=/ui/inbox"' in done.text
        assert await is_in(client)

    assert asked["theme"] == "dark"
    assert asked["response_type"] == "code"
    assert asked["client_id"] == "console"
    assert asked["redirect_uri"] == BACK
    assert "caxton:decide" in asked["scope"].split()
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == issuer.oauth.audience
    assert "prompt" not in asked
    (sent,) = [body for head, body in issuer.server.requests if " /token " in head]
    given = {key: one for key, (one,) in parse_qs(sent.decode()).items()}
    assert (given["code"], given["redirect_uri"]) == (CODE, BACK)
    assert given["grant_type"] == "authorization_code"
    assert len(given["code_verifier"]) >= 43
    assert given["code_verifier"] not in json.dumps(asked)


async def test_the_cookies_are_for_their_purpose_only(
    issuer: Issuer, tmp_path: Path
) -> None:
    # law 8
    async with browsing(issuer, tmp_path, secure=True) as client:
        found = await client.get("/ui/sign-in/oauth")
        cookie = found.headers["set-cookie"]
        wrong = await client.get("/ui/sign-in/done", headers={"cookie": cookie})

    name, *words = cookie.split("; ")
    assert name.startswith("__Secure-caxton-sign-in=")
    assert {"Path=/ui/sign-in", "HttpOnly", "SameSite=Lax", "Secure"} <= {*words}
    assert "Max-Age=0" in wrong.headers["set-cookie"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"state": "another"}, "began no such sign-in"),
        ({"state": ""}, "began no such sign-in"),
        ({"state": "é"}, "began no such sign-in"),
        ({"iss": "https://evil.test"}, "of another issuer"),
        ({"code": ""}, "the issuer refused: no code"),
        ({"code": "", "error": "access_denied"}, "the issuer refused: access_denied"),
        ({"code": "", "error_description": "<b>no</b>"}, "&lt;b&gt;no&lt;/b&gt;"),
    ],
)
async def test_what_comes_back_wrong_signs_nobody_in(
    issuer: Issuer, tmp_path: Path, changed: dict[str, str], says: str
) -> None:
    async with browsing(issuer, tmp_path) as client:
        done = await back(client, await gone(client), **changed)

        assert done.status_code == 401
        assert says in done.text
        assert not await is_in(client)
    assert "/token" not in issuer.asked


async def test_a_code_of_another_browser_and_an_old_one_sign_nobody_in(
    issuer: Issuer, tmp_path: Path
) -> None:
    async with browsing(issuer, tmp_path) as client:
        asked = await gone(client)
        cookies = dict(client.cookies)
        client.cookies.clear()
        assert (await back(client, asked)).status_code == 401
        for value in ("x", "A" * 5000, "bm90aGluZw=="):
            client.cookies.set("caxton-sign-in", value)
            assert (await back(client, asked)).status_code == 401
            client.cookies.clear()
        client.cookies.update(cookies)
        issuer.clock.time += 601 * 1_000_000
        assert (await back(client, asked)).status_code == 401
    assert "/token" not in issuer.asked


async def test_a_code_is_taken_once_in_its_browser(
    issuer: Issuer, tmp_path: Path
) -> None:
    async with browsing(issuer, tmp_path) as client:
        asked = await gone(client)
        assert (await back(client, asked)).status_code == 200
        assert (await back(client, asked)).status_code == 401
    assert issuer.asked.count("/token") == 1


async def test_a_page_of_another_site_begins_no_sign_in(
    issuer: Issuer, tmp_path: Path
) -> None:
    # law 4
    async with browsing(issuer, tmp_path) as client:
        found = await client.get("/ui/sign-in/oauth", headers=CAME_BACK)

    assert found.status_code == 403
    assert "set-cookie" not in found.headers
    assert 'href="/ui/sign-in/oauth">Go on' in found.text
    assert issuer.asked == []


async def test_an_issuer_that_always_names_itself_has_to(
    issuer: Issuer, tmp_path: Path
) -> None:
    issuer.answers[METADATA] |= {"authorization_response_iss_parameter_supported": True}
    async with browsing(issuer, tmp_path) as client:
        without = await back(client, await gone(client))
        named = await back(client, await gone(client), iss=issuer.server.url)

    assert (without.status_code, named.status_code) == (401, 200)
    assert "of another issuer" in without.text


async def test_who_only_looks_does_not_make_the_host_ask_each_time(
    issuer: Issuer, tmp_path: Path
) -> None:
    async with browsing(issuer, tmp_path) as client:
        await asyncio.gather(*(gone(client) for _ in range(5)))
        assert issuer.asked == [METADATA]
        issuer.answers[METADATA] = None
        issuer.clock.time += 600 * 1_000_000
        for _ in range(5):
            found = await client.get("/ui/sign-in/oauth")
            assert "does not answer" in found.text
    assert issuer.asked.count(METADATA) == 2


async def test_a_token_that_no_browser_would_keep_is_refused(
    issuer: Issuer, tmp_path: Path
) -> None:
    grant(issuer, issuer.token(groups=["g" * 3000]))
    async with browsing(issuer, tmp_path) as client:
        done = await back(client, await gone(client))

    assert done.status_code == 401
    assert "too long for a cookie" in done.text


@pytest.mark.parametrize("asked_at", [None, NOW - 900, NOW - 5])
async def test_a_sign_in_at_the_issuer_is_as_fresh_as_it_says(
    issuer: Issuer, tmp_path: Path, asked_at: int | None
) -> None:
    # law 4: an issuer that knows the browser leads back, and asks nobody
    grant(issuer, issuer.token(auth_time=asked_at, exp=NOW + 60))
    async with browsing(issuer, tmp_path) as client:
        page = await client.get("/ui/sign-in?next=/ui/inbox&again=")
        link = re.findall(r'href="(/ui/sign-in/oauth[^"]+)"', page.text)[0]
        sent = await client.get(unescape(link))
        asked = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
        await back(client, asked)
        pages = client._transport.app.pages  # type: ignore[attr-defined]
        cookies = [f"{one.name}={one.value}" for one in client.cookies.jar]
        who = await pages.principal({"host": ["console.localhost"], "cookie": cookies})

    assert asked["prompt"] == "login"
    assert who.signed_in_at == (asked_at and asked_at * 1_000_000)


async def test_an_audience_that_is_no_address_is_not_sent_as_one(
    issuer: Issuer, tmp_path: Path
) -> None:
    issuer.renew(client_id="console", audience="api-7")
    grant(issuer, issuer.token(aud="api-7"))
    async with browsing(issuer, tmp_path) as client:
        asked = await gone(client)
        assert (await back(client, asked)).status_code == 200

    assert "resource" not in asked


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "invalid_grant"},
        {"access_token": "x"},
        {"access_token": 1, "token_type": "Bearer"},
        {"access_token": "x", "token_type": "DPoP"},
        b"no JSON",
        b"[" * 70_000,
        None,
    ],
)
async def test_an_issuer_that_gives_no_token_is_named_and_its_answer_is_not_shown(
    issuer: Issuer, tmp_path: Path, answer: object
) -> None:
    # law 8
    issuer.answers["/token"] = answer
    async with browsing(issuer, tmp_path) as client:
        done = await back(client, await gone(client))

        assert done.status_code == 401
        assert "the issuer gave no token" in done.text
        assert CODE not in done.text
        assert not await is_in(client)


async def test_an_access_token_is_checked_as_any_other(
    issuer: Issuer, tmp_path: Path
) -> None:
    for token in (
        issuer.token(aud="https://other.test"),
        issuer.token(exp=NOW - 60),
        issuer.token(STRANGER),
        issuer.token(EC, iss="https://evil.test"),
    ):
        grant(issuer, token)
        async with browsing(issuer, tmp_path) as client:
            done = await back(client, await gone(client))
            assert done.status_code == 401
            assert token not in done.text
            assert not await is_in(client)


async def test_a_visit_ends_with_its_access_token(
    issuer: Issuer, tmp_path: Path
) -> None:
    async with browsing(issuer, tmp_path) as client:
        await back(client, await gone(client))
        assert await is_in(client)
        issuer.clock.time += 120 * 1_000_000
        assert not await is_in(client)


@pytest.mark.parametrize("to", ["https://evil.test/", "//evil.test", "/api/v1", "x"])
async def test_nobody_is_led_elsewhere(issuer: Issuer, tmp_path: Path, to: str) -> None:
    async with browsing(issuer, tmp_path) as client:
        done = await back(client, await gone(client, to))

    assert 'content="0; url=/ui/runs"' in done.text
    assert "evil" not in done.text


async def test_behind_a_proxy_browsers_come_back_to_its_address(
    issuer: Issuer, tmp_path: Path
) -> None:
    proxy = "https://console.localhost"
    async with browsing(issuer, tmp_path, origins=(proxy,)) as client:
        asked = await gone(client)

    assert asked["redirect_uri"] == f"{proxy}/ui/sign-in/done"


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"authorization_endpoint": None}, "no authorization_endpoint"),
        ({"authorization_endpoint": "http://evil.test/"}, "none over TLS"),
        ({"authorization_endpoint": "https://[evil"}, "none over TLS"),
        ({"authorization_endpoint": "https://evil.test:x"}, "none over TLS"),
        ({"issuer": "https://evil.test"}, "does not answer"),
    ],
)
async def test_metadata_that_cannot_be_used_are_said(
    issuer: Issuer, tmp_path: Path, metadata: dict[str, Any], says: str
) -> None:
    issuer.answers[METADATA] |= metadata
    async with browsing(issuer, tmp_path) as client:
        found = await client.get("/ui/sign-in/oauth")

    assert found.status_code == 401
    assert says in found.text
    assert "Token" in found.text
