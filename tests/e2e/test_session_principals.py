"""For whom a session acts: for its caller at servers, and for its tenant."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from mcp import Client

from tests import standin
from tests.answering import answering
from tests.integration.mcp.authority import CLIENT, CLIENT_SECRET, Authority, Guarded

from .serving import Host, served, token
from .shell import Shell
from .test_cli_http_auth import serving
from .test_serve_tokens import Issuer
from .test_sessions import SPENT, said
from .test_sessions_http import as_client, events, opening
from .test_sessions_http import said as saying

OF_SESSION = "caxton:session:dev"
OAUTH = """\
version = 1
[serve.oauth]
issuer = "{issuer}"
audience = "https://agents.test/mcp"
"""
ECHO = "mcp__crm__echo"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with answering(made.server):
        yield made


async def tells(bearer: str, it: Client) -> tuple[list[str], tuple[bool, str]]:
    """List the tools, and have a server say who calls it."""
    tools = [tool.name for tool in (await it.list_tools()).tools]
    return tools, await said(it, ECHO, text=bearer)


def test_a_session_acts_with_a_token_for_its_caller(
    shell: Shell, issuer: Issuer
) -> None:  # law 8
    authority = Authority()
    guarded = Guarded(authority)
    ann, bob = (issuer.token(sub=name, scope=OF_SESSION) for name in ("ann", "bob"))
    with serving(authority.app(), guarded) as [authority.url, origin]:
        guarded.url = f"{origin}/mcp"
        shell.write(
            "caxton.toml",
            f"""{OAUTH.format(issuer=issuer.url)}
            [servers.crm]
            url = "{guarded.url}"
            [servers.crm.oauth]
            flow = "exchange"
            client_id = "{CLIENT}"
            client_secret = "{CLIENT_SECRET}"
            issuer = "{authority.url}"
            allow_private = true
            [[sessions.dev.allow]]
            tools = ["crm/echo"]
            """,
        )
        own = opening(shell, "own")
        with served(shell, good=own) as host:

            def calls(bearer: str) -> tuple[list[str], tuple[bool, str]]:
                found: tuple[list[str], tuple[bool, str]]
                found = as_client(host, bearer, partial(tells, bearer))
                return found

            for bearer in (ann, bob):
                assert calls(bearer) == ([ECHO], (False, "[redacted]"))
            asked = len(authority.asked)
            listed, (is_error, text) = calls(own)
            assert (listed, is_error) == ([], True)
            assert text.startswith("failed (transport)")
            assert len(authority.asked) == asked
            host.stop(signal.SIGTERM)

    subjects = [form["subject_token"] for form in authority.asked]
    assert subjects == [ann, bob]
    for form in authority.asked:
        assert form["grant_type"].endswith(":grant-type:token-exchange")
    assert {*guarded.seen} - {""} == {f"Bearer {one}" for one in authority.given}
    actors = {
        one["payload"]["actor"]["id"]
        for one in events(shell)
        if "actor" in one["payload"]
    }
    assert {"ann", "bob"} <= actors
    found = b"".join(
        path.read_bytes()
        for path in shell.folder.rglob("*")
        if path.is_file() and path.name != "caxton.toml"
    )
    for secret in (ann, bob, CLIENT_SECRET, *authority.given):
        assert secret.encode() not in found


TENANTS = """\
tenant_claim = "org"
[servers.demo]
{demo}
[sessions.dev]
[[sessions.dev.allow]]
tools = ["demo/echo"]
calls = "3/run"
[[sessions.dev.allow]]
tools = ["demo/pay"]
approve = {{}}
"""


def test_tenants_of_one_session_share_nothing(
    shell: Shell, issuer: Issuer
) -> None:  # law 4
    config = OAUTH.format(issuer=issuer.url) + TENANTS.format(demo=standin.toml())
    shell.write("caxton.toml", config)
    # The same person, by its name, in both.
    acme, globex = (
        issuer.token(sub="ann", org=org, scope=OF_SESSION) for org in ("acme", "globex")
    )
    boss = {
        org: token(shell, "--scope", "admin", "--tenant", org)
        for org in ("acme", "globex")
    }

    async def pays(it: Client) -> tuple[bool, str]:
        return await said(it, "mcp__demo__pay", to="DE02", amount=1)

    with served(shell) as host:
        assert as_client(host, acme, saying("1", "2", "3", "4"))[3] == SPENT
        assert as_client(host, globex, saying("5", "6", "7")) == [
            (False, one) for one in "567"
        ]
        assert as_client(host, globex, pays)[1].startswith("waits (approval)")
        nobody = issuer.token(sub="ann", scope=OF_SESSION)
        assert host.post("/mcp/dev", {}, token=nobody).status_code == 401
        runs = {org: _runs(host, own) for org, own in boss.items()}
        every = _runs(host, host.token)
        for org, (run,) in runs.items():
            for other, own in boss.items():
                wanted = 200 if org == other else 404
                for path in (
                    f"runs/{run}",
                    f"runs/{run}/events",
                    f"runs/{run}/explain?seq=2",
                ):
                    answer = host.get(f"/api/v1/{path}", token=own)
                    assert answer.status_code == wanted, answer.text
        waiting = {
            org: host.get("/api/v1/approvals", token=own).json()["approvals"]
            for org, own in boss.items()
        }
        host.stop(signal.SIGTERM)

    assert sorted(every) == sorted(run for one in runs.values() for run in one)
    assert (len(waiting["acme"]), len(waiting["globex"])) == (0, 1)
    started = [one["payload"] for one in events(shell) if one["type"] == "RunStarted"]
    assert [one["actor"]["tenant"] for one in started] == ["acme", "globex"]
    listed = shell("runs", "list", "--json").document
    assert len(listed) == 2


def _runs(host: Host, own: str) -> list[str]:
    found: list[dict[str, Any]] = host.get("/api/v1/runs", token=own).json()["runs"]
    return [one["run_id"] for one in found]
