"""``--host``: a host that serves, instead of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .output import note

if TYPE_CHECKING:
    from ..errors import CaxtonError
    from ..remote.address import Token
    from ..remote.client import Remote
    from ..remote.log import RemoteLog


#: What can be typed with ``--host``. The names that other texts give to it are these.
_COMMAND = re.compile(
    r"\bcaxton (?=(run|runs|events|replay|approval|server|tool|agent|grant|config|"
    r"audit) )"
)


def unreadable(exc: Exception) -> CaxtonError:
    """Return what to say when what a host sent was not what it must be."""
    from ..remote.problems import stranger

    return stranger(f"what it sends cannot be read ({type(exc).__name__})")


@dataclass(slots=True, kw_only=True)
class There:
    """
    The options that name a host.

    Attributes:
        url: Where it is.

        token_file: What has the token, or ``None``: the environment.

        plain: The token may go unencrypted over a network.
    """

    url: str
    token_file: str | None = None
    plain: bool = False
    _token: Token | None = field(default=None, init=False, repr=False)

    def command(self) -> str:
        """Return how a command line begins that asks the same host."""
        words = ["caxton --host", shlex.quote(self.url)]
        if self.token_file:
            words += ["--token-file", shlex.quote(self.token_file)]
        return " ".join(words + ["--plain-http"] * self.plain)

    def named(self, text: str) -> str:
        """
        Return *text* with the commands in it as they are typed for this host.

        >>> There(url="http://[::1]:8080").named("caxton runs list shows them")
        "caxton --host 'http://[::1]:8080' runs list shows them"
        """
        command = self.command()
        return _COMMAND.sub(lambda _: f"{command} ", text)

    @contextlib.asynccontextmanager
    async def reach(self) -> AsyncGenerator[Remote]:
        """
        Give what talks to the host.

        Raises:
            UsageError: It is named wrongly, or the token cannot be read.
        """
        from ..remote.address import Address
        from ..remote.client import Remote

        address = Address.parse(self.url, plain=self.plain)
        async with Remote(address, self._key().text, note) as remote:
            yield remote

    @contextlib.asynccontextmanager
    async def log(self) -> AsyncGenerator[RemoteLog]:
        """Give the log of the host to read."""
        from ..remote.log import RemoteLog

        async with self.reach() as remote:
            yield RemoteLog(remote)

    def _key(self) -> Token:
        """Return what lets one in; what is wrong with it is told once."""
        from ..remote.address import token_of

        if self._token is None:
            file = Path(self.token_file) if self.token_file else None
            self._token = token_of(file, os.environ)
            if self._token.warning:
                note(f"warning: {self._token.warning}")
        return self._token
