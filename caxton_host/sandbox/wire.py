"""
The frames between the host and a worker, and their largest sizes.

    body length (u32)  kind (u8)  run (u32)  body

The host treats a worker as hostile: its frames are bounded here, and a frame that
breaks a rule is a `WireError`, for which the worker is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any

from ..core.limits import Limits
from ..core.names import clean_name
from ..lib import codec
from ..ports.sandbox import Answer, Ending, Guest

MODULE, START, REPLY, STOP = 1, 2, 3, 4
READY, CALL, LOG, END, CALLS = 16, 17, 18, 19, 20

# Bytes.
MAX_NAME = 64 * 1024
MAX_PARAMS = 1024 * 1024
MAX_LINE = 1024 * 1024
MAX_MESSAGE = 512
#: Of an interpreter: a traceback of its program.
MAX_REASON = 4096
#: Bytes that a short log line counts towards the limit on logs. The door, which cuts
#: and records lines, must count none for less.
LINE_COST = 16
_DIGEST = 32
#: Bytes that follow a text that was cut: its size, and its digest.
_TAIL = 8 + _DIGEST
#: Bytes of an empty inbox.
_ROOM = 64 * 1024

MAX_READY = 4096
_TO_WORKER: Mapping[int, int] = {
    MODULE: 1 << 30,
    START: 64 << 20,
    REPLY: 64 << 20,
    STOP: 0,
}

ENDS = ("returned", "trap", "limit", "stopped", "no_room", "failed")
_RETURNED = ENDS.index("returned")
LIMITS = ("fuel", "compute", "host_calls", "memory", "output", "wasi_calls")

_HEADER = Struct("<IBI")
_CALL = Struct("<QI")
_CALLS = Struct("<Q")
_REPLY = Struct("<BqB")
_END = Struct("<BBiqBH")
_UNKNOWN = -1


#: The trap of a guest whose stack is full.
STACK_OVERFLOW = "stack overflow"


class WireError(Exception):
    """The other side broke a rule of the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """
    The start of one execution, as the host sends it.

    Attributes:
        module: Key of the artifact, sent before.

        memory: Most bytes of each linear memory.
    """

    module: str
    memory: int
    entry: str
    limits: Limits
    input: bytes
    context: dict[str, bytes]
    tools: bytes
    program: bytes
    command: bytes = b"\xc0"
    seed: bytes
    now: int


@dataclass(slots=True, kw_only=True)
class End:
    """
    How an execution ended: `ports.Ending`, and the ends after which a run continues.

    Attributes:
        kind: One of `ENDS`. ``stopped``: the host asked for it; ``no_room``: no
            address space to start it; ``failed``: the worker could not.
    """

    kind: str
    code: int = 0
    limit: str = ""
    message: str = ""
    fuel: int | None = None
    output: bytes | None = None

    def ending(self) -> Ending:
        """Return the end as a `ports.Ending`."""
        assert self.kind in {"returned", "trap", "limit"}  # noqa: S101 -- no other is one
        return Ending(**asdict(self))


class Inbox:
    """
    Splits a stream of bytes into frames, and holds at most the largest frame.

    Args:
        cap: Returns the largest body of a kind, for a run; -1 if none may come. It is
            called when the header has come, before the body has.
    """

    def __init__(self, cap: Callable[[int, int], int]) -> None:
        self._cap = cap
        self._buffer = bytearray(_ROOM)
        self._view = memoryview(self._buffer)
        self._filled = 0

    @property
    def held(self) -> int:
        """How many bytes are kept, filled or not."""
        return len(self._buffer)

    def room(self) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._view[self._filled :]

    def received(self, count: int) -> Iterator[tuple[int, int, bytes]]:
        """
        Yield ``(kind, run, body)`` for each frame that *count* new bytes complete.

        Raises:
            WireError: A frame is of no kind that may come, or too large.
        """
        self._filled += count
        start, size = 0, _HEADER.size
        while self._filled - start >= _HEADER.size:
            length, kind, run = _HEADER.unpack_from(self._buffer, start)
            if length > self._cap(kind, run):
                raise WireError(f"a frame of kind {kind} and {length} bytes")
            size = _HEADER.size + length
            if self._filled - start < size:
                break
            body = bytes(self._view[start + _HEADER.size : start + size])
            start, size = start + size, _HEADER.size
            yield kind, run, body
        left = self._filled - start
        if left == len(self._buffer):
            # As the bytes come: a header alone must not reserve its megabytes.
            self._resize(min(size, 2 * left), 0, left)
        elif left <= _ROOM < len(self._buffer) and start:
            self._resize(_ROOM, start, left)
        elif start:
            self._view[:left] = self._view[start : self._filled]
        self._filled = left

    def _resize(self, size: int, start: int, left: int) -> None:
        buffer = bytearray(size)
        buffer[:left] = self._view[start : start + left]
        self._buffer, self._view = buffer, memoryview(buffer)


def to_worker(kind: int, run: int) -> int:
    """Return the largest body of a kind that a worker takes."""
    del run
    return _TO_WORKER.get(kind, _UNKNOWN)


def to_host(limits: Limits) -> Mapping[int, int]:
    """Return the largest body of each kind that the guest of a run can cause."""
    return {
        CALL: _CALL.size + MAX_NAME + params_cap(limits) + _TAIL,
        CALLS: _CALLS.size + codec.BATCH_BYTES + _TAIL,
        LOG: 1 + log_cap(limits),
        END: _END.size + MAX_REASON + limits.output,
    }


def frame(kind: int, run: int, body: bytes = b"") -> bytes:
    """Return one frame."""
    return _HEADER.pack(len(body), kind, run) + body


