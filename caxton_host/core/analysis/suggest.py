"""
The least grant that covers recorded calls, as text to paste.

Each generalisation is marked as a guess. A denied call counts only if that is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..text.toml_text import key_text, quoted, value_text
from .infer_constraint import Observed
from .rejudge import RejudgedCall

_Target: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class _Tool:
    """
    The calls of one tool.

    Attributes:
        most: The most that one run attempted, up to the last one that counts.

        params: Those of all calls.
    """

    calls: int = 0
    runs: int = 0
    most: int = 0
    params: Observed = field(default_factory=Observed)


@dataclass(slots=True, kw_only=True)
class Suggestion:
    """
    A grant that allows what the runs of one agent did, and little more.

    Attributes:
        agent: Its name.

        with_denied: Calls that were denied count as well.
    """

    agent: str
    with_denied: bool = False
    _tools: dict[_Target, _Tool] = field(default_factory=dict[_Target, _Tool])

    def take(self, call: RejudgedCall) -> None:
        """Take the next call of a run; which grant judged it again does not matter."""
        if not call.attempts or call.target is None:
            return
        nth = call.attempts if self.with_denied else call.made
        if call.invoked.rule is None and not self.with_denied:
            return
        seen = self._tools.setdefault(call.target, _Tool())
        seen.calls += 1
        seen.runs += nth == 1
        # Denied calls before it take of the grant as well, if that allows them.
        seen.most = max(seen.most, call.attempts)
        seen.params.take(call.invoked.params or {})

    def to_toml(self) -> str:
        """Return the grant as tables of a configuration; without calls, nothing."""
        return "\n\n".join(
            "\n".join(self._lines(target, seen))
            for target, seen in sorted(self._tools.items())
        )

    def _lines(self, target: _Target, seen: _Tool) -> Iterator[str]:
        yield f"# {_counted(seen.calls, 'call')} in {_counted(seen.runs, 'run')}"
        yield f"[[agents.{key_text(self.agent)}.allow]]"
        yield f"tools = [{quoted('/'.join(target))}]"
        yield f'calls = "{seen.most}/run"'
        entries = seen.params.conditions()
        if entries is None:
            yield "# guess: no parameter is told, so any are allowed"
            return
        for name, condition, guess in entries:
            line = f"params.{key_text(name)} = {value_text(condition)}"
            yield f"{line}  # guess: {quoted(guess)[1:-1]}" if guess else line


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
