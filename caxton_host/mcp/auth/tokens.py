"""
The tokens of a login, in a file that only the user can read.

The file is bound to the address of the server, to the configured client and to the
issuer, and is used with no other. See decision 0017.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ...core.calls import JSON
from ...core.tools.servers import ServerConfig
from ...errors import ToolError
from ...lib.codec import canonical, sha256
from ...lib.files import replace_file

_LONGEST = 256 * 1024
_POLL = 0.05

#: Inode, size and time of change: if they differ, the file is read again.
_State: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """
    The result of a login.

    Attributes:
        resource: The server that the tokens are for (RFC 8707).

        metadata: The endpoints of the issuer.

        client: The client as registered, with its secret.

        expires_at: In seconds since 1970; ``None``: unknown.

        scope: The scope of the tokens, as far as known.

        wanted: The scope that the server has required since, or ``None``.
    """

    issuer: str
    resource: str
    metadata: dict[str, str]
    client: dict[str, Any] = field(repr=False)
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    scope: str | None = None
    wanted: str | None = None


class TokenFile:
    """
    The file of one server.

    Args:
        folder: The folder of all token files; only its owner can read it.
    """

    def __init__(self, folder: Path, config: ServerConfig) -> None:
        oauth = config.oauth
        bound: list[JSON] = [config.name, config.url]
        if oauth is not None:
            bound += [oauth.client_id, oauth.client_metadata, oauth.issuer]
        self._path = folder / f"{config.name}-{sha256(canonical(bound))[:16]}.json"
        self._lock = self._path.with_suffix(".lock")

    def state(self) -> _State | None:
        """Return a value that changes with the file, or ``None`` without a file."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_ctime_ns

    def read(self) -> Login | None:
        """
        Return the last login, or ``None``.

        Raises:
            ToolError: The file is damaged, or other users can read it.
        """
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                data = file.read(_LONGEST)
        except FileNotFoundError:
            return None
        except OSError:
            raise _unusable("cannot be read") from None
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise _unusable("can be read by others")
        try:
            return Login(**json.loads(data))
        except (ValueError, TypeError):
            raise _unusable("are damaged") from None

    def write(self, login: Login) -> None:
        """
        Replace the file, atomically and durably. The caller holds the lock.

        Raises:
            ToolError: It cannot be written.
        """
        try:
            self._folder()
            data = json.dumps(asdict(login)).encode()
            replace_file(self._path, data, mode=0o600)
        except OSError:
            raise _unusable("cannot be stored") from None

    def remove(self) -> bool:
        """Remove the login; return whether there was one. The caller holds the lock."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """
        Lock the file: a refresh token can be used once, by one host.

        Raises:
            ToolError: The lock cannot be created.
        """
        try:
            handle = self._open_lock()
        except OSError:
            raise _unusable("cannot be stored") from None
        try:
            while not _taken(handle):  # noqa: ASYNC110 -- another process has it
                await asyncio.sleep(_POLL)
            yield
        finally:
            os.close(handle)

    def _open_lock(self) -> int:
        name = self._folder() / self._lock.name
        return os.open(name, os.O_RDWR | os.O_CREAT, 0o600)

    def _folder(self) -> Path:
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unusable(why: str) -> ToolError:
    return ToolError("transport", "no", f"the tokens of its login {why}")
