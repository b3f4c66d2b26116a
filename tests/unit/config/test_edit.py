"""Changes of a file leave every other line as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.config.edit import (
    add_server,
    change_server,
    check_references,
    init_text,
    remove_server,
)
from caxton_host.config.key_lines import Lines
from caxton_host.errors import ConfigError, NotFoundError

from .conftest import Folder

TEXT = """\
# Ours.
version = 1   # the first

[servers.a]     # first
command = "x"
args = [
  "[servers.b]",
]

# About the tools of a.
[servers.a.tools.t]
effect = "read"

# About b.

[servers.b]
command = "y"
# The end.
"""


def test_server_is_added_at_the_end(folder: Folder) -> None:
    path = folder.write(TEXT.rstrip("\n"))
    path.chmod(0o600)
    add_server(
        path,
        "time.x",
        command=["uvx", 'say "hi"', "\x7f\t\\"],
        env={"A": "1", "B.C": "ü"},
        environ=folder.environ,
    )
    assert path.read_text().startswith(TEXT)
    server = folder.load().servers["time.x"]
    assert server.command == ("uvx", 'say "hi"', "\x7f\t\\")
    assert server.env == {"A": "1", "B.C": "ü"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in folder.path.iterdir()] == ["caxton.toml"]


def test_server_by_address_is_added_with_its_reference(folder: Folder) -> None:
    # law 8
    folder.environ["TOKEN"] = "canary-4711-canary"  # noqa: S105 -- a canary
    path = folder.path / "caxton.toml"
    add_server(
        path,
        "crm",
        url="https://crm.example.com/mcp",
        headers={"Authorization": "Bearer ${env:TOKEN}"},
        environ=folder.environ,
    )
    assert "canary" not in path.read_text()
    assert folder.load().servers["crm"].url == "https://crm.example.com/mcp"


@pytest.mark.parametrize(
    ("name", "command"),
    [("a", ["x"]), ("webhook", ["x"]), ("a/b", ["x"]), ("c", []), ("c", ["${X}"])],
)
def test_file_that_would_not_load_is_left_alone(
    folder: Folder, name: str, command: list[str]
) -> None:
    path = folder.write(TEXT)
    with pytest.raises(ConfigError) as caught:
        add_server(path, name, command=command, environ=folder.environ)
    assert caught.value.fix
    assert path.read_text() == TEXT
    assert [entry.name for entry in folder.path.iterdir()] == ["caxton.toml"]


def test_server_is_not_added_to_an_inline_table(folder: Folder) -> None:
    path = folder.write("servers = { a = { command = 'x' } }\n")
    with pytest.raises(ConfigError, match="broken TOML"):
        add_server(path, "b", command=["x"], environ=folder.environ)


def test_server_is_removed_with_its_tools_and_nothing_else(folder: Folder) -> None:
    path = folder.write(TEXT)
    remove_server(path, "a", environ=folder.environ)
    assert path.read_text() == (
        "# Ours.\nversion = 1   # the first\n\n\n# About b.\n\n"
        '[servers.b]\ncommand = "y"\n# The end.\n'
    )
    remove_server(path, "b", environ=folder.environ)
    assert path.read_text() == (
        "# Ours.\nversion = 1   # the first\n\n\n# About b.\n\n# The end.\n"
    )


def test_what_was_added_can_be_removed(folder: Folder) -> None:
    path = folder.write(TEXT)
    add_server(path, "c.d", command=["x"], environ=folder.environ)
    remove_server(path, "c.d", environ=folder.environ)
    assert path.read_text().rstrip("\n") == TEXT.rstrip("\n")


def test_unknown_server_is_not_found(folder: Folder) -> None:
    path = folder.write("[servers.weather]\ncommand = 'x'\n")
    with pytest.raises(NotFoundError) as caught:
        remove_server(path, "wether", environ=folder.environ)
    assert caught.value.fix == "name weather"
    with pytest.raises(NotFoundError) as caught:
        remove_server(path, "zzz", environ=folder.environ)
    assert "caxton server list" in caught.value.fix


def test_server_in_an_inline_table_is_left_alone(folder: Folder) -> None:
    path = folder.write(text := "servers = { a = { command = 'x' } }\n")
    with pytest.raises(ConfigError, match="not a table of its own") as caught:
        remove_server(path, "a", environ=folder.environ)
    assert caught.value.fix
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "[servers]  # all\n# one\na.command = 'x'\nb.command = 'y'\n",
            "[servers]  # all\n# one\nb.command = 'y'\n",
        ),
        (
            "version = 1\r\n[servers.a]\ncommand = 'x'\nargs = [\n  '1',\n  '[b]',\n]",
            "version = 1\r\n",
        ),
    ],
)
def test_server_is_removed_however_it_is_written(
    folder: Folder, text: str, left: str
) -> None:
    path = folder.path / "caxton.toml"
    path.write_bytes(text.encode())
    remove_server(path, "a", environ=folder.environ)
    assert path.read_bytes() == left.encode()


def test_link_stays_a_link(folder: Folder) -> None:
    real = folder.write(TEXT, "real.toml")
    link = folder.path / "caxton.toml"
    link.symlink_to(real)
    remove_server(link, "a", environ=folder.environ)
    assert link.is_symlink()
    assert "servers.a" not in real.read_text()


def test_draft_is_removed_when_the_disk_says_no(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.write(TEXT)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        remove_server(path, "a", environ=folder.environ)
    assert path.read_text() == TEXT
    assert [entry.name for entry in folder.path.iterdir()] == ["caxton.toml"]


@pytest.mark.parametrize("imports", [(), (".mcp.json", 'a "b".json')])
def test_starter_loads_as_it_is(folder: Folder, imports: tuple[str, ...]) -> None:
    for name in imports:
        folder.write('{"mcpServers": {}}', name)
    config = folder.load(init_text(imports=imports))
    assert config.warnings == ()
    assert config.servers["demo"].command[0] == "python"


def test_starter_loads_with_its_examples_too(folder: Folder) -> None:
    folder.environ["CRM_TOKEN"] = "canary-4711-canary"  # noqa: S105 -- a canary
    folder.write('{"mcpServers": {}}', ".mcp.json")
    examples = ("# [", "# import", "# url", "# headers", "# method", "# description")
    more = ("# effect", "# module", "# limits", "# names", "# tools", "# calls")
    lines = init_text().split("\n")
    text = "\n".join(
        line[2:] if line.startswith((*examples, *more)) else line for line in lines
    )
    config = folder.load(text)
    assert config.warnings == ()
    assert [*config.servers] == ["demo", "crm"]
    assert [*config.webhooks] == ["forecast"]
    (rule,) = config.agents["weather"].grant.allow
    assert rule.calls == 5


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("[a]", [(1, 1, ("a",), True)]),
        (' [ a . "b.c" ] # d', [(1, 1, ("a", "b.c"), True)]),
        ("[[a.b]]", [(1, 1, ("a", "b", "1"), True)]),
        ("# [a]\n\n", []),
        (
            'a.b = [\n \'[c]\',\n]\n\n[d]\ne = """\n[f]""" # g\nh = 1\r\n',
            [
                (1, 3, ("a", "b"), False),
                (5, 5, ("d",), True),
                (6, 7, ("d", "e"), False),
                (8, 8, ("d", "h"), False),
            ],
        ),
    ],
)
def test_statements_of_a_text(
    text: str, statements: list[tuple[int, int, tuple[str, ...], bool]]
) -> None:
    assert Lines(text).statements == statements


def test_server_is_changed_and_the_rest_stays(folder: Folder) -> None:
    path = folder.write(TEXT)
    change_server(path, "a", command=["z", "-v"], environ=folder.environ)
    assert path.read_text() == TEXT.replace(
        'command = "x"\nargs = [\n  "[servers.b]",\n]\n', ""
    ).replace("# the first\n\n[servers.a]     # first\n", CHANGED)
    assert folder.load().servers["a"].tools["t"].effect == "read"


CHANGED = """\
# the first

