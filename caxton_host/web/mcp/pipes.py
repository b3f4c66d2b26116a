"""
An MCP server on stdin and stdout: what goes in and out as lines, to one client.

They are read and written on the loop: three hops to a thread for each message would
cost more than deciding about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
)
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio
import mcp_types as types
from anyio.abc import ObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ...errors import BadBytes
from ...lib.codec import load_json

_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: Bytes of a message; the rest of a longer line is dropped, so that it is not JSON.
LONGEST = 16 << 20
#: Bytes that one read gets at most, and that a descriptor which is ready takes without
#: blocking: a pipe then has room for that much. A file may block.
_READ, _WRITE = 1 << 18, select.PIPE_BUF

#: What arrives, and a stream for what is sent, whose type the SDK keeps to itself.
_Streams: TypeAlias = tuple[AsyncIterable[SessionMessage | Exception], Any]
_NOT_JSON = types.ErrorData(code=types.PARSE_ERROR, message="that line is not JSON")
_NO_MESSAGE = types.ErrorData(
    code=types.INVALID_REQUEST, message="that line is not a JSON-RPC 2.0 message"
)


async def over_stdio(server: Server[Any]) -> None:
    """
    Answer one client on stdin and stdout, until it closes stdin.

    Raises:
        BrokenPipeError: It no longer reads stdout.
    """
    put, messages = anyio.create_memory_object_stream[SessionMessage]()
    try:
        async with (
            _claimed() as (read, write),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(answer_invalid, read, write.send, put)
            initial = server.create_initialization_options()
            await server.run(messages, write, initial)
    except ExceptionGroup as exc:
        if exc.split(BrokenPipeError)[1] is None:
            raise BrokenPipeError from None
        raise


async def answer_invalid(
    read: AsyncIterable[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
    messages: ObjectSendStream[SessionMessage],
) -> None:
    """Pass on valid messages in order, and answer invalid ones with an error."""
    async with messages:
        async for item in read:
            if isinstance(item, SessionMessage):
                await messages.send(item)
            else:
                error = types.JSONRPCError(jsonrpc="2.0", id=None, error=_fault(item))
                await answer(SessionMessage(error))


def _fault(exc: Exception) -> types.ErrorData:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_input=False, include_context=False)[0]
        if first["type"] != "json_invalid":
            return _NO_MESSAGE
    return _NOT_JSON


@asynccontextmanager
async def _claimed() -> AsyncGenerator[_Streams]:
    with (
        contextlib.closing(os.fdopen(os.open(os.devnull, os.O_RDONLY))) as nothing,
        claimed(_STDIN, nothing.fileno()) as stdin,
        claimed(_STDOUT, _STDERR) as stdout,
    ):
        # The SDK takes whatever has the methods of files that it uses.
        files = cast("Any", checked(Lines(stdin))), cast("Any", Out(stdout))
        async with stdio_server(*files) as streams:
            yield streams


async def checked(lines: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Replace each line that the log could not hold, or that says something twice."""
    async for line in lines:
        try:
            load_json(line, limit=LONGEST)
        except BadBytes:
            yield b"not JSON"
        else:
            yield line


@contextlib.contextmanager
def claimed(fd: int, instead: int) -> Generator[int]:
    """Return what *fd* was; stray output and children get *instead* meanwhile."""
    private = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    os.dup2(instead, fd)
    try:
        yield private
    finally:
        os.dup2(private, fd)
        os.close(private)


class Lines:
    """The lines of a descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        line = bytearray()
        while True:
            await _ready(self._fd, loop.add_reader, loop.remove_reader)
            if not (data := os.read(self._fd, _READ)):
                break
            first, *more = data.split(b"\n")
            line += first[: LONGEST - len(line)]
            for part in more:
                yield bytes(line)
                line = bytearray(part)
        if line:
            yield bytes(line)


class Out:
    """Writes to a descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)

    async def write(self, text: str) -> None:
        """
        Write all of *text*.

        Raises:
            BrokenPipeError: The client no longer reads.
        """
        loop = asyncio.get_running_loop()
        rest = memoryview(text.encode())
        while rest:
            if not self._room.poll(0):
                await _ready(self._fd, loop.add_writer, loop.remove_writer)
            rest = rest[os.write(self._fd, rest[:_WRITE]) :]

    async def flush(self) -> None:
        """Do nothing: all of it is written."""


async def _ready(
    fd: int, add: Callable[..., None], remove: Callable[[int], bool]
) -> None:
    """Wait until *fd* is ready, without a flag that others who have it would see."""
    event = asyncio.Event()
    try:
        add(fd, event.set)
    except PermissionError:  # A file is always ready.
        return
    try:
        await event.wait()
    finally:
        remove(fd)
