"""So much in a time and no more, told by whoever knows the time. Pure."""

from __future__ import annotations


class Bucket:
    """
    A token bucket that takes orders: what is not there yet can be waited for.

    >>> bucket = Bucket(2, 60.0)
    >>> [bucket.reserve(0.0, latest=45.0) for _ in range(4)]
    [0.0, 0.0, 30.0, None]
    """

    def __init__(self, amount: float, seconds: float) -> None:
        self._most = self._there = float(amount)
        self._a_second = amount / seconds
        self._seen = 0.0

    def reserve(self, now: float, latest: float, cost: float = 1.0) -> float | None:
        """
        Take *cost*, and return how many seconds to wait before it is there.

        Args:
            now: On any clock that does not go back.

            latest: On the same clock. If it comes first, nothing is taken and ``None``
                returned.

            cost: How much.
        """
        self._fill(now)
        wait = max(0.0, (cost - self._there) / self._a_second)
        if now + wait > latest:
            return None
        self._there -= cost
        return wait

    def give_back(self) -> None:
        """Take note that one that was reserved was not used."""
        self._there = min(self._most, self._there + 1)

    def _fill(self, now: float) -> None:
        since = max(0.0, now - self._seen)
        self._there = min(self._most, self._there + since * self._a_second)
        self._seen = max(self._seen, now)
