"""Where guests are executed, and the host functions that they can call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..core.limits import Limits


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a host function gives a guest.

    Attributes:
        status: 0 ok, 1 tool error, 2 denied, 3 failed, 4 bad request.

        reply: msgpack.

        at: When it was recorded: the guest's ``now()`` from then on. 0 if nothing was
            recorded.

        seed: 32 bytes, the seed of ``random()`` from then on; empty to keep the seed.
    """

    status: int
    reply: bytes
    at: int
    seed: bytes = b""


class Door(Protocol):
    """The host's side of a guest's host functions. An exception ends the run."""

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """
        Carry out a tool call.

        Args:
            name: The exposed name, as the guest wrote it, at most 64 KiB.

            params: msgpack, of any quality. More than ``Limits.params`` allows
                arrives as that many bytes, its length in 8 bytes (big-endian), and
                its SHA-256 in 32 bytes.

            fuel: The fuel that the guest has used so far.
        """
        ...

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """
        Carry out a batch of tool calls.

        Args:
            batch: msgpack, of any quality. More than `codec.BATCH_BYTES` arrives
                cut in the same way.

            fuel: The fuel that the guest has used so far.
        """
        ...

    def log(self, level: int, text: bytes) -> None:
        """Take a log line. Levels are 0 debug, 1 info, 2 warning, 3 error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """
    A module that passed the checks and is compiled.

    Attributes:
        sha256: Digest of the module's bytes, in hex.

        abi: ``core/1``, ``component/1`` or ``wasi/1``.

        engine: Version and configuration it was compiled for. Fuel is exact
            between equal ones.

        key: Names the artifact within the sandbox.
    """

    sha256: str
    abi: str
    engine: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """
    What one execution of a module is given.

    Attributes:
        domain: Guests of different trust domains never share a worker.

        level: How many runs wait for the run of the guest, one for another.

        entry: The exported function to call.

        limits: What it may use.

        input: The result of ``input()``, as msgpack.

        context: The results of ``context(key)`` by key, as msgpack.

        tools: The result of ``tools()``, as msgpack.

        program: The result of ``program()``, as msgpack: nil, or what a runtime is to
            execute.

        command: What a WASI program is given, as msgpack: nil, or a map of ``args``,
            ``env`` and ``files``, the path of each to its bytes.

        seed: 32 bytes, the seed of ``random()``.

        seeds: The seeds after that many calls, of a run that was forked there. They
            reach the guest with an `Answer`.

        now: The result of ``now()`` before the first reply, in microseconds.
    """

    domain: str
    entry: str
    limits: Limits
    input: bytes
    context: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tools: bytes = b"\x90"
    program: bytes = b"\xc0"
    level: int = 0
    command: bytes = b"\xc0"
    seed: bytes
    seeds: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """
    How a guest ended by itself, or by one of its own limits.

    Attributes:
        kind: ``returned``; ``trap``: it did something that is forbidden; ``limit``.

        code: The exit code that it returned.

        limit: Which limit: ``fuel``, ``compute``, ``host_calls``, ``memory``,
            ``output``, ``wasi_calls``; ``stack`` of an interpreter.

        message: The trap in words, or the guest's own message when it failed.

        output: The last output it set, or ``None``.

        fuel: The fuel that it used; ``None`` if a clock ended it.
    """

    kind: Literal["returned", "trap", "limit"]
    code: int = 0
    limit: str = ""
    message: str = ""
    output: bytes | None = None
    fuel: int | None = None


class Sandbox(Protocol):
    """A place where a guest can only compute and call its host functions."""

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """
        Check and compile a module, or find it compiled.

        Args:
            module: Its bytes, of any quality.

            limits: What it may require, and what compiling it may cost.

            entry: The function it must export, without parameters. It returns an i32;
                that of a component returns a ``result<_, string>``, and that of a WASI
                program nothing.

        Raises:
            ModuleRefused: It is not a module, or requires too much.
        """
        ...

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """
        Execute a guest once, from a fresh instance, and return how it ended.

        Cancelling this stops the guest, wherever it is, within 100 ms.

        Raises:
            SandboxError: Its worker died.

            Exception: Raised by *door*; the guest is stopped.
        """
        ...
