"""Which files are a confined server's program: what it reads, and may not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.core.tools.confinement import Confine
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.errors import ServerUnavailable
from caxton_host.mcp.transport.confining import confined, program_of

PYTHON = "/usr/bin/python3"


def reads(folder: Path, *command: str, **env: str) -> frozenset[str]:
    guarded = [str(folder / "caxton.toml")]
    return program_of(command, str(folder), env, guarded).reads


@pytest.mark.parametrize(
    "command",
    [
        (PYTHON, "-u", "a/main.py", "b/data.py"),
        (PYTHON, "-X", "utf8", "-W", "ignore", "a/main.py", "b/data.py"),
        (PYTHON, "a/main.py", "-m", "b/data.py"),
    ],
)
def test_script_is_the_first_argument_that_is_none_of_an_option(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    for name in ("a/main.py", "b/data.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    found = reads(tmp_path, *command)

    assert str(tmp_path / "a") in found
    assert str(tmp_path / "b") not in found


def test_packages_begin_at_the_folder_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()

    assert str(tmp_path / "lib") in reads(tmp_path, PYTHON, PYTHONPATH="lib")


@pytest.mark.parametrize("place", [".", "", "/", "~"])
def test_packages_beside_files_of_the_host_are_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = place.replace("~", str(tmp_path / "home"))
    found = reads(tmp_path, PYTHON, PYTHONPATH=place)

    assert not {"/", str(tmp_path), str(tmp_path / "home")} & found


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["-m", "own.main"], {}),  # Python looks for it in the working folder first.
        (["-c", "pass"], {"PYTHONPATH": "lib"}),  # A link that it could change.
        (["-c", "pass"], {"PYTHONPATH": "not-there-yet"}),
    ],
)
async def test_place_where_a_program_is_looked_for_is_not_writable(
    tmp_path: Path, arguments: list[str], env: dict[str, str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/lib").symlink_to("/usr/lib")
    command = [PYTHON, *arguments]
    config = ServerConfig(
        name="a",
        command=tuple(command),
        cwd=str(tmp_path / "out"),
        confine=Confine(write=(str(tmp_path / "out"),)),
    )

    with pytest.raises(ServerUnavailable, match="change its own program"):
        async with confined(config, command, env):
            pass


async def test_libraries_of_the_system_are_part_of_a_program() -> None:
    config = ServerConfig(
        name="a", command=(PYTHON,), confine=Confine(write=("/usr/share",))
    )

    with pytest.raises(ServerUnavailable, match="change its own program: /usr"):
        async with confined(config, [PYTHON], {}):
            pass


async def test_folder_for_output_in_the_working_folder_is(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    command = [PYTHON, "-m", "json"]
    config = ServerConfig(
        name="a",
        command=tuple(command),
        cwd=str(tmp_path),
        confine=Confine(write=(str(tmp_path / "out"),)),
    )

    async with confined(config, command, {}) as argv:
        assert argv[-2:] == command[1:]
