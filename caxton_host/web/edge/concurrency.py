"""How many do something at a time, of one principal and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...errors import OverloadedError


@dataclass(slots=True, kw_only=True)
class Crowd:
    """
    How many do something at a time.

    Attributes:
        each: Most of one principal.

        all: Most of everybody.

        what: What they do, for people.

        present: How many are at it.
    """

    each: int
    all: int
    what: str = "requests"
    present: int = field(default=0, init=False)
    _inside: Counter[str] = field(default_factory=Counter[str], init=False)

    @contextmanager
    def one(self, who: str) -> Generator[None]:
        """
        Count one more, for as long as the block lasts.

        Raises:
            OverloadedError: They are too many.
        """
        if self._inside[who] >= self.each:
            raise OverloadedError(
                f"{self.each} of your {self.what} are under way: that is the most",
                retry_after=1,
                whose="principal",
            )
        if self.present >= self.all:
            raise OverloadedError(
                f"too many {self.what} are under way", retry_after=1, whose="host"
            )
        self._inside[who] += 1
        self.present += 1
        try:
            yield
        finally:
            self.present -= 1
            self._inside[who] -= 1
            if not self._inside[who]:
                del self._inside[who]
