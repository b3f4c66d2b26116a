"""A core module whose functions of WASI a test calls itself, one by one."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import wasmtime

from caxton_host.core.commands import MODULE
from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.sandbox import wasi
from caxton_host.sandbox.engine import build_engine, context_of
from caxton_host.sandbox.interface import WASI_FUNCTIONS
from caxton_host.sandbox.session import _entered
from caxton_host.sandbox.settings import settings_for
from caxton_host.sandbox.wasi_files import Errno
from caxton_host.sandbox.wire import End, Start

from .support import SEED
from .test_abi import FakeHost

#: Bytes of its memory; the test uses the first page as it likes.
MEMORY = 32 * 1024 * 1024
ROOT = 3
PATH, OUT, DATA = 1024, 2048, 65536
CREATE, FOLDER, EXCLUSIVE, TRUNCATE = 1, 2, 4, 8
READ, WRITE = 1 << 1, 1 << 6


def types_of(name: str) -> list[str]:
    """Return the types of what a function is given."""
    parameters = WASI_FUNCTIONS[name].partition(" -> ")[0].strip("()")
    return parameters.split(", ") if parameters else []


def _wat(name: str) -> tuple[str, str]:
    """Return the import of a function, and a function that forwards to it."""
    result = WASI_FUNCTIONS[name].partition(" -> ")[2]
    types = types_of(name)
    shape = "".join(f"(param {one})" for one in types)
    shape += "" if result == "()" else f"(result {result})"
    given = "".join(f"(local.get {n})" for n in range(len(types)))
    return (
        f'(import "{MODULE}" "{name}" (func ${name} {shape}))',
        f'(func (export "{name}") {shape} (call ${name} {given}))',
    )


@functools.cache
def _compiled() -> tuple[wasmtime.Engine, wasmtime.InstancePre]:
    imports, functions = zip(*map(_wat, WASI_FUNCTIONS), strict=True)
    pages = MEMORY // 65536
    text = f"""(module {"".join(imports)}
      (memory (export "memory") {pages} {pages})
      {"".join(functions)} (func (export "_start")))"""
    built = build_engine(settings_for(Limits(memory=MEMORY)))
    module = wasmtime.Module(built, bytes(wasmtime.wat2wasm(text)))
    return built, wasi.link(built).instantiate_pre(module)


class Caller:
    """
    A program that is at the mercy of a test.

    Attributes:
        session: Its host functions, as a worker has them.

        host: What they tell the host.
    """

    def __init__(self, store: wasmtime.Store, session: wasi.Session) -> None:
        _, pre = _compiled()
        self.session = session
        self.host: Any = session.host
        self._store = store
        self._instance = pre.instantiate(store)
        self._exports = self._instance.exports(store)
        self.memory: Any = self._exports["memory"]

    def __call__(self, name: str, *given: int) -> int:
        """Call a function of WASI, and return its error number."""
        function: Any = self._exports[name]
        types = types_of(name)
        values = [_signed(*one) for one in zip(given, types, strict=False)]
        try:
            return int(function(self._store, *values) or 0)
        except (wasmtime.Trap, wasmtime.WasmtimeError):
            raise Stopped from None

    def put(self, place: int, data: bytes) -> tuple[int, int]:
        """Write to memory, and return place and length."""
        self.memory.write(self._store, data, place)
        return place, len(data)

    def get(self, place: int, length: int) -> bytes:
        """Read from memory."""
        return bytes(self.memory.read(self._store, place, place + length))

    def number(self, place: int = OUT, size: int = 4) -> int:
        """Read a number from memory."""
        return int.from_bytes(self.get(place, size), "little")

    # What most tests do.

    def open(
        self,
        path: str | bytes,
        how: int = 0,
        rights: int = READ,
        *,
        base: int = ROOT,
        flags: int = 0,
    ) -> int:
        """Return a new descriptor, or raise the error number."""
        name = path.encode() if isinstance(path, str) else path
        place = self.put(PATH, name)
        checked(
            self("path_open", base, 0, *place, how, rights, 0, flags, OUT),
        )
        return self.number()

    def path(self, function: str, path: str, *rest: int, base: int = ROOT) -> None:
        """Call a function with a path."""
        checked(self(function, base, *self.put(PATH, path.encode()), *rest))

    def write(self, descriptor: int, data: bytes) -> int:
        """Write, and return how many bytes were taken."""
        self.put(OUT, struct.pack("<II", *self.put(DATA, data)))
        checked(self("fd_write", descriptor, OUT, 1, OUT + 8))
        return self.number(OUT + 8)

    def read(self, descriptor: int, most: int = 4096) -> bytes:
        """Read on."""
        self.put(OUT, struct.pack("<II", DATA, most))
        checked(self("fd_read", descriptor, OUT, 1, OUT + 8))
        return self.get(DATA, self.number(OUT + 8))

    def names(self, descriptor: int, room: int = 4096) -> list[str]:
        """Return the names in a folder, by as many calls as that takes."""
        found: list[str] = []
        cookie = 0
        while True:
            checked(self("fd_readdir", descriptor, DATA, room, cookie, OUT))
            data = self.get(DATA, self.number())
            at = 0
            while at + 24 <= len(data):
                following, _, size, _ = struct.unpack_from("<QQIB", data, at)
                if at + 24 + size > len(data):
                    break
                found.append(data[at + 24 : at + 24 + size].decode())
                cookie, at = following, at + 24 + size
            if len(data) < room:
                return found


def _signed(value: int, type_: str) -> int:
    """Return a number as wasmtime wants it."""
    bits = int(type_.removeprefix("i"))
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


class Stopped(Exception):  # noqa: N818 -- no error
    """The program was stopped: the session says why."""


class WasiErrno(Exception):  # noqa: N818 -- a number
    """A function returned an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(Errno(number).name)
        self.number = Errno(number)


def checked(number: int) -> None:
    """Raise an error number that is not 0."""
    if number:
        raise WasiErrno(number)


@contextmanager
def caller(
    limits: Limits | None = None,
    **given: Any,  # noqa: ANN401 -- by name
) -> Iterator[Caller]:
    """Yield a program that was given these ``args``, ``env``, ``files``."""
    start = Start(
        module="",
        memory=MEMORY,
        entry="_start",
        limits=limits or Limits(),
        input=codec.encode(given.pop("input", None)),
        context={},
        tools=b"\x90",
        program=b"\xc0",
        seed=SEED,
        now=given.pop("now", 5),
        command=codec.encode(given),
    )
    built, _ = _compiled()
    session = wasi.Session(start, FakeHost())
    with wasmtime.Store(built) as store:
        store.set_fuel(session.fuel)
        store.set_epoch_deadline(1 << 40)
        session.context = context_of(store)
        with _entered(session):
            yield Caller(store, session)


def ended(one: Caller) -> End:
    """Return how a program ends that returns now."""
    return one.session.finished(one.session.stop or End(kind="returned"))
