"""
A Merkle tree that grows in a process of its own, beside the check of the chains.

    python -I -m caxton_host.store.apart

Both are bound by the interpreter, and neither needs the other. Lists of hashes come in,
each behind its length; an empty one is answered by the root.
"""

from __future__ import annotations

import marshal
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Self

from ..core.tree import Frontier
from ..errors import StoreError

__all__ = ["Apart"]

_LENGTH = struct.Struct(">I")
_ROOT = 32


class Apart:
    """
    What a `Frontier` is to those who only let it grow. To be closed.

    Attributes:
        size: How many leaves it has.
    """

    def __init__(self) -> None:
        self.size = 0
        self._process = subprocess.Popen(  # noqa: S603 -- this very module
            [sys.executable, "-I", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; it ends when we do
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
            TypeError: One of them is no bytes; none was added.

            StoreError: The process is gone.
        """
        if not all(isinstance(one, bytes) for one in hashes):
            raise TypeError("a hash is bytes")
        if hashes:
            self._send([*hashes])
        self.size += len(hashes)

    def root(self) -> bytes:
        """Return the hash of the whole tree; see `extend` for what it raises."""
        self._send([])
        found = _opened(self._process.stdout).read(_ROOT)
        if len(found) != _ROOT:
            raise _gone()
        return found

    def _send(self, hashes: list[object]) -> None:
        pipe, data = _opened(self._process.stdin), marshal.dumps(hashes)
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


def main() -> None:
    """Grow a tree from what stdin holds."""
    tree, source, answers = Frontier(), sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(head)
        hashes = marshal.loads(source.read(length))  # noqa: S302 -- from our parent
        tree.extend(hashes)
        if not hashes:
            answers.write(tree.root())
            answers.flush()


if __name__ == "__main__":
    main()