[servers.a]     # first
command = "z"
args = ["-v"]
"""

REACHED = """\
version = 1
[servers.a]
timeout = "5s"   # slow
env = { A = "1" }
[servers.a.transport]
type = "stdio"
command = "x"
"""


def test_server_moves_to_an_address_and_back(folder: Folder) -> None:
    path = folder.write(REACHED)
    change_server(
        path,
        "a",
        url="https://a.example/mcp",
        headers={"X-Plain": "${env:PLAIN:-y}"},
        environ=folder.environ,
    )
    moved = folder.load().servers["a"]
    assert (moved.url, moved.env) == ("https://a.example/mcp", {})
    change_server(path, "a", transport="sse", environ=folder.environ)
    assert folder.load().servers["a"].transport == "sse"
    change_server(path, "a", command=["y"], env={"B": "2"}, environ=folder.environ)
    back = folder.load().servers["a"]
    assert (back.command, back.env, back.headers) == (("y",), {"B": "2"}, {})
    change_server(path, "a", env={}, environ=folder.environ)
    assert path.read_text() == (
        'version = 1\n[servers.a]\ncommand = "y"\ntimeout = "5s"   # slow\n'
    )


@pytest.mark.parametrize(
    ("text", "name", "wrong"),
    [
        (TEXT, "c", NotFoundError),
        ('servers = { a = { command = "x" } }', "a", ConfigError),
        ('servers.a.command = "x"', "a", ConfigError),
        (TEXT, "b", ConfigError),
    ],
)
def test_change_that_cannot_be_made_leaves_the_file(
    folder: Folder, text: str, name: str, wrong: type[Exception]
) -> None:
    path = folder.write(text)
    before = path.read_bytes()
    with pytest.raises(wrong):
        change_server(path, name, command=["${nope}"], environ=folder.environ)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("url", "env", "headers"),
    [
        (None, {"API_TOKEN": "canary-4711"}, {}),
        (None, {"API_TOKEN": "${env:A:-canary-4711}"}, {}),
        (None, {}, {"Authorization": "Bearer canary-4711"}),
        (None, {}, {"X-Plain": "canary-4711"}),
        ("https://a.example/mcp?key=canary-4711", {}, {}),
    ],
)
def test_secret_is_not_taken_and_not_shown(
    url: str | None, env: dict[str, str], headers: dict[str, str]
) -> None:
    # law 8
    with pytest.raises(ConfigError) as caught:
        check_references(url, env, headers)
    assert "canary" not in f"{caught.value} {caught.value.fix}"


def test_reference_and_what_is_no_secret_are_taken() -> None:
    check_references(
        "https://a.example/mcp?key=${env:KEY}&page=1",
        {"API_TOKEN": "${file:token}", "LOG_LEVEL": "debug"},
        {"Authorization": "Bearer ${env:A}", "Accept": "text/plain"},
    )
    check_references(None, None, None)
