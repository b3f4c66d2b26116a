"""Answers that a server promises to give again for a while (``ttlMs``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..core.calls import JSON
from ..lib.codec import canonical
from .transport.wire import Answer

#: Its word counts up to a day.
_LONGEST = 24 * 3600.0
_ANSWERS = 256
_LARGEST = 64 * 1024


def good_for(result: Mapping[str, JSON]) -> float:
    """
    Return for how many seconds an answer is good; 0 if nothing is promised.

    >>> good_for({"ttlMs": 1500}), good_for({"ttlMs": True}), good_for({})
    (1.5, 0.0, 0.0)
    """
    said = result.get("ttlMs")
    if isinstance(said, bool) or not isinstance(said, int | float) or said <= 0:
        return 0.0
    return min(said / 1000, _LONGEST)


class Kept:
    """
    Answers of one connection, by what was asked. Large ones are not kept.

    Args:
        now: Returns the time, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._answers: dict[bytes, tuple[float, Answer]] = {}

    def find(self, method: str, params: Mapping[str, JSON]) -> Answer | None:
        """Return the answer that is still good, or ``None``."""
        key = canonical([method, {**params}])
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._now() < until else None

    def keep(self, method: str, params: Mapping[str, JSON], answer: Answer) -> None:
        """Keep an answer for as long as it is promised."""
        seconds = good_for(answer.result)
        if not seconds or answer.size > _LARGEST:
            return
        key = canonical([method, {**params}])
        self._answers.pop(key, None)
        self._answers[key] = self._now() + seconds, answer
        if len(self._answers) > _ANSWERS:
            del self._answers[next(iter(self._answers))]
