"""``caxton --host URL``: the same commands, against a host that serves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.served import Served, served

from .guests import call, guest
from .shell import Done, Shell, toml

CANARY = "hunter2-hunter2"
MODULES = {
    "a": guest(
        call("mcp__demo__echo", text="one"),
        call("mcp__demo__fail", text="\x1b[31m"),
        call("mcp__other__rm", path="/"),
        output={"said": "\u202edone"},
    ),
    "asks": guest(call("mcp__demo__get_weather", location="Oslo"), output="asked"),
    "traps": guest(call("mcp__demo__echo", text="two"), then="(unreachable)"),
}
RULES = (
    "[[agents.a.allow]]\ntools = ['demo/*']",
    "[[agents.traps.allow]]\ntools = ['demo/*']",
    "[[agents.asks.allow]]\ntools = ['demo/*']\napprove = { within = '15m' }",
)


def configure(shell: Shell) -> None:
    server: dict[str, object] = {
        "command": "python",
        "args": ["-m", "caxton_host.demo_server"],
        "env": {"SESSION_TOKEN": CANARY},
    }
    tables: dict[str, dict[str, object]] = {"servers.demo": server}
    for name, module in MODULES.items():
        shell.write(f"{name}.wasm", module)
        tables[f"agents.{name}"] = {"module": f"{name}.wasm"}
    shell.write("caxton.toml", toml(tables, *RULES))


class Both:
    """Types the same here and there, over one log."""

    def __init__(self, shell: Shell, host: Served) -> None:
        self.shell, self.host = shell, host

    def here(self, *words: str) -> Done:
        return self.shell(*words)

    def there(self, *words: str) -> Done:
        return self.shell("--host", self.host.url, *words)

    def same(self, *words: str) -> Done:
        """Return what is printed, which is the same byte for byte."""
        here, there = self.here(*words), self.there(*words)
        err = there.err.replace(f"caxton --host {self.host.url}", "caxton")
        assert (there.code, there.out, err) == (here.code, here.out, here.err)
        return there


@pytest.fixture
def both(shell: Shell) -> Iterator[Both]:
    configure(shell)
    with served(shell.folder) as host:
        yield Both(shell, host)


VARIES = re.compile(r"[0-9a-f-]{36}|\d+ ms")


def test_a_run_there_is_told_of_as_one_here(both: Both) -> None:
    here, there = both.here("run", "a"), both.there("run", "a")
    assert there.code == here.code == 0
    assert there.out == here.out == '{"said": "\\u202edone"}\n'
    assert VARIES.sub("", there.err) == VARIES.sub("", here.err)
    assert re.match(r"run [0-9a-f-]{36}  a\n", there.err)
    assert both.there("run", "a", "--fail-on-denied", "-q").err == ""


def test_what_is_there_is_shown_as_here(both: Both) -> None:
    both.there("run", "a")
    both.there("run", "traps", "-q")
    assert both.there("run", "asks").code == 3
    for words in (
        ("runs", "list"),
        ("runs", "list", "--agent", "a", "--state", "completed", "--json"),
        ("runs", "list", "-n", "1", "--json"),
        ("runs", "show", "@last"),
        ("runs", "show", "@last", "--json"),
        ("runs", "show", "nothing"),
        ("runs", "show", "0"),
        ("runs", "diff", "@last", "@last"),
        ("events", "list", "@last"),
        ("events", "list", "@last", "--json"),
        ("events", "tail", "@last"),
        ("events", "tail", "--json"),
        ("events", "tail", "--all", "--json"),
        ("events", "tail", "--after", "no cursor"),
        ("approval", "list"),
        ("approval", "list", "--agent", "asks", "--json"),
        ("approval", "list", "--agent", "nobody"),
        ("approval", "show", "@last"),
        ("approval", "show", "@last", "2", "--json"),
        ("approval", "show", "@last", "7"),
        ("server", "list"),
        ("server", "list", "--json"),
        ("server", "tools", "demo"),
        ("server", "test", "demo", "--json"),
        ("tool", "list"),
        ("tool", "list", "--server", "demo", "--json"),
        ("tool", "show", "demo/echo"),
        ("tool", "show", "demo/echo", "--json"),
        ("tool", "show", "demo/ech"),
        ("tool", "show", "echo"),
        ("agent", "list"),
        ("agent", "list", "--json"),
        ("grant", "explain", "a", "demo/echo", "text=hi"),
        ("grant", "explain", "asks", "demo/get_weather", "--json"),
        ("grant", "explain", "asks", "other/rm"),
        ("runs", "explain", "@last", "2"),
    ):
        both.same(*words)
