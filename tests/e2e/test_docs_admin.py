"""The page about the admin page: each of its commands, and what they leave behind."""

from __future__ import annotations

import json

from .serving import Host, served
from .shell import Shell
from .test_cli_cancel import until
from .test_docs import ROOT, add, blocks, commands, type_in

PAGE = ROOT / "docs" / "how-to" / "admin-page.md"
SHOWN = "http://127.0.0.1:8080"


def loaded(host: Host) -> list[object]:
    """Return who had the configuration loaded, each time."""
    events = host.get("/api/v1/events?limit=1000").json()["events"]
    return [one["payload"]["actor"] for one in events if one["type"] == "ConfigLoaded"]


def test_the_page_about_the_admin_page(shell: Shell) -> None:
    found = blocks(PAGE)
    lines = [line for block in found for line in commands(block.language, block.text)]
    at = lines.index("caxton serve")
    for line in lines[:at]:
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

    assert page.headers["content-type"].startswith("text/html")
    assert [one.get("change") for one in said] == ["added", "changed", None, "removed"]
    assert all(one["hosts"][0]["reloaded"] for one in said if "hosts" in one)
    assert "get_weather" in said[2]["tools"]
    assert (shell.folder / "caxton.toml").read_text().strip() == before.strip()
