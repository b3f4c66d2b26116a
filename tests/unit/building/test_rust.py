"""Rust is found wherever it can build, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.building import build_agent, rust
from caxton_host.errors import UsageError


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "agent.rs").write_text(
        "caxton::agent!(run); fn run() -> Result<(), String> { Ok(()) }"
    )
    return folder


def _program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.debian
def test_a_rustc_that_cannot_build_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "broken", "rustc", "echo no toolchain; exit 1")
    _program(tmp_path / "bare", "rustc", f"echo {tmp_path}/nothing")
    monkeypatch.setenv("PATH", f"{tmp_path}/broken:{tmp_path}/bare")
    rustc, _ = rust._rustc(tmp_path)
    assert rustc == "/usr/bin/rustc"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "the Rust compiler is not installed"),
        ("echo /nowhere", "not the standard library of wasm32-unknown-unknown"),
    ],
)
def test_what_is_missing_is_answered_with_how_to_get_it(
    agent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    message: str,
) -> None:
    _program(tmp_path / "bin", "rustc" if script else "other", script or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(rust, "_ALSO", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match=message) as caught:
        build_agent(agent)
    assert caught.value.fix == "apt-get install rustc libstd-rust-dev-wasm32 lld"


def test_a_missing_linker_is_answered_with_how_to_get_it(
    agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "rustlib" / "wasm32-unknown-unknown" / "lib"
    library.mkdir(parents=True)
    (library / "libstd-0.rlib").touch()
    _program(tmp_path / "bin", "rustc", f"echo {library}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(rust, "_ALSO", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match="linker") as caught:
        build_agent(agent)
    assert caught.value.fix == "apt-get install rustc libstd-rust-dev-wasm32 lld"


def test_the_linker_of_a_toolchain_is_left_to_it(tmp_path: Path) -> None:
    library = tmp_path / "rustlib" / "wasm32-unknown-unknown" / "lib"
    linker = tmp_path / "rustlib" / "x86_64-unknown-linux-gnu" / "bin" / "rust-lld"
    linker.parent.mkdir(parents=True)
    linker.touch()
    assert rust._linker(library) == []


@pytest.mark.debian
def test_an_error_of_the_compiler_is_shown(agent: Path) -> None:
    (agent / "agent.rs").write_text("fn run() { nothing }")
    with pytest.raises(UsageError, match="cannot find value `nothing`") as caught:
        build_agent(agent)
    assert caught.value.fix.startswith("change agent.rs")


@pytest.mark.debian
def test_an_agent_may_have_several_files_and_its_own_allocator(agent: Path) -> None:
    (agent / "agent.rs").write_text(
        "#[global_allocator] static MINE: std::alloc::System = std::alloc::System;"
        "mod words; caxton::agent!(run, own_allocator);"
        "fn run() -> Result<(), String> { caxton::output(words::HELLO); Ok(()) }"
    )
    (agent / "words.rs").write_text('pub const HELLO: &str = "hello, and well met";')
    assert b"hello, and well met" in build_agent(agent).path.read_bytes()
