"""How WASI programs are recognised, and what is recorded of what they are given."""

from __future__ import annotations

import pytest

from caxton_host.core.commands import Command, entry_of, is_command
from caxton_host.core.limits import COMPONENT, LARGE_MEMORY, Limits
from caxton_host.core.log.events import RunStarted, blobs_of
from caxton_host.core.sections import section

CORE = b"\0asm\1\0\0\0"
IMPORTS = b"\2\x18\1\x16wasi_snapshot_preview1"
PROGRAM = CORE + section("a", b"") + b"\1\0" + IMPORTS


@pytest.mark.parametrize(
    "module",
    [
        CORE,
        CORE + section("wasi_snapshot_preview1", b""),
        CORE + IMPORTS.replace(b"preview1", b"preview2"),
        CORE + IMPORTS[:9],
        COMPONENT + IMPORTS,
        b"",
    ],
)
def test_a_program_is_what_imports_wasi_and_nothing_else_is(module: bytes) -> None:
    assert is_command(PROGRAM)
    assert not is_command(module)


def test_a_program_has_limits_of_its_own() -> None:
    limits = Limits(scratch=7).of(PROGRAM)
    assert limits.memory == LARGE_MEMORY
    assert (limits.wasi_calls, limits.files, limits.scratch) == (10**6, 1 << 24, 7)
    assert Limits.from_payload(limits.to_payload()) == limits
    assert limits.of_command() is limits
    other = Limits().of(CORE)
    assert other.files is None
    assert not {"wasi_calls", "files", "scratch"} & other.to_payload().keys()


def test_the_entry_point_of_a_program_is_start_unless_another_is_named() -> None:
    assert entry_of(PROGRAM, "run") == "_start"
    assert entry_of(PROGRAM, "main") == "main"
    assert entry_of(CORE, "run") == "run"


def test_a_command_is_read_as_it_was_recorded() -> None:
    command = Command(args=("a", "b"), env={"A": "b"}, files={"x": "12"})
    assert Command.from_payload(command.to_payload()) == command
    assert Command.from_payload(None) == Command()


def test_the_files_of_a_program_are_blobs_of_its_run() -> None:
    """Law 5: without them, nothing replays."""
    started = RunStarted(
        agent="a",
        actor={},
        module_sha256="01",
        abi="wasi/1",
        entry="_start",
        input=None,
        context={},
        limits={},
        seed="00",
        grants={},
        grants_sha256="",
        catalogue={},
        servers={},
        host=None,
        engine="",
        command=Command(files={"x": "12", "y": "34"}).to_payload(),
    )
    assert blobs_of(started) == {"01", "12", "34"}
