"""
Failed authentications, counted by the address of the client.

Nobody is locked out: a token that is good passes, whatever others have tried from its
address. Where too many fail, a failure is answered with 429 instead of 401, and the
tokens that come from there are looked up one after the other, so that a flood of them
costs the host one lookup at a time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.types import Scope

from ...core.grants.principals import Principal
from .authentication import Identity, Unauthenticated

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

logger = logging.getLogger("caxton_host")

#: Failures at once, of an address and of all, and seconds until they are forgiven.
_EACH, _ALL, _SECONDS = 30.0, 1000.0, 60.0
#: Addresses that are remembered: those that failed last.
_MOST = 4096
#: Seconds between two lines in the log.
_QUIET = 60.0
#: Addresses of a header that are looked at, and bits of an IPv6 one that count.
_HOPS, _PREFIX = 20, 64

_client: ContextVar[str] = ContextVar("client", default="")


class TooManyFailures(Unauthenticated):
    """
    The caller is not authenticated, like too many before from its address.

    Attributes:
        retry_after: Seconds after which the next failure is answered as the first.
    """

    def __init__(self, challenge: str, retry_after: float) -> None:
        super().__init__(challenge, "too many failed authentications")
        self.retry_after = retry_after


def note_client(
    scope: Scope, headers: Mapping[str, Sequence[str]], trusted: Sequence[Network]
) -> None:
    """
    Note whose request this task answers.

    Args:
        scope: The request.

        headers: Of it. ``X-Forwarded-For`` counts as far as proxies wrote it.

        trusted: The networks of these proxies.
    """
    found = str((scope.get("client") or ("",))[0])
    hops = ",".join(headers.get("x-forwarded-for", [])).split(",")[-_HOPS:]
    try:
        address = ipaddress.ip_address(found)
        while hops and any(address in network for network in trusted):
            address = ipaddress.ip_address(hops.pop().strip())
    except ValueError:
        # What a proxy did not write is not believed.
        _client.set(found)
        return
    address = getattr(address, "ipv4_mapped", None) or address
    if isinstance(address, ipaddress.IPv6Address):
        address = ipaddress.ip_network((address, _PREFIX), strict=False).network_address
    _client.set(str(address))


@dataclass(slots=True)
class _Bucket:
    level: float = 0.0
    at: float = 0.0

    def count(self, now: float, most: float, *, more: int = 0) -> float:
        """Add failures, and return the seconds until there are not too many."""
        rate = most / _SECONDS
        self.level = max(0.0, self.level - (now - self.at) * rate) + more
        self.at = now
        return max(0.0, self.level - most) / rate


@dataclass(slots=True)
class CountedIdentity:
    """
    Counts the callers whose credentials are not good.

    Attributes:
        other: Authenticates callers.

        now: Returns seconds of a clock that never goes back.
    """

    other: Identity
    now: Callable[[], float]
    _each: OrderedDict[str, _Bucket] = field(
        default_factory=OrderedDict[str, _Bucket], init=False
    )
    _all: _Bucket = field(default_factory=_Bucket, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _told_at: float = field(default=-_QUIET, init=False)

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return the principal of a request; see `Identity`.

        Raises:
            TooManyFailures: The caller is not authenticated, and too many were not.
        """
        if authorization is None:
            return await self.other.principal(None)
        client = _client.get()
        async with self._turn if self._wait(client) else nullcontext():
            try:
                return await self.other.principal(authorization)
            except Unauthenticated as exc:
                if wait := self._wait(client, more=1):
                    self._tell(client)
                    raise TooManyFailures(exc.challenge, wait) from None
                raise

    def _wait(self, client: str, *, more: int = 0) -> float:
        """Count failures, and return the seconds until there are not too many."""
        if client not in self._each and not more:
            # It has failed at nothing, whatever others do.
            return 0.0
        now, own = self.now(), self._each.setdefault(client, _Bucket())
        self._each.move_to_end(client)
        if len(self._each) > _MOST:
            self._each.popitem(last=False)
        return max(
            own.count(now, _EACH, more=more), self._all.count(now, _ALL, more=more)
        )

    def _tell(self, client: str) -> None:
        if self.now() - self._told_at >= _QUIET:
            self._told_at = self.now()
            logger.warning("too many failed authentications, as from %s", client)
