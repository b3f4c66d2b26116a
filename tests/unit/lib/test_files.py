"""A file is replaced as a whole, or left as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from caxton_host.lib.files import Change, opened, replace_file, replace_files


def test_file_is_replaced_behind_its_link_with_the_same_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)

    replace_file(link, b"ne", b"w")

    assert (link.is_symlink(), file.read_bytes()) == (True, b"new")
    assert file.stat().st_mode & 0o777 == 0o640


def test_link_to_itself_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)

    replace_file(link, b"new")

    assert (link.is_symlink(), link.read_bytes()) == (False, b"new")


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupt_leaves_the_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def interrupted(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(error):
        replace_file(file, b"new")

    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == b"old"


def test_several_files_are_replaced_created_and_removed(tmp_path: Path) -> None:
    old, gone, new = tmp_path / "old", tmp_path / "gone", tmp_path / "folder" / "new"
    old.write_bytes(b"1")
    gone.write_bytes(b"2")

    replace_files([Change(new, b"3", 0o600), Change(old, b"4"), Change(gone, None)])

    assert (old.read_bytes(), new.read_bytes(), gone.exists()) == (b"4", b"3", False)
    assert new.stat().st_mode & 0o777 == 0o600


def test_all_files_are_as_they_were_if_one_cannot_be_written(tmp_path: Path) -> None:
    old, gone, new = tmp_path / "old", tmp_path / "gone", tmp_path / "new"
    old.write_bytes(b"1")
    gone.write_bytes(b"2")
    changes = [Change(new, b"3"), Change(old, b"4"), Change(gone, None)]

    with pytest.raises(OSError, match="directory"):
        replace_files([*changes, Change(old / "below" / "file", b"5")])

    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {
        old: b"1",
        gone: b"2",
    }


def test_what_could_keep_its_reader_waiting_is_not_opened(tmp_path: Path) -> None:
    # law 9
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"said")

    with opened(tmp_path / "file") as file:
        assert file.read() == b"said"
    with pytest.raises(OSError, match="not a regular file"):
        opened(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "none")
