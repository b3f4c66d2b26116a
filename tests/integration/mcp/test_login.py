"""Servers whose tokens somebody lets the host have, once."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import OAuth, ServerConfig
from caxton_host.errors import ServerUnavailable, ToolError, UsageError
from caxton_host.mcp import McpTools
from caxton_host.mcp.auth.login import log_in, log_out
from caxton_host.mcp.auth.tokens import Login, TokenFile
from tests.visitor import Visitor

from .authority import Guarded, served, served_at_once
from .conftest import request
from .issuer import Issuer

FIX = "caxton server login crm"


class Scene(NamedTuple):
    issuer: Issuer
    guarded: Guarded
    config: ServerConfig
    folder: Path
    visitor: Visitor
    redact: Redactor

    def told(self, **changes: Any) -> Scene:  # noqa: ANN401
        """Return it with another word of the operator."""
        assert self.config.oauth
        oauth = replace(self.config.oauth, **changes)
        return self._replace(config=replace(self.config, oauth=oauth))

    @property
    def file(self) -> TokenFile:
        return TokenFile(self.folder, self.config)

    @property
    def kept(self) -> Login:
        login = self.file.read()
        assert login
        return login

    async def log_in(self) -> Login:
        return await log_in(self.config, self.visitor, self.file, redact=self.redact)

    async def refused(self) -> ServerUnavailable:
        """Return why there is no login, after which nothing is kept."""
        before = self.file.state()
        with pytest.raises(ServerUnavailable) as caught:
            await self.log_in()
        assert self.file.state() == before
        return caught.value

    def tools(self) -> McpTools:
        return McpTools({"crm": self.config}, redact=self.redact, tokens=self.folder)


@asynccontextmanager
async def scene(folder: Path) -> AsyncGenerator[Scene]:
    issuer = Issuer()
    guarded = Guarded(issuer)
    async with served_at_once(issuer.app(), guarded) as [where, origin]:
        issuer.url, guarded.url, guarded.scope = where, f"{origin}/mcp", "read"
        config = ServerConfig(
            name="crm",
            url=guarded.url,
            transport="http",
            oauth=OAuth(flow="code", allow_private=True),
        )
        yield Scene(issuer, guarded, config, folder / "tokens", Visitor(), Redactor())


async def said(tools: McpTools, text: str = "hello") -> str:
    call = request("echo", {"text": text}, server="crm")
    return (await tools.call_tool(call)).message


async def unsent(tools: McpTools) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await said(tools)
    assert (caught.value.kind, caught.value.sent) == ("transport", "no")
    return caught.value


async def test_somebody_logs_in_once_and_every_run_has_a_token(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        for _ in range(2):
            async with at.tools() as tools:
                assert await said(tools) == "hello"
        [token] = at.issuer.good
        assert {*at.guarded.seen} == {"", f"Bearer {token}"}
        assert at.guarded.seen.count("") == 1  # The login asked what is wanted.
        [asked] = at.issuer.asked
        assert (asked["code_challenge_method"], asked["scope"]) == (
            "S256",
            "read offline_access",
        )
        assert asked["resource"] == at.guarded.url
        [form] = at.issuer.forms
        assert form["resource"] == at.guarded.url


async def test_a_run_without_a_login_waits_for_nobody(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, at.tools() as tools:
        why = await unsent(tools)
        assert why.fix == FIX
        problem = tools.problem("crm")
        assert problem
        assert (problem.fix, "there is no login" in str(problem)) == (FIX, True)
        assert at.issuer.asked == []


async def test_a_token_is_a_secret_as_soon_as_it_is_there(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.issuer.method = "client_secret_basic"
        login = await at.log_in()
        async with replace_redactor(at).tools() as tools:
            client_secret = str(login.client["client_secret"])
            secrets = [login.access_token, str(login.refresh_token), client_secret]
            for secret in secrets:
                assert await said(tools, f"it is {secret}!") == "it is [redacted]!"
                assert secret not in repr(login)  # law 8


def replace_redactor(at: Scene) -> Scene:
    """Return the scene for a host that knows nothing of the login yet."""
    return at._replace(redact=Redactor())


async def test_nobody_else_reads_what_a_login_left(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        [path] = at.folder.glob("crm-*.json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(at.folder.stat().st_mode) == 0o700
        path.chmod(0o640)
        async with at.tools() as tools:
            assert (await unsent(tools)).fix == FIX
            assert "can be read by others" in str(tools.problem("crm"))
        await at.log_in()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


NO_CLIENT = (
    '{"issuer": "ISSUER", "resource": "", "metadata": {}, "client": {}, '
    '"access_token": "t"}'
)


@pytest.mark.parametrize("text", ["", "{}", "[1]", NO_CLIENT])
async def test_a_broken_file_is_no_login(tmp_path: Path, text: str) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        [path] = at.folder.glob("crm-*.json")
        path.write_text(text.replace("ISSUER", at.issuer.url))
        async with at.tools() as tools:
            assert (await unsent(tools)).fix == FIX
        await at.log_in()
        async with at.tools() as tools:
            assert await said(tools) == "hello"


async def test_an_expired_token_is_replaced_before_the_call_is_sent(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        first = at.kept
        at.file.write(replace(first, expires_at=1.0))
        async with at.tools() as tools:
            assert await said(tools) == "hello"
        assert f"Bearer {first.access_token}" not in at.guarded.seen
        form = at.issuer.forms[-1]
        assert (form["grant_type"], form["resource"]) == (
            "refresh_token",
            at.guarded.url,
        )
        assert at.kept.access_token == [*at.issuer.good][-1]
        assert (at.kept.scope, at.kept.issuer) == (first.scope, first.issuer)


async def test_two_hosts_refresh_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        at.file.write(replace(at.kept, expires_at=1.0))
        async with at.tools() as one, at.tools() as other:
            assert {*await asyncio.gather(said(one), said(other))} == {"hello"}
        grants = [form["grant_type"] for form in at.issuer.forms]
        assert grants == ["authorization_code", "refresh_token"]


async def test_a_call_that_is_turned_away_fails_unsent_and_the_next_has_a_token(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        async with at.tools() as tools:
            await said(tools)
            at.issuer.good.clear()
            assert "rejected the token" in str(await unsent(tools))  # law 2
            assert await said(tools) == "hello"


async def test_a_login_that_is_over_is_told_and_not_asked_for_again_and_again(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        async with at.tools() as tools:
            await said(tools)
            at.issuer.good.clear()
            at.issuer.refuses = 400
            for _ in range(3):
                why = await unsent(tools)
                assert (why.fix, "the login has expired" in str(why)) == (FIX, True)
            assert len(at.issuer.forms) == 2
            at.issuer.refuses = 0
            await at.log_in()  # The host that is up takes note of it.
            assert await said(tools) == "hello"


async def test_an_issuer_that_is_away_for_a_while_ends_no_login(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        at.file.write(replace(at.kept, expires_at=1.0))
        at.issuer.refuses = 503
        async with at.tools() as tools:
            why = await unsent(tools)
            assert why.fix == ""
            assert "503" in str(tools.problem("crm"))
        at.issuer.refuses = 0
        async with at.tools() as tools:
            assert await said(tools) == "hello"


async def test_a_host_that_is_up_forgets_what_was_logged_out(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        async with at.tools() as tools:
            await said(tools)
            assert at.file.remove()
            assert (await unsent(tools)).fix == FIX
        assert not at.file.remove()


async def test_a_login_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.folder.write_text("in the way")
        assert "cannot be stored" in str(await at.refused())
        async with at.tools() as tools:
            assert "cannot be stored" in str(
                (await unsent(tools), tools.problem("crm"))
            )


async def test_a_login_is_for_one_address(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        moved = replace(at.config, url=at.guarded.url.replace("127.0.0.1", "localhost"))
        async with at._replace(config=moved).tools() as tools:
            await unsent(tools)
        assert at.guarded.seen[-1] == ""


# -- more scope -----------------------------------------------------------------


async def test_more_scope_takes_a_person_who_keeps_what_was_granted(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        at.guarded.lacks = "write"
        async with at.tools() as tools:
            why = await unsent(tools)
            assert (why.fix, "more scope, write" in str(why)) == (FIX, True)
            await at.log_in()
            assert at.visitor.asked[-1].scope == "read offline_access write"
            assert await said(tools) == "hello"
        assert at.kept.wanted is None


async def test_a_host_that_is_up_uses_what_another_was_allowed(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        at.guarded.lacks = "write"
        async with at.tools() as tools:
            await unsent(tools)
            access = next(iter(tools._shared._access.values()))
            used = await access.header(asyncio.get_running_loop().time() + 5)
            await at.log_in()
            challenge = 'Bearer error="insufficient_scope", scope=write'
            why = await access.lacking(challenge, used)
            assert "rejected the token" in str(why)
            assert await access.lacking('Bearer error="invalid"', used) is None


async def test_what_several_tools_lack_is_asked_for_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        async with at.tools() as tools:
            for lacks in ("write", "delete", "x" * 2040):
                at.guarded.lacks = lacks
                await unsent(tools)
                wanted = at.kept.wanted or ""
                assert wanted.endswith(lacks)
                assert len(wanted) <= 2048
            at.guarded.lacks = None
            # Others wrote it as well: what was learned stays.
            assert await said(tools) == "hello"


async def test_calls_that_lack_scope_close_the_server_to_nobody(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        async with at.tools() as tools:
            await said(tools)
            at.guarded.lacks = "write"
            for _ in range(6):
                await unsent(tools)
            at.guarded.lacks = None
            assert await said(tools) == "hello"


async def test_a_server_that_never_has_enough_sends_nobody_to_log_in(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        async with at.tools() as tools:
            await said(tools)
            at.issuer.good = dict.fromkeys(at.issuer.good, "")
            at.guarded.lacks = "read"
            why = await unsent(tools)
            assert (why.fix, "a scope that the token has" in str(why)) == ("", True)


@pytest.mark.parametrize("scope", ["admin", 'no"scope', "x" * 3000])
async def test_nothing_beyond_the_scope_of_the_operator_is_ever_asked_for(
    tmp_path: Path, scope: str
) -> None:
    async with scene(tmp_path) as first:
        at = first.told(scope="read write")
        await at.log_in()
        assert at.visitor.asked[-1].scope == "read write"
        at.guarded.lacks = scope
        async with at.tools() as tools:
            why = await unsent(tools)
            assert (why.fix, "that oauth does not allow" in str(why)) == ("", True)
        assert at.kept.wanted is None


async def test_where_nobody_names_a_scope_none_is_asked_for(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.guarded.scope = None
        await at.log_in()
        assert at.visitor.asked[-1].scope is None


# -- clients --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "how"), [("basic", "basic"), ("post", None), ("none", None)]
)
async def test_a_registered_client_shows_what_it_is(
    tmp_path: Path, method: str, how: str | None
) -> None:
    secret = None if method == "none" else "correct horse/battery"
    async with scene(tmp_path) as first:
        first.issuer.registered["ours"] = {"client_secret": secret}
        more: dict[str, str] = {}
        if secret:
            more = {
                "client_secret": secret,
                "method": method,
                "issuer": first.issuer.url,
            }
        at = first.told(client_id="ours", **more)
        await at.log_in()
        assert at.issuer.forms[-1].get("in") == how
        assert [*at.issuer.registered] == ["ours"]
        if secret:
            [path] = at.folder.glob("crm-*.json")
            assert secret not in path.read_text()  # law 8
        at.file.write(replace(at.kept, expires_at=1.0))
        async with at.tools() as tools:
            assert await said(tools) == "hello"


async def test_an_issuer_that_takes_a_document_registers_nobody(tmp_path: Path) -> None:
    document = "https://caxton.example/client.json"
    async with scene(tmp_path) as first:
        at = first.told(client_metadata=document)
        at.issuer.says["client_id_metadata_document_supported"] = True
        at.issuer.registered[document] = {}
        await at.log_in()
        assert at.issuer.asked[-1]["client_id"] == document
        assert [*at.issuer.registered] == [document]


async def test_a_client_is_registered_for_each_login(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.issuer.method = "client_secret_post"
        await at.log_in()
        await at.log_in()
        first, second = at.issuer.registered.values()
        assert first["redirect_uris"] == [at.visitor.redirect_uri]
        assert at.kept.client["client_id"] == second["client_id"]
        assert "refresh_token" in second["grant_types"]


# -- hostile issuers and servers ---------------------------------------------------

EVIL = "https://evil.example"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ({"issuer": EVIL}, "issuer mismatch"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "has no metadata"),
        ({"authorization_endpoint": f"{EVIL}/a"}, "not on the issuer's host"),
        ({"token_endpoint": f"{EVIL}/t"}, "not on the issuer's host"),
        ({"registration_endpoint": f"{EVIL}/r"}, "not on the issuer's host"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ],
)
async def test_metadata_that_are_not_to_be_trusted_lead_nobody_anywhere(
    tmp_path: Path, says: dict[str, Any], why: str
) -> None:
    # attack 36
    async with scene(tmp_path) as at:
        at.issuer.says = says
        assert why in str(await at.refused())
        assert (at.visitor.asked, at.issuer.registered, at.issuer.forms) == ([], {}, [])


async def test_endpoints_at_another_host_are_used_if_the_operator_lists_it(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at, served(at.issuer.app()) as other:
        at.issuer.says = {"token_endpoint": f"{other}/token"}
        assert "nor in oauth.endpoints" in str(await at.refused())
        listed = at.told(endpoints=(other,))
        await listed.log_in()
        at.issuer.good.clear()
        async with listed.tools() as tools:
            assert await said(tools) == "hello"  # Refreshed there.
        grants = [form["grant_type"] for form in at.issuer.forms]
        assert grants == ["authorization_code", "refresh_token"]


async def test_metadata_are_not_followed_to_another_place_nor_read_without_end(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        at.issuer.redirects = True
        assert "redirect" in str(await at.refused())
        at.issuer.redirects = False
        at.issuer.padding = 10_000_000
        assert "65536 bytes" in str(await at.refused())
        assert at.visitor.asked == []


@pytest.mark.parametrize(
    ("issuer", "why"),
    [
        ("http://169.254.169.254", "not https"),
        ("https://169.254.169.254", "not public"),
        ("http://login.example.com", "not https"),
        ("https://localhost:1", "not public"),
    ],
)
async def test_a_server_leads_to_no_issuer_inside(
    tmp_path: Path, issuer: str, why: str
) -> None:
    async with scene(tmp_path) as first:
        at = first.told(allow_private=False)
        at.guarded.sends_to = issuer
        assert why in str(await at.refused())


async def test_a_server_speaks_for_no_other_and_names_no_issuer_but_the_operators(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        at.guarded.resource = f"{EVIL}/mcp"
        assert "does not match" in str(await at.refused())
        at.guarded.resource = None
        at.guarded.metadata = f"{EVIL}/metadata"
        assert "would leave the origins" in str(await at.refused())
        at.guarded.metadata = None
        for scope, why in (
            ("read " * 2000, "challenge is too long"),
            ("\\x", "scope is not valid"),
        ):
            at.guarded.scope = scope
            assert why in str(await at.refused())
        at.guarded.scope = "read"
        why = str(await at.told(issuer=EVIL).refused())
        assert "another issuer than oauth" in why
        assert at.visitor.asked == []


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"state": "of-another"}, "State parameter mismatch"),
        ({"iss": EVIL}, "iss mismatch"),
        ({"iss": None}, "missing iss"),
    ],
)
async def test_an_answer_for_another_login_is_worth_no_token(
    tmp_path: Path, answers: dict[str, str | None], why: str
) -> None:
    async with scene(tmp_path) as at:
        at.issuer.answers = answers
        assert why in str(await at.refused())
        assert at.issuer.forms == []


async def test_what_an_issuer_answers_is_in_no_text(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.issuer.refuses = 400
        why = str(await at.refused())
        assert "its issuer answered 400" in why
        assert at.issuer.forms[-1]["code"] not in why  # law 8
        at.issuer.refuses, at.issuer.length = 0, 20_000
        assert "cannot be sent" in str(await at.refused())


async def test_another_issuer_than_last_time_takes_the_word_of_the_operator(
    tmp_path: Path,
) -> None:
    other = Issuer()
    async with scene(tmp_path) as at, served(other.app()) as where:
        await at.log_in()
        other.url = at.guarded.sends_to = where
        why = await at.refused()
        assert f"its issuer is {where}" in str(why)
        assert why.fix.startswith("caxton server logout crm")
        assert other.registered == {}  # law 9
        at.file.remove()
        await at.log_in()
        assert at.kept.issuer == where


async def test_an_issuer_is_kept_to_while_the_server_names_it(tmp_path: Path) -> None:
    other = Issuer()
    async with scene(tmp_path) as at, served(other.app()) as where:
        await at.log_in()
        other.url = where
        at.guarded.names_first = where
        await at.log_in()
        assert at.kept.issuer == at.issuer.url
        assert other.registered == {}


async def test_a_server_of_before_metadata_is_its_own_issuer(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        old_one = at.issuer.app()
        old_one.add_route("/mcp", lambda _: Response(status_code=401), methods=["POST"])
        async with served(old_one) as origin:
            at.issuer.url = origin
            config = replace(at.config, url=f"{origin}/mcp")
            old = at._replace(config=config)
            login = await old.log_in()
            assert login.issuer == origin
            assert login.metadata["token_endpoint"] == f"{origin}/token"


async def test_a_server_without_any_metadata_is_asked_at_the_usual_places(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        old = Starlette(
            routes=[
                Route("/mcp", lambda _: Response(status_code=401), methods=["POST"]),
                *at.issuer.app().routes[1:],
            ]
        )
        at.issuer.answers["iss"] = None
        async with served(old) as origin:
            config = replace(at.config, url=f"{origin}/mcp")
            login = await at._replace(config=config).log_in()
            assert login.metadata == {
                "issuer": origin,
                "authorization_endpoint": f"{origin}/authorize",
                "token_endpoint": f"{origin}/token",
            }


async def test_nobody_logs_in_where_that_is_not_the_way(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        for config in (
            replace(at.config, oauth=None),
            at.told(flow="credentials").config,
        ):
            with pytest.raises(UsageError, match="there is no login for"):
                await at._replace(config=config).log_in()


# -- logging out -------------------------------------------------------------------


@pytest.mark.parametrize("method", ["none", "client_secret_basic"])
async def test_logging_out_revokes_both_tokens_and_then_deletes_them(
    tmp_path: Path, method: str
) -> None:
    async with scene(tmp_path) as at:
        at.issuer.method = method
        await at.log_in()
        kept = at.kept
        assert await log_out(at.config, at.file) == (True, "")
        assert at.file.read() is None
        asked = [(form["token_type_hint"], form["token"]) for form in at.issuer.revoked]
        assert asked == [
            ("refresh_token", kept.refresh_token),
            ("access_token", kept.access_token),
        ]
        assert {form["client_id"] for form in at.issuer.revoked} == {"client-0"}
        assert (at.issuer.good, at.issuer._refresh) == ({}, {})
        assert await log_out(at.config, at.file) == (False, "")


@pytest.mark.parametrize(
    ("says", "keeps", "why"),
    [
        ({"revocation_endpoint": None}, 0, "named no revocation endpoint"),
        ({"revocation_endpoint": "https://evil.test/r"}, 0, "leave the origins"),
        ({}, 503, "answered 503"),
        ({}, 307, "redirect"),
        ({"padding": ""}, 400, "65536 bytes"),
    ],
)
async def test_what_cannot_be_revoked_is_deleted_and_said(
    tmp_path: Path, says: dict[str, Any], keeps: int, why: str
) -> None:
    async with scene(tmp_path) as at:
        at.issuer.says, at.issuer.keeps = says, keeps
        await at.log_in()
        at.issuer.padding = 10_000_000 if says == {"padding": ""} else 0
        secrets = at.kept.access_token, str(at.kept.refresh_token)
        known, problem = await log_out(at.config, at.file)
        assert known
        assert why in problem
        assert at.file.state() is None
        assert not any(secret in problem for secret in secrets)  # law 8


async def test_a_damaged_login_and_one_of_no_server_are_deleted_too(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.log_in()
        at.file._path.write_bytes(b"{}")
        known, problem = await log_out(at.config, at.file)
        assert (known, "damaged" in problem) == (True, True)
        await at.log_in()
        at.file.write(replace(at.kept, metadata={"revocation_endpoint": "x"}))
        known, problem = await log_out(at.config, at.file)
        assert (known, "cannot be used" in problem) == (True, True)
        plain = replace(at.config, oauth=None)
        assert await log_out(plain, at.file) == (False, "")
