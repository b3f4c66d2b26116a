"""Build agents in Rust, with any rustc that has wasm32-unknown-unknown."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

from ..errors import UsageError
from .shipped import find_shared
from .tools import call

SOURCES: tuple[str, ...] = ("agent.rs",)

_TARGET = "wasm32-unknown-unknown"
_INSTALL = "apt-get install rustc libstd-rust-dev-wasm32 lld"
#: Debian's compiler, where rustup's comes first and lacks the target.
_ALSO = "/usr/bin"

# The flags decide the bytes. Paths are mapped to names: otherwise the module has them.
_FLAGS = (
    "--edition=2021",
    f"--target={_TARGET}",
    "-Copt-level=s",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    "-Cstrip=symbols",
)


def compile(source: Path, module: Path, scratch: Path) -> None:
    """Compile *source* to *module*."""
    rustc, library = _rustc(scratch)
    sdk = find_shared("agents/sdk/rust")
    shared = [
        rustc,
        *_FLAGS,
        *_linker(library),
        f"--remap-path-prefix={sdk}=caxton",
        f"--remap-path-prefix={source.parent}=agent",
        f"--remap-path-prefix={scratch}=build",
    ]
    caxton = scratch / "libcaxton.rlib"
    call(
        [*shared, "--crate-type=rlib", "-o", str(caxton), str(sdk / "caxton.rs")],
        folder=scratch,
        failed="the SDK for Rust cannot be compiled",
        fix="install caxton-host again, and Rust 1.63 or newer",
    )
    call(
        [
            *shared,
            "--crate-type=cdylib",
            "--crate-name=agent",
            "-Clto=fat",
            f"--extern=caxton={caxton}",
            "-o",
            str(module),
            str(source),
        ],
        folder=source.parent,
        failed=f"the compiler refused {source.name}",
        fix=f"change {source.name}; caxton.rs documents what an agent can call",
    )


def _rustc(scratch: Path) -> tuple[str, Path]:
    """Return a compiler, and the folder of its library for the target."""
    found = False
    for rustc in _candidates():
        found = True
        try:
            said = call(
                [rustc, "--print=target-libdir", f"--target={_TARGET}"],
                folder=scratch,
                failed=f"{rustc} does not know {_TARGET}",
                fix="install another",
            )
        except UsageError:  # One that rustup left without a toolchain, or very old.
            continue
        library = Path(said)
        if any(library.glob("libstd-*.rlib")):
            return rustc, library
    raise UsageError(
        f"rustc is here, but not the standard library of {_TARGET}"
        if found
        else "the Rust compiler is not installed",
        fix=_INSTALL,
    )


def _candidates() -> Generator[str]:
    folders = [*os.get_exec_path(), _ALSO]
    for folder in dict.fromkeys(folders):
        if found := shutil.which("rustc", path=folder):
            yield found


def _linker(library: Path) -> list[str]:
    # A toolchain of rustup brings the linker of its own LLVM; Debian's does not.
    if any(library.parents[1].glob("*/bin/rust-lld")):
        return []
    for name in ("wasm-ld", "rust-lld"):
        path = os.pathsep.join([*os.get_exec_path(), _ALSO])
        if found := shutil.which(name, path=path):
            return [f"-Clinker={found}"]
    raise UsageError("the linker for WebAssembly is not installed", fix=_INSTALL)
