"""A run has the packages that the lock describes, or does not begin (law 9)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.dependencies import Lock, Metadata
from caxton_host.errors import UsageError
from caxton_host.runs.locked import MOST_PACKAGES, lock_of, packages_of, read_locked
from caxton_host.runs.modules import read_program

SOURCE = '# /// script\n# dependencies = ["a"]\n# ///\nimport a\n'
PACKAGES = b"eJwr"
LOCK = Lock(
    metadata=Metadata(dependencies=("a",)),
    python="3.14.0",
    packages=({"name": "a", "version": "1", "sha256": "ab" * 32},),
    sha256=hashlib.sha256(PACKAGES).hexdigest(),
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "report.py"
    path.write_text(SOURCE)
    lock_of(path).write_text(LOCK.to_toml())
    packages_of(path).write_bytes(PACKAGES)
    return path


def test_a_program_comes_with_its_locked_packages(program: Path) -> None:
    found = read_program(program, "python")
    assert (found.packages, found.locked) == (PACKAGES, LOCK.packages)
    assert found.name == "report.py"


def test_a_program_that_names_nothing_has_no_packages(program: Path) -> None:
    assert read_locked(program, "import json") == (b"", ())
    program.with_suffix(".js").write_text(f"/*\n{SOURCE}*/")
    assert read_program(program.with_suffix(".js"), "javascript").packages == b""


def refused(program: Path, source: str = SOURCE) -> str:
    with pytest.raises(UsageError) as raised:
        read_locked(program, source)
    assert raised.value.fix == f"caxton program lock {program}"
    return str(raised.value)


def test_a_lock_that_does_not_fit_is_refused(program: Path) -> None:
    assert refused(program, SOURCE.replace('"a"', '"a>1"')) == (
        "the dependencies in report.py are not those in report.py.lock"
    )
    other = replace(LOCK, sha256="0" * 64)
    lock_of(program).write_text(other.to_toml())
    assert refused(program) == (
        "report.py.packages is not the file that report.py.lock describes"
    )
    lock_of(program).write_text("[" * 5_000)
    assert "report.py.lock cannot be read" in refused(program)


def test_packages_beyond_the_bound_are_not_read(program: Path) -> None:
    os.truncate(packages_of(program), MOST_PACKAGES + 1)
    assert "report.py.packages has more than 16,777,216 bytes" in refused(program)


@pytest.mark.parametrize("part", [lock_of, packages_of])
def test_a_missing_file_is_named(program: Path, part: object) -> None:
    assert callable(part)
    part(program).unlink()
    missing = part(program).name
    assert refused(program) == (
        f"report.py names dependencies, and {missing} does not exist"
    )
