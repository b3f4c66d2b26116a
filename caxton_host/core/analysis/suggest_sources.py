"""
Suggested sources of parameters, from recorded calls.

For each parameter of a tool: in which sources its recorded values stood before the
calls, and how many values a rule with these sources would not have allowed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..calls import JSON
from ..log.events import Recorded, RunStarted, ToolCompleted, ToolInvoked
from ..names import AGENTS
from ..provenance import places_in
from ..text.answers import values_of
from ..text.jsonpath import Keys, parts
from ..text.redact import MASK

#: Values of one run that are compared, and values of one parameter that are kept.
_MAX_GIVEN, _MAX_SEEN = 20_000, 1000
#: Shorter texts stand in many places by chance.
_MIN_LENGTH = 3
_MAX_SOURCES = 4

#: Agent, server and tool, and the parameter.
_Param: TypeAlias = tuple[str, str, str, str]


@dataclass(slots=True)
class _Run:
    agent: str
    entered: Sequence[tuple[str, JSON]]
    #: The sources of each text in an answer.
    answers: defaultdict[str, set[str]] = field(
        default_factory=lambda: defaultdict[str, set[str]](set)
    )
    calls: dict[int, ToolInvoked] = field(default_factory=dict[int, ToolInvoked])
    given: int = 0

    def sources(self, value: str) -> frozenset[str]:
        entered = (s for s, data in self.entered if any(places_in(value, data)))
        return frozenset({*entered, *self.answers.get(value, ())})

    def learn(self, tool: str, data: JSON) -> None:
        for root in values_of(data):
            for keys, leaf in parts(root):
                if self.given >= _MAX_GIVEN:
                    return
                if isinstance(leaf, str) and keys:
                    self.given += 1
                    self.answers[leaf].add(f"{tool}{_general(keys)}")


@dataclass(slots=True)
class SourcesSeen:
    """The sources of the parameters of recorded calls, folded."""

    _runs: dict[str, _Run] = field(default_factory=dict[str, _Run])
    _seen: dict[_Param, list[frozenset[str]]] = field(
        default_factory=dict[_Param, "list[frozenset[str]]"]
    )

    def take(self, recorded: Recorded) -> None:
        """Take the next event of a history."""
        event, run = recorded.event, self._runs.get(recorded.stream)
        if isinstance(event, RunStarted):
            context = [(f"context.{key}", item) for key, item in event.context.items()]
            run = _Run(event.agent, [("input", event.input), *context])
            self._runs[recorded.stream] = run
        elif run is None:
            return
        elif isinstance(event, ToolInvoked) and event.rule is not None:
            run.calls[event.call] = event
            self._note(run, event)
        elif isinstance(event, ToolCompleted) and not event.is_error:
            invoked = run.calls.get(event.call)
            if invoked and invoked.server != AGENTS:
                run.learn(f"{invoked.server}/{invoked.tool}", event.data)
        elif recorded.type in {"RunCompleted", "RunFailed", "RunCancelled"}:
            del self._runs[recorded.stream]

    def _note(self, run: _Run, invoked: ToolInvoked) -> None:
        for name, value in (invoked.params or {}).items():
            if not isinstance(value, str) or len(value) < _MIN_LENGTH or MASK in value:
                continue
            target = invoked.server or "", invoked.tool or ""
            seen = self._seen.setdefault((run.agent, *target, name), [])
            if len(seen) < _MAX_SEEN:
                seen.append(run.sources(value))

    def suggested(
        self, agent: str, server: str, tool: str
    ) -> Iterator[tuple[str, list[str], int, int]]:
        """
        Yield what is suggested for the parameters of a tool, if anything had a source.

        Yields:
            The parameter, its sources, the number of its values, and how many of them
            came from none of these sources.
        """
        for (*target, name), seen in self._seen.items():
            if target != [agent, server, tool]:
                continue
            left, sources = seen, list[str]()
            while counts := Counter(source for found in left for source in found):
                if len(sources) == _MAX_SOURCES:
                    break
                best = min(counts, key=lambda source: (-counts[source], source))
                sources.append(best)
                left = [found for found in left if best not in found]
            if sources:
                yield name, sources, len(seen), len(left)


def _general(keys: Keys) -> str:
    """
    Return the places of a list that has one of its places there, as a JSON path.

    >>> _general(("people", 3, "e-mail"))
    '$.people[*]["e-mail"]'
    """
    steps = ("[*]" if isinstance(key, int) else _name(key) for key in keys)
    return "$" + "".join(steps)


def _name(key: str) -> str:
    return f".{key}" if key.isidentifier() else f'["{key}"]'
