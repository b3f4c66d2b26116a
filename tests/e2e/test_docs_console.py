"""The page about the console: each of its commands, and what they leave behind."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Generator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from .serving import Host, document, served
from .shell import Shell
from .test_cli_cancel import until
from .test_docs import ROOT, add, blocks, commands, type_in

PAGE = ROOT / "docs" / "how-to" / "console.md"
SHOWN = "http://127.0.0.1:8080"


def loaded(host: Host) -> list[object]:
    """Return who had the configuration loaded, each time."""
    events = host.get("/api/v1/events?limit=1000").json()["events"]
    return [one["payload"]["actor"] for one in events if one["type"] == "ConfigLoaded"]


def opened(link: str) -> tuple[httpx.Client, httpx.Response]:
    """Open the link that a console prints, as a browser that knows its name does."""
    there = urlsplit(link)
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{there.port}",
        headers={"host": there.netloc, "accept-encoding": "identity"},
    )
    answer = client.get(f"{there.path}?{there.query}")
    cookie = answer.headers.get("set-cookie", "").partition(";")[0]
    client.headers["cookie"] = cookie
    return client, answer


@pytest.mark.long
def test_the_console_is_opened_once_and_shows_the_log(shell: Shell) -> None:
    for line in ("caxton init", "caxton run weather"):
        type_in(shell, line)
    with shell.started("ui", "--no-open", "--json") as child:
        told = document(child.stdout)
        client, first = opened(told["link"])
        page = client.get(first.headers["location"])
        other, again = opened(told["link"])
        api = client.get("/api/v1/me")
        for one in (client, other):
            one.close()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0

    assert (first.status_code, first.headers["location"]) == (303, "/ui/runs")
    assert "local" in page.text
    assert "weather" in page.text
    assert again.headers["location"].startswith("/ui/sign-in")
    assert "set-cookie" not in again.headers
    assert api.status_code == 401


@contextmanager
def reading(shell: Shell, *words: str) -> Generator[httpx.Client]:
    """Open a console that only reads, as a browser does, until the block is left."""
    with shell.started("ui", *words, "--no-open", "--json") as child:
        client, _ = opened(document(child.stdout)["link"])
        with closing(client):
            yield client
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0


def verified(client: httpx.Client) -> str:
    """Return the page of evidence once a verification is over."""
    until(lambda: "data-counting" not in client.get("/ui/evidence").text)
    return client.get("/ui/evidence").text


def test_a_log_and_a_bundle_are_read_without_a_server_or_a_key(shell: Shell) -> None:
    # laws 6 and 8
    found = [line for one in blocks(PAGE) for line in commands(one.language, one.text)]
    read, export, show, abroad = [
        line for line in found if "run.caxton" in line or "--read-only" in line
    ]
    for line in ("caxton init", "caxton run weather"):
        type_in(shell, line)
    key = json.loads(type_in(shell, "caxton audit key --json"))["public_key"]
    # The secret of a server is not set, and its program would leave a file.
    add(shell, '[servers.other]\ncommand = "touch"\nargs = ["started"]')
    add(shell, 'env = { A = "${env:NOT_SET}" }')
    type_in(shell, export)
    before, pages = shell.types(), list[str]()
    with reading(shell, *read.split()[2:]) as client:
        pages += [
            client.get(f"/ui/{it}").text
            for it in (
                "runs",
                "evidence",
                "servers",
                "agents/weather?toml=&rule=allow[1]",
            )
        ]
    with reading(shell, *show.split()[2:]) as client:
        pages.append(client.get("/ui/runs").text)
    # Another machine.
    away = shell.folder / "away"
    shell.set(CAXTON_STATE_DIR=str(away))
    unknown = shell(*show.split()[1:], "--no-open")
    words = abroad.replace("PUBKEY", key).split()[2:]
    with reading(shell, *words) as client:
        (run,) = {*re.findall("/ui/runs/([0-9a-f-]{36})", client.get("/ui/runs").text)}
        call = client.get(f"/ui/runs/{run}?seq=2").text
        proof = verified(client)
    data = bytearray((shell.folder / "run.caxton").read_bytes())
    data[-40] ^= 1
    shell.write("run.caxton", bytes(data))
    broken = shell("ui", *words, "--no-open")

    assert all("Read only: caxton ui" in page for page in pages)
    assert "weather" in pages[0]
    assert "need a host" in pages[2]
    assert "1 decision would change" in pages[3]
    assert "Seattle" in call
    assert "intact" in proof
    assert (unknown.code, broken.code) == (5, 5)
    assert "--key" in unknown.err
    assert not away.exists()
    assert not (shell.folder / "started").exists()
    assert shell.types() == before


def test_the_bundle_of_an_erased_run_shows_that_it_was(shell: Shell) -> None:
    for line in (
        "caxton init",
        "caxton run weather",
        "caxton audit erase @last --reason asked",
        "caxton audit export @last -o gone.caxton",
    ):
        type_in(shell, line)
    run = shell.runs()[0].removeprefix("run/")
    with reading(shell, "gone.caxton") as client:
        listed = client.get("/ui/runs")
        page = client.get(f"/ui/runs/{run}")
        events = client.get(f"/ui/runs/{run}?seq=2")
        proof = verified(client)

    assert run in listed.text
    assert (page.status_code, events.status_code) == (200, 200)
    assert "Seattle" not in page.text + events.text
    assert "of which the digests are left" in proof


def test_the_console_verifies_gives_away_and_erases_what_a_host_has(
    shell: Shell,
) -> None:
    # law 10: the log verifies after an erasure as before it
    for line in ("caxton init", "caxton run weather"):
        type_in(shell, line)
    run = shell.runs()[0].removeprefix("run/")
    with shell.started("ui", "--no-open", "--json") as child:
        client, _ = opened(document(child.stdout)["link"])
        home = client.headers["host"]

        def send(action: str, **fields: str) -> httpx.Response:
            page = client.get("/ui/access").text
            form = re.findall(r'name="form" value="([0-9a-f]+)"', page)[0]
            return client.post(
                f"/ui/do/{action}",
                data={"form": form, **fields},
                headers={"origin": f"http://{home}"},
            )

        def again() -> str:
            send("startVerification", full="on")
            return verified(client)

        whole = again()
        bundle = client.get(f"/ui/runs/{run}/bundle")
        made = send("createToken", name="desk", expires="12h", **{"scope:read": "on"})
        (token,) = re.findall(r"caxton_[0-9a-f]{16}_[\w-]{43}", made.text)
        api = {"authorization": f"Bearer {token}", "host": f"127.0.0.1:{home[-5:]}"}
        where = str(client.base_url)
        runs = httpx.get(f"{where}/api/v1/runs", headers={**api, "cookie": ""})
        gone = send("eraseRun", run=run, reason="asked for", confirm=run[:13])
        after = again()
        access = client.get("/ui/access").text
        with shell.tampering() as database:
            database.execute("UPDATE events SET hash = zeroblob(32) WHERE seq = 2")
        broken = again()
        client.close()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0

    assert bundle.status_code == 200, bundle.text
    shell.write("run.caxton", bundle.content)
    assert shell("audit", "verify", "--bundle", "run.caxton").code == 0
    assert "intact" in whole
    assert runs.json()["runs"][0]["run_id"] == run
    assert gone.status_code == 303
    assert ("intact" in after, "of which the digests are left" in after) == (True, True)
    assert "this one" in access
    assert ("broken" in broken, "event 2" in broken) == (True, True)
    assert shell.rows("SELECT count(*) FROM events WHERE type = 'RunErased'") == [(1,)]


def test_who_opens_it_where_nothing_is_configured_is_told(shell: Shell) -> None:
    with shell.started("ui", "--no-open", "--json") as child:
        told = document(child.stdout)
        client, first = opened(told["link"])
        page = client.get(first.headers["location"])
        agents = client.get("/ui/agents")
        client.close()
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=30)[1].decode()

    assert "there is no configuration here" in said
    assert "To fix: caxton init" in said
    assert "caxton demo" in page.text
    assert "caxton init" in agents.text


@pytest.mark.long
def test_servers_are_changed_in_the_console(shell: Shell) -> None:
    type_in(shell, "caxton init")
    add(shell, "[serve]\nedit = true")
    shell("serve", "token", "create", "--name", "a", "--scope", "admin", "-o", "a.txt")
    token = (shell.folder / "a.txt").read_text().strip()
    with served(shell, good=token) as host:
        home = urlsplit(host.get("/ui/runs").headers["location"]).netloc
        here = {"host": home, "origin": f"http://{home}"}
        with httpx.Client(base_url=host.url, headers=here) as client:
            entered = client.post("/ui/sign-in", data={"token": token})
            cookie = entered.headers["set-cookie"].partition(";")[0]
            client.headers["cookie"] = cookie

            def send(action: str, **fields: str) -> str:
                page = client.get("/ui/servers").text
                form = re.findall(r'name="form" value="([0-9a-f]+)"', page)[0]
                said = client.post(f"/ui/do/{action}", data={"form": form, **fields})
                if said.status_code == 200:  # What each host answered.
                    return said.text
                assert said.status_code == 303, said.text
                return client.get(said.headers["location"]).text

            words = "-m\ncaxton_host.demo_server"
            added = send("addServer", name="two", program="python", words=words)
            tested = send("testServer", name="two", back="/ui/servers/two")
            changed = send("changeServer", name="two", env="LOG_LEVEL=debug")
            lights = client.get("/ui/servers").text
            removed = send("removeServer", name="two", back="/ui/servers")
            left = client.get("/ui/servers").text

    assert "get_weather" in tested
    assert re.search(r'class="state \w+">\w+', lights)
    for answered in (added, changed, removed):
        assert re.search(r"<code>host/[0-9a-f-]+</code>", answered)
        assert "state ok" in answered
    assert "/ui/servers/two" not in left


@pytest.mark.long
def test_the_page_about_the_console(shell: Shell) -> None:
    found = blocks(PAGE)
    lines = [line for block in found for line in commands(block.language, block.text)]
    # See `test_a_log_and_a_bundle_are_read_without_a_server_or_a_key`.
    read = [line for line in lines if "run.caxton" in line or "--read-only" in line]
    lines = [line for line in lines if line not in read]
    at = lines.index("caxton serve")
    for line in lines[:at]:
        if line == "caxton ui --no-open":
            assert shell(*line.split()[1:], "--help").code == 0  # See above.
            continue
        type_in(shell, line)
    for block in found:
        if block.language == "toml":
            add(shell, block.text)
    before = (shell.folder / "caxton.toml").read_text()
    token = (shell.folder / "token.txt").read_text().strip()
    with served(shell, good=token) as host:
        page = host.get("/ui")
        me = host.get("/api/v1/me").json()
        said = [
            json.loads(type_in(shell, line.replace(SHOWN, host.url)))
            for line in lines[at + 1 :]
        ]
        who = {key: me[key] for key in ("kind", "id", "authenticated")}
        until(lambda: [one for one in loaded(host) if one == who] == [who] * 3)

    assert page.status_code == 303
    assert ".localhost:" in page.headers["location"]
    assert [one.get("change") for one in said] == ["added", "changed", None, "removed"]
    assert all(one["hosts"][0]["reloaded"] for one in said if "hosts" in one)
    assert "get_weather" in said[2]["tools"]
    assert (shell.folder / "caxton.toml").read_text().strip() == before.strip()
