"""Whatever a file holds, it is read or refused with a reason (law 9)."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.config import load
from caxton_host.config.key_lines import Lines
from caxton_host.errors import ConfigError

from .test_load import EXAMPLE

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "args", "env", "url", "type", "transport", "x"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def load_files(toml: bytes, imported: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "caxton.toml").write_bytes(toml)
        (folder / ".mcp.json").write_bytes(imported)
        environ = {"HOME": name, "CRM_TOKEN": "canary-4711-canary"}
        try:
            config = load(None, environ=environ, cwd=folder)
        except ConfigError as exc:
            said, fix = str(exc), exc.fix
        else:
            said, fix = repr(config), "none is needed"
        assert fix
        assert "canary" not in said + fix


@settings(max_examples=300, deadline=None)
@given(
    at=st.integers(0, len(EXAMPLE)),
    cut=st.integers(0, 12),
    put=st.binary(max_size=6) | st.sampled_from([b"[", b"]", b'"', b"= {", b"${env:"]),
)
def test_damaged_file_is_read_or_refused(at: int, cut: int, put: bytes) -> None:
    data = EXAMPLE.encode()
    load_files(data[:at] + put + data[at + cut :], b'{"mcpServers": {}}')


@settings(max_examples=300, deadline=None)
@given(
    at=st.integers(0, len(EXAMPLE)),
    cut=st.integers(0, 12),
    put=st.text("[]{}=,.\"'#\n a1", max_size=6),
)
def test_every_key_of_a_sound_file_has_a_line(at: int, cut: int, put: str) -> None:
    text = EXAMPLE[:at] + put + EXAMPLE[at + cut :]
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert {*paths(tree, ())} <= Lines(text).known.keys()


def paths(value: object, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value, 1)
    for key, item in items:
        yield (*at, str(key))
        yield from paths(item, (*at, str(key)))


@settings(max_examples=200, deadline=None)
@given(JUNK)
def test_junk_of_another_program_is_read_or_refused(junk: object) -> None:
    content = json.dumps({"mcpServers": {"a": junk}}).encode()
    load_files(b'import = [".mcp.json"]', content)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    load_files(data, data)
