"""Whatever somebody types, a change of a server changes that server alone."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.config.edit import add_server, change_server, remove_server
from caxton_host.errors import ConfigError

TEXT = """\
# Ours.
version = 1
[servers.before]   # [servers.x]
command = "a"
args = [
  "[servers.x]", # mine
]

# Notes.
[servers.x]
timeout = "5s"   # slow
command = '''
[servers.before]'''
env = { A = "1" }
[servers.x.tools.t]
effect = "read"
# About the end.
[servers.after]
url = "https://after.example/mcp"
"""
WORDS = st.lists(st.text(max_size=12), min_size=1, max_size=3)
PAIRS = st.dictionaries(st.sampled_from("AB"), st.text(max_size=12), max_size=2)
ENVIRON = {"HOME": "/home/ann"}


def tables(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


@given(WORDS, PAIRS)
def test_a_change_changes_one_server_or_nothing(
    command: list[str], env: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "caxton.toml"
        path.write_text(TEXT)
        expected = tables(TEXT)
        try:
            change_server(path, "x", command=command, env=env, environ=ENVIRON)
        except ConfigError:
            assert path.read_text() == TEXT
            return
        server = expected["servers"]["x"]
        del server["env"]
        server |= {"command": command[0], "args": command[1:], "env": env}
        expected["servers"]["x"] = {k: v for k, v in server.items() if v}
        assert tables(path.read_text()) == expected
        for comment in ("# Ours.", "# mine", "# Notes.", "# slow", "# About the end."):
            assert comment in path.read_text()


@given(WORDS, PAIRS)
def test_what_is_added_can_be_removed_without_a_trace(
    command: list[str], env: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "caxton.toml"
        path.write_text(TEXT)
        try:
            add_server(path, "new", command=command, env=env, environ=ENVIRON)
        except ConfigError:
            assert path.read_text() == TEXT
            return
        assert tables(path.read_text())["servers"]["new"]["command"] == command[0]
        remove_server(path, "new", environ=ENVIRON)
        assert path.read_text().rstrip() == TEXT.rstrip()
