"""The page about serving agents: each of its commands, with the real clients."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.others import Programs

from .serving import Host, served
from .shell import SOON, Shell
from .test_docs import ROOT, add, blocks, commands, type_in

PAGE = ROOT / "docs" / "how-to" / "serve-agents.md"
SHOWN = "http://127.0.0.1:8080"
NPM = ROOT / "tests" / "npm"
INSPECTOR = "@modelcontextprotocol/inspector"


@pytest.fixture
def host(shell: Shell) -> Iterator[Host]:
    """Follow the page until the host is up."""
    for language, _, text in blocks(PAGE):
        if language == "toml":
            add(shell, text)
        for line in commands(language, text):
            if line == "caxton serve":
                token = (shell.folder / "token.txt").read_text().strip()
                with served(shell, good=token) as host:
                    yield host
                return
            type_in(shell, line)


@pytest.mark.long
def test_the_page_about_serving(shell: Shell, host: Host, programs: Programs) -> None:
    inspector = shlex.join(programs.inspector())
    shown = f"npx {INSPECTOR}@{_locked()['version']}"
    told: dict[str, str] = {}
    waiting = True
    for language, name, text in blocks(PAGE):
        if name:
            shell.write(name, text)
        for line in commands(language, text):
            waiting = waiting and line != "caxton serve"
            if waiting or line == "caxton serve":
                continue
            typed = line.replace(SHOWN, host.url).replace(shown, inspector)
            told[line] = type_in(shell, typed)

    curled = [json.loads(out) for line, out in told.items() if "-d @" in line]
    stranger = httpx.post(host.said["mcp"], json={}, timeout=SOON)
    assert stranger.status_code == httpx.codes.UNAUTHORIZED
    (tool,) = curled[0]["result"]["tools"]
    assert tool["name"] == "weather"
    assert tool["description"].startswith("Asks for the weather")
    assert tool["inputSchema"]["type"] == "object"
    assert "Seattle" in curled[1]["result"]["structuredContent"]["summary"]
    assert curled[2]["result"]["serverInfo"]["name"] == "caxton"
    assert any(out == "202\n" for out in told.values())
    for city in ("Lima", "Tokyo", "Berlin", "Lagos"):
        assert any(f"{city}: " in out for out in told.values()), city
    for file in (".mcp.json", ".vscode/mcp.json"):
        assert "--stdio" in (shell.folder / file).read_text()


def test_the_page_names_the_inspector_that_is_tested_and_the_node_that_it_needs() -> (
    None
):
    page, locked = PAGE.read_text("utf-8"), _locked()
    versions = re.findall(f"npx {INSPECTOR}(\\S*)", page)

    assert {*versions} == {f"@{locked['version']}"}
    node = locked["engines"]["node"].removeprefix(">=").removesuffix(".0")
    assert f"Node.js {node} or newer" in page


def _locked() -> dict[str, Any]:
    lock = json.loads((NPM / "package-lock.json").read_bytes())
    found: dict[str, Any] = lock["packages"][f"node_modules/{INSPECTOR}"]
    return found
