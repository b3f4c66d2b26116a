"""The reader of confinement: what a server is granted, and what never is."""

from __future__ import annotations

import pytest

from caxton_host.config.confinement import usual
from caxton_host.core.tools.confinement import Confine
from caxton_host.errors import ConfigError

from .conftest import Folder

SERVER = '[servers.a]\ncommand = "x"\n'


def confined(folder: Folder, line: str) -> Confine | None:
    return folder.load(f"{SERVER}{line}\n").servers["a"].confine


def test_server_is_confined_strictly_by_a_table_or_not(folder: Folder) -> None:
    strict, table = (
        confined(folder, 'confine = "strict"'),
        confined(folder, "confine = {}"),
    )

    assert strict
    assert strict == table
    assert (strict.read, strict.write, strict.network) == ((), (), "none")
    assert confined(folder, 'confine = "off"') is None
    assert confined(folder, "") is None


def test_granted_paths_are_real_and_relative_to_the_file(folder: Folder) -> None:
    (folder.path / "docs").mkdir()
    (folder.path / "link").symlink_to("docs")
    found = confined(folder, 'confine = { read = ["link"], memory = "64 MiB" }')

    assert found
    assert found.read == (str((folder.path / "docs").resolve()),)
    assert found.memory == 64 << 20
    assert str((folder.path / "caxton.toml").resolve()) in found.guarded


@pytest.mark.parametrize(
    "line",
    [
        'confine = { read = ["."] }',  # The database is there.
        'confine = { read = ["caxton.db"] }',
        'confine = { write = ["caxton.toml"] }',
        'confine = { read = ["/"] }',
        'confine = "loose"',
        "confine = { processes = 0 }",
        "confine = { rad = [] }",
    ],
)
def test_files_of_the_host_are_never_granted(folder: Folder, line: str) -> None:
    with pytest.raises(ConfigError, match=r"servers\.a\.confine") as caught:
        confined(folder, line)

    assert caught.value.fix


def test_server_by_address_is_not_confined(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="have a command"):
        folder.load('[servers.a]\nurl = "https://a.example/mcp"\nconfine = "strict"\n')


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        (["crm-server", "-v"], 'confine = "strict"  # or { read'),
        (["files", "/usr", "docs"], 'confine = { read = ["/usr"] }  # or'),
        (["files", "--to", "./rel", "x"], 'confine = { read = ["./rel"] }  # or'),
        (["git", "--repo=/usr", "-v=/"], 'confine = { read = ["/usr"] }  # or'),
        (
            ["uvx", "x", "/usr"],
            'confine = { read = ["/usr"], network = "host" }  # uvx',
        ),
        (["docker", "run", "x"], "# Not confined: docker"),
    ],
)
def test_new_server_is_confined_as_its_command_needs(
    folder: Folder, command: list[str], begins: str
) -> None:
    (folder.path / "rel").mkdir()

    text = usual(command, folder.path)

    assert text.startswith(begins)
    assert [*folder.load(f"{SERVER}{text}").servers] == ["a"]


@pytest.mark.parametrize("chained", [False, True])
def test_link_that_a_server_could_have_made_grants_nothing(
    folder: Folder, *, chained: bool
) -> None:
    (folder.path / "out").mkdir()
    (folder.path / "victim").mkdir()
    (folder.path / "out/in").symlink_to("../victim" if not chained else "again")
    (folder.path / "out/again").symlink_to(folder.path / "victim")
    (folder.path / "far").symlink_to("out/in/.")
    writer = '[servers.b]\ncommand = "x"\nconfine = { write = ["out"] }\n'

    for line in ('read = ["out/in"]', 'write = ["out", "out/in"]', 'read = ["far"]'):
        with pytest.raises(ConfigError, match=r"servers\.a\.confine.*out/in, a link"):
            folder.load(f"{writer}{SERVER}confine = {{ {line} }}\n")
    assert confined(folder, 'confine = { read = ["far"] }')  # None writes there.


def test_link_to_itself_is_one_that_does_not_exist(folder: Folder) -> None:
    (folder.path / "loop").symlink_to("loop")

    assert confined(folder, 'confine = { read = ["loop"] }')
