"""The page of tool servers names every key there is, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caxton_host.config import confinement, servers, tools
from caxton_host.config.show import SETTINGS

from .keys import listing

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference"

#: Tables within a table.
NESTED = {
    "confine": "_CONFINE",
    "oauth": "_OAUTH",
    "resources": "_RESOURCES",
    "restart": "_RESTART",
    "breaker": "_BREAKER",
    "retry": "_RETRY",
    "cache": "_CACHE",
}


def keys(name: str) -> Iterator[str]:
    table: dict[str, Any] = (vars(confinement) | vars(tools) | vars(servers))[name]
    for key in table:
        inner = NESTED.get(key)
        if inner is None:
            yield key
        else:
            yield from (f"{key}.{one}" for one in keys(inner))


def documented(heading: str, page: str = "servers.md") -> set[str]:
    text = (PAGES / page).read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2]
    lines = section.partition("\n## ")[0].splitlines()
    first = [line.split("|")[1] for line in lines if line.startswith("| `")]
    return {key for cell in first for key in re.findall(r"`([^`]+)`", cell)}


def test_every_key_of_a_server_stands_on_the_page() -> None:
    found = documented("Keys of a server")
    assert found - {"resources", "confine"} == {*keys("_SERVER")}


def test_every_key_of_a_tool_stands_on_the_page() -> None:
    found = documented("Keys of a tool")
    assert found == {*keys("_TOOL")}


def test_every_key_of_a_webhook_stands_on_its_page() -> None:
    assert documented("Keys", "webhooks.md") == {*keys("_WEBHOOK")}


CONFIGURATION = PAGES / "configuration.md"


def test_the_page_of_the_configuration_lists_every_key() -> None:
    # To fix: python -m tests.unit.config.keys, and put it at the end of the page
    assert CONFIGURATION.read_text("utf-8").endswith(f"\n\n{listing()}\n")


def test_the_page_of_the_configuration_lists_every_variable() -> None:
    table = CONFIGURATION.read_text("utf-8").partition("| variable |")[2]
    rows = [line.split("|") for line in table.split("\n\n")[0].splitlines()[2:]]
    found = {row[1].strip(" `"): row[4].strip(" `") for row in rows}
    keys = {name: key if "." in key else "" for key, name in SETTINGS.items()}
    assert found == keys
