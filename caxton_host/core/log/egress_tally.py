"""Few events of many connections: the first at once, the others by the minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..tools.egress import Target
from .events import EgressAllowed, EgressRefused

#: Names that have events of their own in one interval.
NAMES = 16

#: Stand for the host of a request that names none, and for names beyond `NAMES`.
NOBODY, OTHERS = Target("", 0), Target("*", 0)


class _Key(NamedTuple):
    target: Target
    reason: str


class Tally:
    """
    Counts the connections of one server.

    A server decides how often it connects, and which names it tries. The first
    connection to a name is an event at once; what follows is counted, until `flush` is
    called, once an interval.

    Args:
        server: Its name.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._counts: dict[_Key, Counter[str]] = {}

    def add(
        self, target: Target, reason: str = "", **amounts: int
    ) -> EgressAllowed | EgressRefused | None:
        """
        Count *amounts*, and return the event of the first ones.

        Args:
            target: The host and port.

            reason: Why it was refused; empty: it was allowed.

            amounts: Fields of the event.
        """
        key = _Key(target, reason)
        if key not in self._counts and len(self._counts) >= NAMES:
            key = _Key(OTHERS, reason)
        counts = self._counts.get(key)
        if counts is None:
            self._counts[key] = Counter()
            return self._event(key, amounts)
        counts.update({name: n for name, n in amounts.items() if n})
        return None

    def flush(self) -> list[EgressAllowed | EgressRefused]:
        """Return the events of what was counted since, and begin an interval."""
        counted = {key: counts for key, counts in self._counts.items() if counts}
        self._counts = {key: Counter() for key in counted}
        return [self._event(key, counts) for key, counts in counted.items()]

    def _event(
        self, key: _Key, amounts: Mapping[str, Any]
    ) -> EgressAllowed | EgressRefused:
        host, port = key.target
        if key.reason:
            return EgressRefused(
                server=self._server,
                host=host,
                port=port,
                reason=key.reason,
                **amounts,
            )
        return EgressAllowed(server=self._server, host=host, port=port, **amounts)
