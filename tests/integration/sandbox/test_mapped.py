"""Large artifacts: one sealed copy a host, which workers map."""

# ruff: noqa: ASYNC240 -- the files are small, and nobody else waits
from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from caxton_host.core.limits import Limits
from caxton_host.core.sections import INTERPRETER, section
from caxton_host.sandbox import WasmSandbox, abi, artifacts, compiler
from caxton_host.sandbox.artifacts import MAC_SIZE, Artifact, Cache, Draft
from caxton_host.sandbox.compiler import Compiler
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.settings import settings_for
from tests.components import component

from .support import (
    CALL,
    ECHO,
    KEY,
    SOON,
    FakeDoor,
    alive,
    execute,
    guest,
    never,
    until,
    wasm,
    workers,
)

MARK = section(INTERPRETER, b"")
ONE, TWO = wasm("(i32.const 1)") + MARK, wasm("(i32.const 2)") + MARK
WAIT = wasm(f"(drop {CALL}) (i32.const 0)", before=ECHO) + MARK
#: A core module, whose worker may open no file, so that it is sent.
SENT = wasm("(i32.const 0)")
SETTINGS = settings_for(Limits())


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Map every artifact, as if it were large."""
    monkeypatch.setattr(artifacts, "MAPPED", 1)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


async def artifact(cache: Path, module: bytes = ONE) -> tuple[Artifact, int]:
    """Return an artifact and its descriptor."""
    made = await Compiler(cache, KEY).artifact(module, Limits(), SETTINGS)
    assert made.descriptor is not None
    assert not made.data
    return made, made.descriptor


def descriptors() -> int:
    """Return how many descriptors are open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def contents(of: Artifact) -> bytes:
    with of.view() as view:
        return bytes(view)


@pytest.mark.parametrize("module", [SENT, SENT + MARK, component("")])
async def test_guest_runs_from_a_large_artifact(cache: Path, module: bytes) -> None:
    endings = []
    for _ in range(2):
        async with WasmSandbox(cache, KEY) as sandbox:
            endings += [await execute(sandbox, module) for _ in range(2)]

    assert endings == [endings[0]] * 4
    assert (endings[0].kind, endings[0].code) == ("returned", 0)


def drafted(data: bytes = b"native code") -> Artifact:
    with Draft() as draft:
        draft.write(data)
        return draft.sealed("key")


# law 1: what is checked is what is used
@pytest.mark.parametrize(
    "change",
    [
        lambda fd: os.write(fd, b"1"),
        lambda fd: os.pwrite(fd, b"1", 0),
        lambda fd: os.ftruncate(fd, 0),
        lambda fd: os.ftruncate(fd, 1 << 20),
        lambda fd: mmap.mmap(fd, 0, access=mmap.ACCESS_WRITE),
        lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL),
    ],
    ids=["append", "overwrite", "shrink", "grow", "map", "seal"],
)
def test_sealed_artifact_cannot_be_changed(change: Callable[[int], object]) -> None:
    made = drafted()

    with pytest.raises(PermissionError):
        change(made.descriptor or 0)

    assert contents(made) == b"native code"
    made.close()


async def test_file_that_is_altered_after_the_check_changes_nothing(
    cache: Path,
) -> None:
    async with WasmSandbox(cache, KEY) as sandbox:
        prepared = await sandbox.prepare(ONE, Limits(), "run")
        (cache / prepared.key.partition("/")[0]).write_bytes(bytes(100_000))

        ending = await sandbox.run(prepared, guest(), FakeDoor())

    assert (ending.kind, ending.code) == ("returned", 1)


@pytest.mark.parametrize(
    "alter",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:MAC_SIZE],
    ],
    ids=["a bit", "cut", "longer", "empty"],
)
def test_file_that_is_altered_before_the_check_counts_as_missing(
    cache: Path, alter: Callable[[bytes], bytes]
) -> None:
    subject, made = Cache(cache, KEY), drafted()
    subject.write(made)
    file = cache / made.key
    whole = file.read_bytes()
    before = descriptors()

    file.write_bytes(alter(whole))
    assert subject.read(made.key) is None
    assert descriptors() == before

    file.write_bytes(whole)
    found = subject.read(made.key)
    assert found == made
    assert contents(found) == contents(made)
    found.close()
    made.close()


