"""Agents are built the same everywhere, and pass the gate."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent, find_shared, new_agent
from caxton_host.core.limits import Limits
from caxton_host.sandbox.gate import check, inspect

COMMITTED = sorted(
    source.parent.name
    for source in find_shared("agents").glob("*/*.c")
    if source.stem == source.parent.name
)


def test_there_are_agents_to_build() -> None:
    assert COMMITTED == ["clerk", "echo", "weather"]


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_module_is_what_its_source_gives(
    name: str, tmp_path: Path, zig_cache: Path
) -> None:
    committed = find_shared(f"agents/{name}")
    elsewhere = tmp_path / "another folder" / name
    shutil.copytree(committed, elsewhere)
    built = build_agent(elsewhere, lang="c", into=tmp_path, cache=zig_cache)
    assert built.path == tmp_path / f"{name}.wasm"
    assert built.path.read_bytes() == (committed / f"{name}.wasm").read_bytes()


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_module_passes_the_gate_and_is_small(name: str) -> None:
    module = find_shared(f"agents/{name}/{name}.wasm").read_bytes()
    check(module, Limits(), "run")
    info = inspect(module)
    assert {export.name for export in info.exports} == {"memory", "run"}
    assert {wanted.module for wanted in info.imports} == {"caxton"}
    assert len(module) < 8192


@pytest.mark.debian
def test_two_folders_and_two_builds_give_the_same_bytes(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / "one" / "hello", tmp_path / "another, deeper" / "hello"]
    first, second = (
        build_agent(new_agent("hello", "rust", folder.parent)) for folder in folders
    )
    assert first.sha256 == second.sha256
    data = first.path.read_bytes()
    assert str(tmp_path).encode() not in data
    check(data, Limits(), "run")
