"""``caxton tool stubs``: editors know the tools of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shell import Shell


@pytest.fixture
def ran(shell: Shell) -> Shell:
    shell("init")
    return shell


def test_a_stub_has_what_an_agent_may_call_by_its_own_names(ran: Shell) -> None:
    done = ran("tool", "stubs", "--agent", "weather", "-o", "tools.pyi")
    assert (done.code, done.out, done.err) == (0, "", "tools.pyi: 1 tool\n")
    stub = Path(ran.folder, "tools.pyi").read_text()
    assert "    def weather(self, *, location: str) -> " in stub
    assert "demo" not in stub
    compile(stub, "tools.pyi", "exec")


def test_the_suffix_decides_the_language(ran: Shell) -> None:
    ran("tool", "stubs", "demo", "-o", "tools.d.ts")
    text = Path(ran.folder, "tools.d.ts").read_text()
    assert 'declare module "caxton" {' in text
    assert ran("tool", "stubs", "demo", "--lang", "typescript").out == text
    assert ran("tool", "stubs", "demo").out.startswith('"""Typed tools')


@pytest.mark.parametrize(
    ("words", "error", "fix"),
    [
        (("nobody",), "there is no server 'nobody'", "caxton server list"),
        (("--agent", "nobody"), "there is no agent", "caxton agent list"),
        (("-o", "tools.py"), "tells no language", "name it tools.pyi or tools.d.ts"),
        (("-o", "no/tools.pyi"), "cannot be written", "name a file in a folder"),
    ],
)
def test_what_is_wrong_is_told(
    ran: Shell, words: tuple[str, ...], error: str, fix: str
) -> None:
    done = ran("tool", "stubs", *words)
    assert done.code == 2
    assert error in done.err
    assert done.fix.startswith(fix)