def module(key: str, settings: str, artifact: bytes) -> bytes:
    """Return the frame that sends a compiled module to a worker."""
    head = codec.encode([key, settings])
    return frame(MODULE, 0, len(head).to_bytes(2, "little") + head + artifact)


def read_module(body: bytes) -> tuple[str, str, bytes]:
    """Return key, settings and artifact."""
    end = 2 + int.from_bytes(body[:2], "little")
    key, settings = codec.decode_trusted(body[2:end])
    return key, settings, body[end:]


def start(run: int, key: str, memory: int, guest: Guest) -> bytes:
    """Return the frame that starts *guest*."""
    fields = {
        "module": key,
        "memory": memory,
        "entry": guest.entry,
        "limits": guest.limits.to_payload(),
        "input": guest.input,
        "context": dict(guest.context),
        "tools": guest.tools,
        "program": guest.program,
        "command": guest.command,
        "seed": guest.seed,
        "now": guest.now,
    }
    return frame(START, run, codec.encode(fields))


def read_start(body: bytes) -> Start:
    """Return the start in a frame of `start`."""
    fields: dict[str, Any] = codec.decode_trusted(body)
    fields["limits"] = Limits.from_payload(fields["limits"])
    return Start(**fields)


def call(run: int, name: bytes, params: bytes, fuel: int) -> bytes:
    """Return the frame of a tool call."""
    return frame(CALL, run, _CALL.pack(fuel, len(name)) + name + params)


def read_call(body: bytes, limits: Limits) -> tuple[bytes, bytes, int]:
    """
    Return name, params and fuel.

    Raises:
        WireError: One of them exceeds the bounds of every guest.
    """
    if len(body) < _CALL.size:
        raise WireError("a call that is cut off")
    fuel, length = _CALL.unpack_from(body)
    split = _CALL.size + length
    name, params = body[_CALL.size : split], body[split:]
    if (
        length > min(len(name), MAX_NAME)
        or len(params) > params_cap(limits) + _TAIL
        or fuel > limits.fuel
    ):
        raise WireError("a call beyond its bounds")
    return name, params, fuel


def calls(run: int, batch: bytes, fuel: int) -> bytes:
    """Return the frame of a batch of tool calls."""
    return frame(CALLS, run, _CALLS.pack(fuel) + batch)


def read_calls(body: bytes, limits: Limits) -> tuple[bytes, int]:
    """
    Return batch and fuel.

    Raises:
        WireError: One of them exceeds the bounds of every guest.
    """
    if len(body) < _CALLS.size:
        raise WireError("a batch that is cut off")
    fuel: int
    (fuel,) = _CALLS.unpack_from(body)
    if fuel > limits.fuel:
        raise WireError("a batch beyond its bounds")
    return body[_CALLS.size :], fuel


def params_cap(limits: Limits) -> int:
    """Return how many bytes of params are sent unchanged; see `abi`."""
    return min(limits.params, MAX_PARAMS - _DIGEST)


def reply(run: int, answer: Answer) -> bytes:
    """Return the frame that answers a call."""
    head = _REPLY.pack(answer.status, answer.at, len(answer.seed))
    return frame(REPLY, run, head + answer.seed + answer.reply)


def read_reply(body: bytes) -> Answer:
    """Return the answer in a frame of `reply`."""
    status, at, length = _REPLY.unpack_from(body)
    split = _REPLY.size + length
    return Answer(status, body[split:], at, body[_REPLY.size : split])


def log_cap(limits: Limits) -> int:
    """Return how many bytes of a log line are sent; one more than may be written."""
    return min(limits.log, MAX_LINE) + 1


def log(run: int, level: int, text: bytes) -> bytes:
    """Return the frame of a log line."""
    return frame(LOG, run, bytes([level]) + text)


def read_log(body: bytes) -> tuple[int, bytes]:
    """
    Return level and text.

    Raises:
        WireError: There is no such level.
    """
    if not body or body[0] > 3:  # noqa: PLR2004 -- 0 debug to 3 error
        raise WireError("a log line of an unknown level")
    return body[0], body[1:]


def end(run: int, end: End) -> bytes:
    """Return the frame of the end of a guest."""
    most = MAX_REASON if end.kind == "returned" else MAX_MESSAGE
    message = end.message.encode(errors="replace")[:most]
    head = _END.pack(
        ENDS.index(end.kind),
        LIMITS.index(end.limit) if end.limit else 0,
        end.code,
        _UNKNOWN if end.fuel is None else min(end.fuel, 2**63 - 1),
        end.output is not None,
        len(message),
    )
    return frame(END, run, head + message + (end.output or b""))


def read_end(body: bytes, limits: Limits) -> End:
    """
    Return how a guest ended.

    Raises:
        WireError: No guest can end so.
    """
    if len(body) < _END.size:
        raise WireError("an end that is cut off")
    kind: int
    limit: int
    kind, limit, code, fuel, has_output, length = _END.unpack_from(body)
    split = _END.size + length
    output = body[split:]
    if (
        kind >= len(ENDS)
        or limit >= len(LIMITS)
        or fuel > limits.fuel
        or length > MAX_REASON
        or len(output) > limits.output
    ):
        raise WireError("an end beyond its bounds")
    said = body[_END.size : split]
    # An agent's own message is kept as its text, like a log line; the rest is escaped.
    text = (
        said.decode(errors="ignore") if kind == _RETURNED else clean_name(said, length)
    )
    return End(
        kind=ENDS[kind],
        limit=LIMITS[limit] if ENDS[kind] == "limit" else "",
        code=code,
        message=text,
        fuel=None if fuel < 0 else fuel,
        output=output if has_output else None,
    )
