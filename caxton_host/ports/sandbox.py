"""Where guests are executed, and the door that they have."""

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

        at: When it was recorded; the guest's ``now()`` from here on. 0 if nothing
            was.

        seed: 32 bytes that ``random()`` grows from from here on, or none: as before.
    """

    status: int
    reply: bytes
    at: int
    seed: bytes = b""


class Door(Protocol):
    """The host's side of a guest's host functions. Whatever it raises ends the run."""

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """
        Carry out a tool call.

        Args:
            name: The exposed name, as the guest wrote it, at most 64 KiB.

            params: msgpack, of any quality. More than ``Limits.params`` allows
                arrives as that many bytes, 8 that say how many it has, the first
                the highest, and the 32 of its SHA-256.

            fuel: What the guest has burnt so far.
        """
        ...

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """
        Carry out a batch of tool calls.

        Args:
            batch: msgpack, of any quality. More than `codec.BATCH_BYTES` arrives
                cut in the same way.

            fuel: What the guest has burnt so far.
        """
        ...

    def log(self, level: int, text: bytes) -> None:
        """Take a log line. Levels are 0 debug, 1 info, 2 warning, 3 error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """
    A module that the gate let pass and that is compiled.

    Attributes:
        sha256: Digest of the module's bytes, in hex.

        abi: ``core/1`` or ``component/1``.

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

        entry: The exported function to call.

        input: msgpack; what ``input()`` gives.

        context: Key to msgpack; what ``context(key)`` gives.

        tools: msgpack; what ``tools()`` gives.

        seed: 32 bytes; what ``random()`` grows from.

        seeds: What it grows from instead after that many calls: of a run that was
            forked there. The door hands them out.

        now: Microseconds; what ``now()`` gives before the first reply.
    """

    domain: str
    entry: str
    limits: Limits
    input: bytes
    context: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tools: bytes = b"\x90"
    seed: bytes
    seeds: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """
    How a guest ended by itself, or by one of its own limits.

    Attributes:
        kind: ``returned``; ``trap``: it did what no guest may; ``limit``.

        code: What it returned.

        limit: Which limit: ``fuel``, ``compute``, ``host_calls``, ``memory``.

        message: The trap, in words, or what it said of itself when it failed.

        output: The last output it set, or ``None``.

        fuel: What it burnt; ``None`` where a clock ended it.
    """

    kind: Literal["returned", "trap", "limit"]
    code: int = 0
    limit: str = ""
    message: str = ""
    output: bytes | None = None
    fuel: int | None = None


class Sandbox(Protocol):
    """A place where a guest can do nothing but compute and use its door."""

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """
        Check and compile a module, or find it compiled.

        Args:
            module: Its bytes, of any quality.

            limits: What it may ask for, and what compiling it may cost.

            entry: The function it must export, without parameters, giving an i32; of
                a component, a ``result<_, string>``.

        Raises:
            ModuleRefused: It is not a module, or asks for too much.
        """
        ...

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """
        Execute a guest once, from a fresh instance, and return how it ended.

        Cancelling this stops the guest, wherever it is, within 100 ms.

        Raises:
            SandboxError: Its worker died.

            Exception: Whatever the door raised; the guest is stopped.
        """
        ...
