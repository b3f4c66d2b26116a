"""
Give a module the memory that it has after it loaded sources.

The module is executed once, at the build, in the sandbox: its export ``prepare`` reads
what it loads from the host function ``program``, and outputs its whole memory. So code
of an author that runs at a build is confined like any guest, and always sees the same
time and randomness.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..core.limits import Limits
from ..core.sections import leb128
from ..errors import UsageError
from ..lib import codec
from ..ports.sandbox import Ending, Guest
from ..sandbox import WasmSandbox
from ..sandbox.binary import HEADER, Reader
from .closed_door import ClosedDoor

_ENTRY = "prepare"
_MIB = 1024 * 1024
_LIMITS = Limits(
    module=128 * _MIB,
    memory=256 * _MIB,
    output=256 * _MIB,
    compute=60.0,
    fuel=500_000_000_000,
)
_MEMORY, _EXPORTS, _DATA, _DATA_COUNT = 5, 7, 11, 12
#: Zeros between two parts of memory that cost more than a part of its own.
_FILLED = re.compile(rb"[^\0]+(?:\0{1,16}[^\0]+)*")


def remember(
    module: bytes, given: object, cache: Path, *, exports: Collection[str]
) -> bytes:
    """
    Return *module* with the memory that it has when it has loaded *given*.

    Args:
        module: A core module of `caxton_host.building.javascript`.

        given: A value of msgpack, that of its host function ``program``.

        cache: The folder of what was compiled.

        exports: The names that the new module exports, of those of *module*.

    Raises:
        UsageError: It could not load them. The message is its own.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        job = _prepare(module, codec.encode(given), cache, _key(cache))
        ending = thread.submit(asyncio.run, job).result()
    if ending.kind != "returned" or ending.code or ending.output is None:
        raise UsageError(ending.message or f"over the limit {ending.limit}", fix="")
    return _with_memory(module, ending.output, exports)


async def _prepare(module: bytes, given: bytes, cache: Path, key: bytes) -> Ending:
    async with WasmSandbox(cache / "compiled", key, workers=1) as sandbox:
        prepared = await sandbox.prepare(module, _LIMITS, _ENTRY)
        guest = Guest(
            domain="build",
            entry=_ENTRY,
            limits=_LIMITS,
            input=codec.encode(None),
            program=given,
            seed=bytes(32),
            now=0,
        )
        return await sandbox.run(prepared, guest, ClosedDoor())


def _key(cache: Path) -> bytes:
    """Return the key of the cache: only this machine's own code is executed."""
    path = cache / "key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


def _with_memory(module: bytes, memory: bytes, exports: Collection[str]) -> bytes:
    parts = [(one.start(), one.group()) for one in _FILLED.finditer(memory)]
    data = b"".join(
        b"\0\x41" + _signed(at) + b"\x0b" + _vector(part) for at, part in parts
    )
    changed = {
        _MEMORY: b"\1\0" + leb128(len(memory) // 65536),
        _DATA: leb128(len(parts)) + data,
        _DATA_COUNT: leb128(len(parts)),
    }
    made = [module[: len(HEADER)]]
    for number, content in _sections(module):
        if number == _EXPORTS:
            changed[number] = _kept(content, exports)
        made += bytes([number]), _vector(changed.get(number, content))
    return b"".join(made)


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    reader = Reader(module, len(HEADER), len(module))
    while reader.left:
        number = reader.byte()
        yield number, reader.take(reader.u32())


def _kept(content: bytes, names: Collection[str]) -> bytes:
    reader = Reader(content, 0, len(content))
    kept: list[bytes] = []
    for _ in range(reader.u32()):
        start, name = reader.position, reader.name()
        reader.byte()
        reader.u32()
        if name in names:
            kept.append(content[start : reader.position])
    return leb128(len(kept)) + b"".join(kept)


def _vector(content: bytes) -> bytes:
    return leb128(len(content)) + content


def _signed(value: int) -> bytes:
    """Return a number as LEB128 whose last byte must not look negative."""
    encoded = leb128(value)
    if encoded[-1] & 0x40:  # the sign
        encoded = encoded[:-1] + bytes([encoded[-1] | 0x80, 0])
    return encoded
