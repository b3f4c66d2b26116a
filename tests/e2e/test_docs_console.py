"""The page about the console: each of its commands, and what they leave behind."""

from __future__ import annotations

import json
import re
import signal
from urllib.parse import urlsplit

import httpx

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
                assert said.status_code == 303, said.text
                return client.get(said.headers["location"]).text

            words = "-m\ncaxton_host.demo_server"
            added = send("addServer", name="two", program="python", words=words)
            tested = send("testServer", name="two", back="/ui/servers/two")
            changed = send("changeServer", name="two", env="LOG_LEVEL=debug")
            lights = client.get("/ui/servers").text
            removed = send("removeServer", name="two", back="/ui/servers")

    assert "The server is added." in added
    assert "get_weather" in tested
    assert "The server is changed." in changed
    assert re.search(r'class="state \w+">\w+', lights)
    assert "/ui/servers/two" not in removed


def test_the_page_about_the_console(shell: Shell) -> None:
    found = blocks(PAGE)
    lines = [line for block in found for line in commands(block.language, block.text)]
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
