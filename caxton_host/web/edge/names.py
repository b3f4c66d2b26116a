"""
For whom requests are, and of which pages.

A page in a browser may be made to ask a host that only the browser can reach: by a name
that leads there all of a sudden, or plainly from another origin. So the name that is
asked for has to be one of ours, and the origin one that the operator trusts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...core.text.urls import is_loopback
from .problems import Refusal

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN = frozenset({"same-origin", "none"})
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    What is asked for by which names, and of which origins.

    Attributes:
        bound: The address that is listened on.

        hosts: Other names, each with its port or for any.

        origins: Origins of pages that may ask.
    """

    bound: str
    hosts: Collection[str] = ()
    origins: Collection[str] = ()

    def check_host(self, values: Sequence[str], local: str) -> None:
        """
        Return if a request is for us.

        Args:
            values: Its ``Host`` headers.

            local: The address that it came to. Nobody but us has that.

        Raises:
            Refusal: It is not.
        """
        if len(values) != 1:
            raise Refusal("bad-request", "a request has one Host header")
        value = values[0].lower()
        if not (self._ours(value, local) or value in self.hosts):
            raise Refusal(
                "misdirected",
                "this host does not go by that name",
                fix="add the name to allowed_hosts in [serve]",
            )

    def _ours(self, value: str, local: str) -> bool:
        name = _name(value)
        if name is None:
            return False
        known = {self.bound, local, *self.hosts}
        return name in known or (is_loopback(local) and name in _LOOPBACK)

    def check_origin(
        self, values: Sequence[str], local: str, *, scheme: str, host: str
    ) -> str | None:
        """
        Return the origin whose pages may read the answer, if there is one.

        Args:
            values: The ``Origin`` headers of a request.

            local: The address that it came to.

            scheme: How it came: ``http`` or ``https``.

            host: Its ``Host`` header.

        Raises:
            Refusal: Pages of that origin may not ask.
        """
        if not values:
            return None
        if len(values) == 1 and values[0] in self.origins:
            return values[0]
        if len(values) == 1 and self._is_own(values[0].lower(), local, scheme, host):
            # The browser lets a page read what its own host answers.
            return None
        raise Refusal(
            "bad-origin",
            "pages of that origin may not ask",
            fix="add the origin to allowed_origins in [serve]",
        )

    def _is_own(self, origin: str, local: str, scheme: str, host: str) -> bool:
        """Return whether an origin has this scheme, a name of ours, and this port."""
        theirs, _, where = origin.partition("://")
        return (
            theirs == scheme
            and (self._ours(where, local) or where in self.hosts)
            and _port(where, scheme) == _port(host.lower(), scheme)
        )


def check_site(values: Sequence[str]) -> None:
    """
    Return if no page of another origin asks, by the ``Sec-Fetch-Site`` headers.

    Raises:
        Refusal: One does.
    """
    if any(value not in _OWN for value in values):
        raise Refusal("bad-origin", "pages of other origins may not ask")


def _name(value: str) -> str | None:
    """Return the name or address in the value of a ``Host`` header."""
    match = _HOST.fullmatch(value)
    return match[1].strip("[]") if match else None


def _port(value: str, scheme: str) -> int | None:
    """Return the port in the value of a ``Host`` header, or that of the scheme."""
    match = _HOST.fullmatch(value)
    return match and int(match[2] or _PORTS[scheme])
