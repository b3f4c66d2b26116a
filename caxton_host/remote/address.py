"""The address of a host that serves, and the token for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult

from ..core.text.urls import is_loopback, parts_of
from ..errors import UsageError

#: The variable of the environment that holds the token.
TOKEN = "CAXTON_TOKEN"  # noqa: S105 -- its name

_LONGEST = 8192
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_EXAMPLE = "write https://NAME or http://127.0.0.1:PORT, as caxton serve prints it"


@dataclass(frozen=True, slots=True)
class Address:
    """
    The address of the control API of a host.

    Attributes:
        url: Of the host, without a slash at its end.
    """

    url: str

    @classmethod
    def parse(cls, text: str, *, plain: bool = False) -> Address:
        """
        Parse an address.

        >>> Address.parse("https://host.example/caxton/").api
        'https://host.example/caxton/api/v1'

        Args:
            text: An ``http`` or ``https`` URL: name, perhaps a port and a path.

            plain: The token may go unencrypted over a network.

        Raises:
            UsageError: It is not an address, or would send the token unencrypted.
        """
        if (parts := parts_of(text)) is None:
            raise UsageError("--host is not a URL", fix=_EXAMPLE)
        host = parts.hostname
        if parts.scheme not in {"http", "https"} or not host or not text.isprintable():
            raise UsageError("--host is not the URL of a host", fix=_EXAMPLE)
        if "@" in parts.netloc:
            # It may be a password, so it is not shown.
            fix = f"put the token into ${TOKEN}, or into a file for --token-file"
            raise UsageError("--host holds a user or a password", fix=fix)
        if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
            raise UsageError("--host is more than the URL of a host", fix=_EXAMPLE)
        if parts.scheme == "http" and not plain and not is_loopback(host):
            raise UsageError(
                f"plain http to {host} shows the token to every network on the way",
                fix="use https, or say --plain-http if the network is your own",
            )
        return cls(_url(parts))

    @property
    def api(self) -> str:
        """What the paths of the control API begin with."""
        return f"{self.url}/api/v1"


def _url(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Token:
    """
    A token.

    Attributes:
        text: The token, or ``None``.

        warning: A problem with its file, or ``""``.
    """

    text: str | None = field(default=None, repr=False)
    warning: str = ""


def token_of(file: Path | None, environ: Mapping[str, str]) -> Token:
    """
    Return the token in a file, or else the one of the environment.

    Raises:
        UsageError: The file cannot be read, or holds no token.
    """
    if file is None:
        text = environ.get(TOKEN, "")
        return Token(_checked(text, f"${TOKEN}") if text else None)
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_LONGEST + 1).decode("ascii", "replace")
    except OSError as exc:
        raise UsageError(
            f"cannot read the token in {file}: {exc.strerror}",
            fix="name a file that exists, after --token-file",
        ) from None
    shared = mode & 0o077
    warning = f"others may read {file}; chmod 600 {file}" if shared else ""
    return Token(_checked(text, str(file)), warning)


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if len(text) > _LONGEST or not _TOKEN.fullmatch(token):
        raise UsageError(
            f"{where} does not hold a token",
            fix="put there what caxton serve token create printed, and nothing else",
        )
    return token
