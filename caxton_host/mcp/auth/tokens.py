"""
What a login leaves: the tokens of one server, in a file of the user's alone.

It is bound to the address of the server, to what the operator says of the client, and
to the issuer that gave the tokens, so it is used with no other. See decision 0017.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ...core.calls import JSON
from ...core.tools.servers import ServerConfig
from ...errors import ToolError
from ...lib.codec import canonical, sha256

_LONGEST = 256 * 1024
_POLL = 0.05

#: What a file is and was: another one is read again.
_State: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """
    What is known since somebody logged in.

    Attributes:
        resource: What the tokens are for, as the issuer was told.

        metadata: Where the issuer is asked, of what it says of itself.

        client: What the issuer knows the client as, its secret too.

        expires_at: In seconds since 1970; ``None``: it was not said.

        scope: What the tokens are good for, as far as known.

        wanted: What the server turned a token away for since, if anything.
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
        folder: Of all servers; nobody but its owner may look into it.
    """

    def __init__(self, folder: Path, config: ServerConfig) -> None:
        oauth = config.oauth
        bound: list[JSON] = [config.name, config.url]
        if oauth is not None:
            bound += [oauth.client_id, oauth.client_metadata, oauth.issuer]
        self._path = folder / f"{config.name}-{sha256(canonical(bound))[:16]}.json"
        self._lock = self._path.with_suffix(".lock")

    def state(self) -> _State | None:
        """Return what another content would change, or ``None``: there is no file."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_ctime_ns

    def read(self) -> Login | None:
        """
        Return what the last login left, or ``None`` without one.

        Raises:
            ToolError: The file is not as it was written, or others may read it.
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
            raise _unusable("are not the user's alone")
        try:
            return Login(**json.loads(data))
        except (ValueError, TypeError):
            raise _unusable("are not as they were written") from None

    def write(self, login: Login) -> None:
        """
        Replace what there is, at once and for good, as whoever has the lock.

        Raises:
            ToolError: It cannot be kept.
        """
        try:
            self._write(login)
        except OSError:
            raise _unusable("cannot be kept") from None

    def _write(self, login: Login) -> None:
        handle, draft = tempfile.mkstemp(dir=self._folder(), prefix=".draft-")
        try:
            with os.fdopen(handle, "w") as file:  # mkstemp's mode is 0600
                json.dump(asdict(login), file)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(self._path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(draft).unlink()
            raise

    async def remove(self) -> bool:
        """Forget the login, and return whether there was one."""
        async with self.locked():
            try:
                self._path.unlink()
            except FileNotFoundError:
                return False
            return True

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """
        Keep other hosts from replacing it: what tokens are refreshed with is good once.

        Raises:
            ToolError: Nothing can be kept there.
        """
        try:
            handle = self._open_lock()
        except OSError:
            raise _unusable("cannot be kept") from None
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
