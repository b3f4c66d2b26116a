"""The lock holds what the package asks for, and nothing that names a place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "constraints.txt").read_text()
PINNED = dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", LOCK, re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
WANTED = {
    *PROJECT["project"]["dependencies"],
    *PROJECT["build-system"]["requires"],
    *(line for lines in EXTRAS.values() for line in lines),
}


@pytest.mark.parametrize("line", sorted(WANTED))
def test_what_is_asked_for_is_locked(line: str) -> None:
    wanted = Requirement(line)
    if wanted.name == PROJECT["project"]["name"]:
        assert wanted.extras <= set(EXTRAS)
        return
    assert wanted.specifier.contains(PINNED[canonicalize_name(wanted.name)])


def test_every_locked_version_has_hashes() -> None:
    blocks = re.split(r"^(?=[a-z])", LOCK, flags=re.MULTILINE)[1:]
    # One block a version: another Python may have to take an older one.
    assert {canonicalize_name(one.split("==")[0]) for one in blocks} == {*PINNED}
    for block in blocks:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_the_lock_names_no_index_and_no_place() -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links|@|/", LOCK)


def test_the_lock_is_installed_without_looking_for_other_versions() -> None:
    # pip before 23.3 does not take the pin of a package for one with extras.
    commands = "".join((ROOT / name).read_text() for name in ("README.md", ".ci/run"))
    for found in re.findall(r"pip.* install .*-r constraints\.txt", commands):
        assert "--no-deps" in found
    assert commands.count("-r constraints.txt") == 2
