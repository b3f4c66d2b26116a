"""Runs that show a server who they are: by a variable, by a token."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.integration.mcp.authority import (
    CLIENT,
    CLIENT_SECRET,
    Authority,
    Guarded,
    served,
)
from tests.integration.mcp.issuer import Issuer

from .guests import call, guest
from .shell import Shell
from .test_docs import ROOT, blocks

LOGIN = ("server", "login", "crm")
ECHO = guest(call("mcp__crm__echo", text="hello"))


@contextmanager
def serving(*apps: Any) -> Iterator[list[str]]:  # noqa: ANN401 -- what uvicorn takes
    """Serve applications in a thread, and yield their origins."""
    loop = asyncio.new_event_loop()
    ready, over = threading.Event(), asyncio.Event()
    origins: list[str] = []

    async def serve(*left: Any) -> None:  # noqa: ANN401
        if not left:
            ready.set()
            await over.wait()
            return
        async with served(left[0]) as origin:
            origins.append(origin)
            await serve(*left[1:])

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(*apps),))
    thread.start()
    assert ready.wait(30)
    try:
        yield origins
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()


def configure(shell: Shell, server: str) -> None:
    shell.write("a.wasm", ECHO)
    shell.write(
        "caxton.toml",
        f"""
        version = 1
        {server}
        [context.tenant]
        default = "none"
        [agents.a]
        module = "a.wasm"
        [[agents.a.allow]]
        tools = ["crm/*"]
        """,
    )


def test_a_variable_of_a_run_is_its_name_at_the_server(shell: Shell) -> None:
    authority = Authority()
    guarded = Guarded(authority)
    authority.good |= {"acme", "none"}
    with serving(guarded) as [origin]:
        configure(
            shell,
            f"""
            [servers.crm]
            url = "{origin}/mcp"
            headers = {{ Authorization = "Bearer ${{context.tenant}}" }}
            """,
        )
        for words in (["--var", "tenant=acme"], []):
            assert shell("run", "a", *words).code == 0
            types = [
                event["type"]
                for event in shell("events", "list", "@last", "--json").document
            ]
            assert "ToolCompleted" in types
        assert {*guarded.seen} == {"Bearer acme", "Bearer none"}
        guarded.seen.clear()
        for by_hand in (
            ("server", "test", "crm"),
            ("server", "tools", "crm"),
            ("tool", "list"),
            ("tool", "show", "crm/echo"),
            ("tool", "call", "crm/echo", "text=hi"),
            ("tool", "accept", "crm/echo"),
            ("tool", "accept", "crm/echo", "--dry-run"),
        ):
            done = shell(*by_hand, "--var", "tenant=acme")
            assert done.code == 0, done.err
        assert {*guarded.seen} == {"Bearer acme"}
        assert shell("replay", "@last").code == 0


def test_a_fork_is_given_what_its_parent_may_not_tell(shell: Shell) -> None:
    authority = Authority()
    guarded = Guarded(authority)
    authority.good |= {"acme-0123", "none"}
    with serving(guarded) as [origin]:
        configure(
            shell,
            f"""
            [servers.crm]
            url = "{origin}/mcp"
            headers = {{ Authorization = "Bearer ${{context.tenant}}" }}
            """,
        )
        file = shell.folder / "caxton.toml"
        file.write_text(file.read_text().replace('default = "none"', "private = true"))
        words = ("--var", "tenant=acme-0123")
        assert shell("run", "a", *words).code == 0
        guarded.seen.clear()
        forked = shell("runs", "fork", "@last", "--at", "1", *words)
        assert forked.code == 0, forked.err
        assert {*guarded.seen} == {"Bearer acme-0123"}
        assert "acme-0123" not in shell("events", "list", "@last", "--json").out


@pytest.mark.parametrize("good", [True, False])
def test_a_token_is_got_for_a_run_and_is_in_nothing_that_it_leaves(
    shell: Shell, *, good: bool
) -> None:
    authority = Authority()
    authority.refuses = not good
    guarded = Guarded(authority)
    with serving(authority.app(), guarded) as [issuer, origin]:
        authority.url, guarded.url = issuer, f"{origin}/mcp"
        configure(
            shell,
            f"""
            [servers.crm]
            url = "{origin}/mcp"
            [servers.crm.oauth]
            client_id = "{CLIENT}"
            client_secret = "{CLIENT_SECRET}"
            issuer = "{issuer}"
            allow_private = true
            """,
        )
        done = shell("run", "a")
        if good:
            assert done.code == 0
            assert len(authority.given) == 1
        else:
            assert "there is no token for the server" in done.err
    found = b"".join(
        path.read_bytes()
        for path in shell.folder.rglob("*")
        if path.is_file() and path.name != "caxton.toml"
    )
    for secret in (CLIENT_SECRET, *authority.given):  # law 8
        assert secret.encode() not in found
        assert secret not in done.out + done.err


def say_yes(shell: Shell, *words: str) -> tuple[int, bytes, str]:
    """Type a login, go where it sends somebody, and say yes there."""
    with shell.started(*(words or LOGIN)) as login:
        assert login.stdout
        assert login.stderr
        told: list[str] = []
        for line in login.stderr:
            told.append(line.decode())
            if "/authorize?" in told[-1]:
                break
        # The browser follows, as one does.
        with httpx2.Client(follow_redirects=True, trust_env=False) as browser:
            page = browser.get(told[-1].strip().removeprefix("note: "))
        assert "You can close this page" in page.text
        out = login.stdout.read()
        return login.wait(30), out, "".join(told) + login.stderr.read().decode()


def test_somebody_logs_in_and_out(shell: Shell) -> None:
    issuer = Issuer()
    guarded = Guarded(issuer)
    guarded.scope = "read"
    with serving(issuer.app(), guarded) as [where, origin]:
        issuer.url, guarded.url = where, f"{origin}/mcp"
        configure(
            shell,
            f"""
            [servers.crm]
            url = "{origin}/mcp"
            [servers.crm.oauth]
            flow = "code"
            allow_private = true
            """,
        )
        done = shell("tool", "call", "crm/echo", "text=hello")
        assert (done.code, done.fix) == (6, "caxton server login crm")
        done = shell("server", "test", "crm")
        assert (done.code, done.fix) == (6, "caxton server login crm")
        done = shell("run", "a")  # A run waits for nobody.
        assert "To fix: caxton server login crm" in done.err

        code, out, err = say_yes(shell)
        assert code == 0
        assert where in out.decode()
        assert f"crm takes tokens of {where}" in err
        assert shell("tool", "call", "crm/echo", "text=hello").out == "hello\n"
        assert shell("run", "a").code == 0
        assert shell("replay", "@last").code == 0

        code, out, _ = say_yes(shell, *LOGIN, "--json")
        document = json.loads(out)
        assert (document["$type"], document["issuer"]) == ("caxton.login/v1", where)
        assert (document["scope"], document["refreshes"]) == (
            "read offline_access",
            True,
        )
        assert document["expires"].endswith("+00:00")

        assert shell("server", "logout", "crm", "--json").document == {
            "$type": "caxton.logout/v1",
            "server": "crm",
            "forgotten": True,
            "problem": None,
        }
        assert [form["token_type_hint"] for form in issuer.revoked[-2:]] == [
            "refresh_token",
            "access_token",
        ]
        assert "was not logged in" in shell("server", "logout", "crm").out
        assert shell("tool", "call", "crm/echo", "text=hello").code == 6

        issuer.says["code_challenge_methods_supported"] = ["plain"]
        done = shell("server", "login", "crm")
        assert (done.code, "PKCE" in done.err) == (6, True)
        done = shell("server", "login", "crm", "--wait", "soon")
        assert (done.code, "no duration" in done.err) == (2, True)
    found = b"".join(
        path.read_bytes() for path in shell.folder.rglob("*") if path.is_file()
    )
    for secret in issuer.good:  # law 8
        assert secret.encode() not in found
        assert secret not in err + out.decode()


def test_nobody_who_does_not_come_is_waited_for(shell: Shell) -> None:
    issuer = Issuer()
    guarded = Guarded(issuer)
    with serving(issuer.app(), guarded) as [where, origin]:
        issuer.url, guarded.url = where, f"{origin}/mcp"
        configure(
            shell,
            f"""
            [servers.crm]
            url = "{origin}/mcp"
            [servers.crm.oauth]
            flow = "code"
            allow_private = true
            """,
        )
        done = shell("server", "login", "crm", "--wait", "100ms")
        assert (done.code, "no login within 0.1 s" in done.err) == (6, True)
        assert done.fix == "log in again, with more time: --wait 15m"


def test_the_page_about_logins(shell: Shell) -> None:
    issuer = Issuer()
    guarded = Guarded(issuer)
    with serving(issuer.app(), guarded) as [where, origin]:
        issuer.url, guarded.url = where, f"{origin}/mcp"
        table, login, logout = blocks(ROOT / "docs" / "how-to" / "log-in.md")
        text = table.text.replace("https://crm.example.com", origin)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        more = f"allow_private = true\nredirect_port = {port}\n"
        configure(shell, text + more)
        assert say_yes(shell, *login.text.split()[1:])[0] == 0
        assert issuer.asked[0]["redirect_uri"] == f"http://127.0.0.1:{port}/callback"
        assert shell("server", "test", "crm").code == 0
        assert "forgotten" in shell(*logout.text.split()[1:]).out
