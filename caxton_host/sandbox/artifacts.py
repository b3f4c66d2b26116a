"""
Compiled modules: in the cache, in memory, and in sealed descriptors.

An artifact is native code, so it is used only if this host made it: what is on disk
carries a MAC under a key that no worker and no compile child ever sees. A large one is
copied into a file without a name, sealed against every change, and only then checked;
all workers map that file.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Self

from ..lib.files import replace_file

_MIB = 1024 * 1024
#: Bytes of an artifact that is mapped; smaller ones are sent to each worker.
MAPPED = 8 * _MIB
#: Bytes of any artifact: a child could otherwise fill the host's memory.
MOST = 512 * _MIB
MAC_SIZE = sha256().digest_size

#: Whether this system has files without a name that can be sealed.
CAN_SEAL = hasattr(os, "memfd_create")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """
    A compiled module.

    Attributes:
        key: Names it: equal for equal modules, engines and processors.

        data: What `wasmtime.Module.deserialize` takes; empty if it is mapped.

        descriptor: Of the sealed file that holds it instead, or ``None``.
    """

    key: str
    data: bytes = field(repr=False)
    descriptor: int | None = field(default=None, compare=False)

    @contextmanager
    def view(self) -> Generator[bytes | mmap]:
        """Hold its bytes, without a copy."""
        if self.descriptor is None:
            yield self.data
        else:
            with mmap(self.descriptor, 0, access=ACCESS_READ) as view:
                yield view

    def close(self) -> None:
        """Give its memory back. Workers that have mapped it keep it."""
        if self.descriptor is not None:
            os.close(self.descriptor)


class Draft:
    """
    An artifact that is being written, in memory or, from some size on, in a file.

    Attributes:
        data: What of it is in memory.

        size: Bytes, wherever they are.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def write(self, data: bytes | bytearray) -> None:
        """Append bytes."""
        self.size += len(data)
        if self._descriptor is None:
            self.data += data
            if self.size < MAPPED or not CAN_SEAL:
                return
            data, self.data = self.data, bytearray()
            self._descriptor = _unnamed()
        written = 0
        with memoryview(data) as rest:
            while written < len(rest):
                written += os.write(self._descriptor, rest[written:])

    def copy(self, source: int, size: int) -> None:
        """Append *size* bytes of a file, from its position on."""
        if size < MAPPED or not CAN_SEAL:
            self.write(os.read(source, size))
            return
        self._descriptor = _unnamed()
        while part := os.sendfile(self._descriptor, source, None, size - self.size):
            self.size += part

    def sealed(self, key: str) -> Artifact:
        """Return the artifact. Nobody can change it any more."""
        if self._descriptor is not None:
            seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK
            seals |= fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)
        descriptor, self._descriptor = self._descriptor, None
        return Artifact(key=key, data=bytes(self.data), descriptor=descriptor)


def _unnamed() -> int:
    return os.memfd_create("artifact", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


class Cache:
    """
    Files of a MAC and an artifact. A file with any fault counts as missing.

    Args:
        folder: For this user alone. It is created with mode 0700.

        mac_key: At least 32 secret bytes.

        most: Files that are kept: those that were used last.
    """

    def __init__(self, folder: Path, mac_key: bytes, *, most: int = 256) -> None:
        if len(mac_key) < MAC_SIZE:
            raise ValueError(f"a MAC key has at least {MAC_SIZE} bytes")
        self._folder = folder
        self._mac_key = mac_key
        self._most = most

    def read(self, key: str) -> Artifact | None:
        """Return the artifact of that key, or ``None``."""
        # Non-blocking: opening a named pipe would otherwise never return.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self._folder / key, flags)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            size = status.st_size - MAC_SIZE
            if not stat.S_ISREG(status.st_mode) or not 0 <= size <= MOST:
                return None
            mac = os.read(file, MAC_SIZE)
            with Draft() as draft:
                draft.copy(file, size)
                artifact = draft.sealed(key)
        except OSError:
            return None
        finally:
            os.close(file)
        if hmac.compare_digest(mac, self._mac(artifact)):
            with suppress(OSError):  # The folder may be another's.
                os.utime(self._folder / key)
            return artifact
        artifact.close()
        return None

    def write(self, artifact: Artifact) -> None:
        """Keep an artifact, if the folder can be written."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            with artifact.view() as data:
                mac, target = self._mac(artifact), self._folder / artifact.key
                replace_file(target, mac, data, mode=0o600, sync=False)
            files = [(one.stat().st_mtime_ns, one) for one in self._folder.iterdir()]
            for _, file in sorted(files, reverse=True)[self._most :]:
                file.unlink()

    def _mac(self, artifact: Artifact) -> bytes:
        mac = hmac.new(self._mac_key, artifact.key.encode(), "sha256")
        with artifact.view() as data:
            mac.update(data)
        return mac.digest()
