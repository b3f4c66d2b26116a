"""
A Merkle tree that grows in its own process, in parallel to the check of the chains.

    python -I -m caxton_host.store.merkle_process

Both are limited by the interpreter, and independent of each other. Each message follows
its length: first a frontier to continue from, then lists of hashes; the frontier is
returned for an empty list. Until the process has surely started, the tree grows in this
one.
"""

from __future__ import annotations

import marshal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import IO, Any, Self, cast

from ..core.log.tree import Frontier
from ..errors import StoreError

_LENGTH = struct.Struct(">I")
_PEAK = 32
#: Leaves that are added in this process: as many as are checked while the other starts.
_FIRST = 30_000


class Apart:
    """
    A growing `Frontier` in another process. To be closed.

    Args:
        start: The tree to continue.

    Attributes:
        size: The number of its leaves.
    """

    def __init__(self, start: Frontier | None = None) -> None:
        self._here: Frontier | None = start.copy() if start else Frontier()
        self.size = self._here.size
        self._until = self.size + _FIRST
        self._process = subprocess.Popen(  # noqa: S603 -- this very module
            [sys.executable, "-I", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C stops this process, which ends the other
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def extend(self, hashes: Sequence[object]) -> None:
        """
        Add a leaf for each of *hashes*.

        Raises:
            TypeError: One of them is not bytes; none was added.

            StoreError: The process is gone.
        """
        if not {*map(type, hashes)} <= {bytes}:
            raise TypeError("a hash is bytes")
        self.size += len(hashes)
        if self._here is not None:
            self._here.extend(cast("Sequence[bytes]", hashes))
            if self.size >= self._until:
                self._send((self.size, self._here.peaks))
                self._here = None
        elif hashes:
            self._send([*hashes])

    def ask(self) -> Callable[[], Frontier]:
        """Request the tree as it is now, and return how to fetch it."""
        if self._here is not None:
            tree = self._here.copy()
            return lambda: tree
        self._send([])
        return partial(self._answer, self.size)

    def _answer(self, size: int) -> Frontier:
        length = _PEAK * size.bit_count()
        found = _opened(self._process.stdout).read(length)
        if len(found) != length:
            raise _gone()
        return Frontier.parse(size, found)

    def _send(self, what: list[object] | tuple[int, list[bytes]]) -> None:
        pipe, data = _opened(self._process.stdin), marshal.dumps(what)
        try:
            pipe.write(_LENGTH.pack(len(data)) + data)
            pipe.flush()
        except (BrokenPipeError, ValueError):  # closed by the process, or by us
            raise _gone() from None


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 -- as it was started
    return pipe


def _gone() -> StoreError:
    return StoreError("the process that grows the tree is gone", fix="try again")


def _messages(source: IO[bytes]) -> Iterator[Any]:
    while head := source.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(head)
        yield marshal.loads(source.read(length))  # noqa: S302 -- from our parent


def main() -> None:
    """Grow a tree from the messages on stdin."""
    answers, tree = sys.stdout.buffer, Frontier()
    messages = _messages(sys.stdin.buffer)
    for size, peaks in islice(messages, 1):
        tree = Frontier(size, peaks)
    for hashes in messages:
        tree.extend(hashes)
        if not hashes:
            answers.write(tree.to_bytes())
            answers.flush()


if __name__ == "__main__":
    main()
