"""What of the machine becomes part of a run: plain files, and within bounds (law 9)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from caxton_host.config import Agent
from caxton_host.core.commands import Command
from caxton_host.core.limits import Limits
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import UsageError
from caxton_host.lib import codec
from caxton_host.runs import command_files
from caxton_host.runs.command_files import check_command, command_of

#: Imports from WASI, and nothing else is looked at.
PROGRAM = b"\0asm\1\0\0\0" + b"\2\x18\1\x16wasi_snapshot_preview1"


def _read(folder: Path, *names: str, **limits: int) -> dict[str, bytes]:
    agent = Agent(
        name="teller",
        files={name: folder / name for name in names},
        limits=Limits(**limits),
    )
    command, blobs = command_of(agent)
    assert all(codec.sha256(data) == digest for digest, data in blobs.items())
    return {path: blobs[digest] for path, digest in command.files.items()}


def _write(folder: Path, path: str, data: bytes = b"x") -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def test_files_and_folders_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for path in ("data/b", "data/deep/c", "data/a", "one.txt", "other"):
        _write(tmp_path, path, path.encode())
    (tmp_path / "data/empty").mkdir()
    found = _read(tmp_path, "one.txt", "data", "data/a")
    assert [*found] == ["one.txt", "data/a", "data/b", "data/deep/c"]
    assert all(data == path.encode() for path, data in found.items())
    assert [*_read(tmp_path, "data/deep")] == ["data/deep/c"]


def test_the_whole_folder_can_be_given(tmp_path: Path) -> None:
    _write(tmp_path, "data/a")
    assert [*_read(tmp_path, ".")] == ["data/a"]


def test_without_files_nothing_is_read() -> None:
    assert command_of(Agent(name="a", args=("x",))) == (Command(args=("x",)), {})


def _link(folder: Path) -> None:
    _write(folder, "secret")
    (folder / "data").mkdir()
    (folder / "data/link").symlink_to(folder / "secret")


def _linked_folder(folder: Path) -> None:
    _write(folder, "away/secret")
    (folder / "data").symlink_to("away")


def _pipe(folder: Path) -> None:
    (folder / "data").mkdir()
    os.mkfifo(folder / "data/pipe")


def _not_utf8(folder: Path) -> None:
    (folder / "data").mkdir()
    (Path(os.fsdecode(os.fsencode(folder / "data") + b"/\xff"))).write_bytes(b"x")


def _deep(folder: Path) -> None:
    _write(folder, "data/" + "d/" * 40 + "x")


@pytest.mark.parametrize(
    ("make", "name", "problem"),
    [
        (_link, "data", "cannot read data/link: it is a link"),
        (_linked_folder, "data", "cannot read data: it is a link"),
        (_linked_folder, "data/secret", "cannot read data/secret: it is a link"),
        (_pipe, "data", "cannot read data/pipe: it is neither a file nor a folder"),
        (_not_utf8, "data", r"cannot read 'data/\udcff': its name is not UTF-8"),
        (_deep, "data", "more than 32 folders deep"),
        (_pipe, "none", "cannot read none: No such file or directory"),
    ],
)
def test_what_is_no_plain_file_is_refused_by_its_name(
    tmp_path: Path, make: object, name: str, problem: str
) -> None:
    assert callable(make)
    make(tmp_path)
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, name)
    assert problem in str(caught.value)
    assert "[agents.teller] files" in str(caught.value)
    assert caught.value.fix
    assert "limits" not in caught.value.fix


def test_a_folder_that_is_gone_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read data: No such file"):
        _read(tmp_path / "gone", "data")


def test_the_bytes_are_bounded(tmp_path: Path) -> None:
    for n in range(3):
        _write(tmp_path, f"data/{n}", b"1234")
    assert len(_read(tmp_path, "data", files=12)) == 3
    with pytest.raises(UsageError, match="together more than 11 bytes") as caught:
        _read(tmp_path, "data", files=11)
    assert "limits.files" in caught.value.fix


def test_the_bytes_have_a_bound_that_no_limit_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_files, "MOST_BYTES", 3)
    _write(tmp_path, "data", b"1234")
    with pytest.raises(UsageError, match="together more than 3 bytes"):
        _read(tmp_path, "data", files=100)


def test_the_number_of_files_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_files, "MOST_FILES", 2)
    for n in range(3):
        _write(tmp_path, f"data/{n}")
    with pytest.raises(UsageError, match="more than 2 files"):
        _read(tmp_path, "data")


def test_a_module_that_is_no_program_takes_no_command() -> None:
    check_command(b"\0asm\1\0\0\0", Command(), {}, Redactor())
    with pytest.raises(UsageError, match="this module is not one"):
        check_command(b"\0asm\1\0\0\0", Command(args=("x",)), {}, Redactor())


def test_arguments_and_environment_are_bounded_together() -> None:
    half = "x" * (command_files.MOST_TEXT // 2 - 2)
    fits = Command(args=(half,), env={"A": half[:-1]})
    check_command(PROGRAM, fits, {}, Redactor())
    with pytest.raises(UsageError, match="65537 bytes, of 65536 allowed"):
        check_command(PROGRAM, Command(args=(half,), env={"AA": half}), {}, Redactor())


def test_a_file_with_a_secret_of_the_configuration_is_refused() -> None:
    """Law 8."""
    command = Command(files={"data/.env": "ab"})
    redact = Redactor(["hunter2hunter2"])
    with pytest.raises(UsageError, match=r"data/\.env contains a configured secret"):
        check_command(PROGRAM, command, {"ab": b"\xffKEY=hunter2hunter2\n"}, redact)
    check_command(PROGRAM, command, {"ab": b"KEY=other"}, redact)