def test_a_cache_keeps_the_files_that_were_used_last(cache: Path) -> None:
    subject = Cache(cache, KEY, most=2)
    for age, key in enumerate("cba"):
        subject.write(Artifact(key=key, data=key.encode()))
        os.utime(cache / key, (100 - age, 100 - age))
        if key == "b":
            assert subject.read("b")
    assert {file.name for file in cache.iterdir()} == {"b", "a"}


async def test_file_that_is_altered_before_the_check_is_compiled_again(
    cache: Path,
) -> None:
    good, _ = await artifact(cache)
    file = cache / good.key
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])

    made, _ = await artifact(cache)

    assert contents(made) == contents(good)
    assert file.read_bytes() == whole
    good.close()
    made.close()


async def test_worker_maps_the_sealed_file_and_copies_nothing(cache: Path) -> None:
    made, descriptor = await artifact(cache)
    engine = build_engine(SETTINGS)

    module = abi.deserialize(engine, f"/proc/self/fd/{descriptor}")
    made.close()

    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line.split() for line in maps if "memfd:artifact" in line]
    # Executable, private, and shared with every other process until it is written.
    assert {permissions for _, permissions, *_ in mapped} >= {"r-xp"}
    assert len(module.exports) == 2


async def test_host_holds_one_copy_until_it_closes(cache: Path) -> None:
    async with WasmSandbox(cache, KEY) as sandbox:
        for calls in (1, 2):
            await execute(sandbox, ONE, limits=Limits(total_calls=calls))
        (made,) = sandbox._compiler._mapped.values()
        descriptor = made.descriptor or 0
        found = await asyncio.gather(
            *(sandbox._compiler.find(made.key) for _ in range(2))
        )
        assert found == [made, made]
        assert os.fstat(descriptor).st_nlink == 0
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


async def test_two_readers_of_a_file_keep_one_descriptor(cache: Path) -> None:
    made, _ = await artifact(cache)
    made.close()
    subject = Compiler(cache, KEY)

    first, second = await asyncio.gather(*(subject.find(made.key) for _ in range(2)))

    assert first is second
    subject.close()


async def test_guest_gets_a_worker_that_has_mapped_its_artifact(cache: Path) -> None:
    async with WasmSandbox(cache, KEY) as sandbox:
        codes = [(await execute(sandbox, one)).code for one in (ONE, TWO, ONE, TWO)]
        assert codes == [1, 2, 1, 2]
        assert len(workers(sandbox)) == 2


async def test_unused_worker_of_the_domain_makes_place_for_another_artifact(
    cache: Path,
) -> None:
    async with WasmSandbox(cache, KEY, workers=2) as sandbox:
        await execute(sandbox, ONE, domain="other")
        await execute(sandbox, ONE)
        kept, ended = workers(sandbox)
        assert (await execute(sandbox, TWO)).code == 2
        await until(lambda: not alive(ended))
        assert alive(kept)


async def test_guest_of_another_artifact_waits_for_a_place(cache: Path) -> None:
    async with WasmSandbox(cache, KEY, workers=1) as sandbox:
        first = asyncio.ensure_future(execute(sandbox, WAIT, door := FakeDoor(never)))
        async with asyncio.timeout(SOON):
            await door.called.wait()
        second = asyncio.ensure_future(execute(sandbox, TWO))
        await asyncio.sleep(0.1)
        assert not second.done()
        first.cancel()
        assert (await second).code == 2
        await asyncio.wait({first})


async def test_system_without_sealed_files_sends_large_artifacts(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "CAN_SEAL", False)

    for _ in range(2):
        made = await Compiler(cache, KEY).artifact(ONE, Limits(), SETTINGS)
        assert made.descriptor is None
        assert made.data
    async with WasmSandbox(cache, KEY) as sandbox:
        assert (await execute(sandbox, ONE)).code == 1


async def test_refused_module_leaves_no_descriptor(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    monkeypatch.setattr(compiler, "_judge", _refuse)

    with pytest.raises(ValueError, match="refused"):
        await artifact(cache)

    assert descriptors() == before


def _refuse(*_: object) -> None:
    raise ValueError("refused")
