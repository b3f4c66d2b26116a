"""
The least grant that covers what was recorded, as text to paste.

Each generalisation is marked as a guess. What was denied is no reason for a grant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..calls import Route
from ..log.events import Event, ToolDenied, ToolInvoked
from ..text.toml_text import key_text, quoted, value_text
from .infer_constraint import Observed

_Target: TypeAlias = tuple[str, str]


def _nowhere(_: str) -> Route | None:
    return None


@dataclass(slots=True)
class _Tool:
    """
    What was seen of one tool.

    Attributes:
        calls: How many calls there were.

        runs: In how many runs.

        most: The most that one run attempted, up to the last one that was allowed.

        params: Of all calls.
    """

    calls: int = 0
    runs: int = 0
    most: int = 0
    params: Observed = field(default_factory=Observed)


@dataclass(slots=True)
class _Run:
    """What an open run attempted so far, and which tools of it count."""

    attempts: Counter[_Target] = field(default_factory=Counter[_Target])
    counted: set[_Target] = field(default_factory=set[_Target])

    def attempt(self, target: _Target) -> int:
        self.attempts[target] += 1
        return self.attempts[target]


@dataclass(slots=True, kw_only=True)
class Suggestion:
    """
    What the runs of one agent did, as a grant that allows as much and little more.

    Attributes:
        agent: Its name.

        with_denied: Calls that were denied count as well.

        leads: Where a name leads that led nowhere.
    """

    agent: str
    with_denied: bool = False
    leads: Callable[[str], Route | None] = _nowhere
    _tools: dict[_Target, _Tool] = field(default_factory=dict[_Target, _Tool])
    _runs: dict[str, _Run] = field(default_factory=dict[str, _Run])
    _denied: dict[tuple[str, int], ToolInvoked] = field(
        default_factory=dict[tuple[str, int], ToolInvoked]
    )

    def take(self, run_id: str, event: Event) -> None:
        """Take the next event of a run, with those that it inherited before its own."""
        if isinstance(event, ToolInvoked):
            if event.rule is not None:
                self._count(run_id, event)
            else:
                # Why it was denied is in the event that follows.
                self._denied[run_id, event.call] = event
        elif isinstance(event, ToolDenied):
            self._deny(run_id, event)

    def ended(self, run_id: str) -> None:
        """Forget how often a run called what."""
        self._runs.pop(run_id, None)

    def to_toml(self) -> str:
        """Return the grant as tables of a configuration; without calls, nothing."""
        return "\n\n".join(
            "\n".join(self._lines(target, seen))
            for target, seen in sorted(self._tools.items())
        )

    def _deny(self, run_id: str, event: ToolDenied) -> None:
        invoked = self._denied.pop((run_id, event.call), None)
        if invoked is None or invoked.params is None or event.code == "limit":
            return
        if self.with_denied:
            self._count(run_id, invoked)
        elif target := self._target(invoked):
            # It spends as well, if this grant would allow it.
            self._runs.setdefault(run_id, _Run()).attempt(target)

    def _count(self, run_id: str, invoked: ToolInvoked) -> None:
        target = self._target(invoked)
        if target is None:
            return
        seen = self._tools.setdefault(target, _Tool())
        run = self._runs.setdefault(run_id, _Run())
        if target not in run.counted:
            run.counted.add(target)
            seen.runs += 1
        seen.calls += 1
        seen.most = max(seen.most, run.attempt(target))
        seen.params.take(invoked.params or {})

    def _target(self, invoked: ToolInvoked) -> _Target | None:
        if invoked.server is not None and invoked.tool is not None:
            return invoked.server, invoked.tool
        route = self.leads(invoked.name)
        return (route.server, route.tool) if route else None

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
