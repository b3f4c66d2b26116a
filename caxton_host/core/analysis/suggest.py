"""
Suggested conditions and grants, from recorded calls.

`Observed` folds the values of one parameter into the least condition that accepts all
of them: few values are listed, many are described by what they have in common, which
is marked as a guess. `Suggestion` folds the calls of an agent into the least grant that
covers them. However many values there are, a bounded part of them is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias
from urllib.parse import urlsplit

from ...errors import ConditionError
from ..calls import JSON
from ..grants.constraints import KINDS, MAX_ITEMS
from ..text.paths import plain_path
from ..text.redact import MASK
from ..text.toml_text import key_text, quoted, value_text
from ..text.urls import Addresses
from .rejudge import RejudgedCall
from .suggest_sources import SourcesSeen

_Target: TypeAlias = tuple[str, str]

_FEW = 5
_SHORT = 100
_MAX_NAMES = 50
_DEPTH = 6
_LARGEST = 2**63 - 1


def spelled(name: str) -> str:
    r"""
    Return a name as the key of a condition.

    >>> print(spelled("user.email"))
    user\.email
    """
    return name.replace(".", "\\.")


@dataclass(slots=True)
class Observed:
    """
    The values of one parameter, folded.

    Attributes:
        depth: Its depth in the parameters.

        times: The number of values.

        fields: Of maps: the values of each name.
    """

    depth: int = 0
    times: int = 0
    fields: dict[str, Observed] = field(default_factory=dict[str, "Observed"])
    _kinds: set[str] = field(default_factory=set[str])
    #: By their JSON; ``None``: there are too many, or one cannot be written as TOML.
    _values: dict[str, JSON] | None = field(default_factory=dict[str, JSON])
    _least: float = 0
    _most: float = 0
    _longest: int = 0
    _items: Observed | None = None
    #: The common folder of all texts; ``None``: there is none.
    _folder: str | None = ""
    _hosts: set[tuple[str, str]] | None = field(default_factory=set[tuple[str, str]])
    _masked: bool = False
    _whole: bool = True

    def take(self, value: JSON) -> None:
        """Fold a value."""
        self.times += 1
        self._kinds.add(KINDS[type(value)])
        self._note(value)
        if isinstance(value, str):
            self._take_text(value)
        elif isinstance(value, list):
            self._longest = max(self._longest, len(value))
            self._items = self._items or Observed(self.depth + 1)
            for item in value if self.depth < _DEPTH else ():
                self._items.take(item)
        elif isinstance(value, dict):
            self._take_map(value)
        elif isinstance(value, (int, float)):
            self._least = value if self.times == 1 else min(self._least, value)
            self._most = value if self.times == 1 else max(self._most, value)

    def condition(self, *, optional: bool = False) -> tuple[dict[str, JSON], str]:
        """Return the condition, and a description of what is guessed of it."""
        said, guess = self._said()
        return ({**said, "optional": True} if optional else said), guess

    def conditions(self) -> list[tuple[str, dict[str, JSON], str]] | None:
        """
        Return name, condition and guess for each name of maps.

        ``None`` if there was no name, or too many.
        """
        if not self._whole or not self.fields:
            return None
        return [
            (spelled(name), *below.condition(optional=below.times < self.times))
            for name, below in self.fields.items()
        ]

    def _note(self, value: JSON) -> None:
        """Keep a value while there are few, and all can be written as TOML."""
        if self._values is None:
            return
        empty = isinstance(value, (dict, list)) and not value
        if not (empty or _writable(value)):
            self._values = None
            return
        self._values[json.dumps(value)] = value
        if len(self._values) > _FEW:
            self._values = None

    def _take_text(self, text: str) -> None:
        self._masked = self._masked or MASK in text
        self._longest = max(self._longest, len(text))
        if self._folder is not None:
            self._folder = _common(self._folder, text)
        if self._hosts is not None:
            found = _host(text)
            self._hosts = self._hosts | {found} if found else None
            if self._hosts and len(self._hosts) > _FEW:
                self._hosts = None

    def _take_map(self, value: Mapping[str, JSON]) -> None:
        if not self._whole:
            return
        names = self.fields.keys() | value.keys()
        if self.depth >= _DEPTH or len(names) > _MAX_NAMES or "" in names:
            self._whole = False
            self.fields.clear()
            return
        for name, item in value.items():
            self.fields.setdefault(name, Observed(self.depth + 1)).take(item)

    def _said(self) -> tuple[dict[str, JSON], str]:
        if self._values:
            values = [*self._values.values()]
            one: dict[str, JSON] = {"const": values[0]}
            return (one if len(values) == 1 else {"one_of": values}), ""
        if self._kinds <= {"integer", "number"}:
            return self._of_numbers()
        kind = "any" if len(self._kinds) > 1 else "".join(self._kinds)
        say: dict[str, Callable[[], tuple[dict[str, JSON], str]]] = {
            "string": self._of_texts,
            "array": self._of_lists,
            "object": self._of_maps,
            "any": lambda: ({"type": "any"}, "values of several types"),
        }
        return say[kind]() if kind in say else ({"type": kind}, "")

    def _of_numbers(self) -> tuple[dict[str, JSON], str]:
        kind = "integer" if self._kinds == {"integer"} else "number"
        said: dict[str, JSON] = {"type": kind}
        if self._least >= -_LARGEST and self._most <= _LARGEST:
            said |= {"min": self._least, "max": self._most}
        return said, f"the range of {self.times}"

    def _of_texts(self) -> tuple[dict[str, JSON], str]:
        if self._masked:
            return {"type": "string"}, "any text, for a secret was taken out"
        if self._folder:
            return {"path": {"inside": [self._folder]}}, f"the folder of {self.times}"
        if self._hosts:
            address: dict[str, JSON] = {
                "scheme": [*sorted({scheme for scheme, _ in self._hosts})],
                "host": [*sorted({host for _, host in self._hosts})],
            }
            return {"url": address}, f"the hosts of {self.times}"
        said: dict[str, JSON] = {"type": "string", "max_length": self._longest}
        return said, f"the longest of {self.times}"

    def _of_maps(self) -> tuple[dict[str, JSON], str]:
        found = self.conditions()
        if found is None:
            return {"type": "object"}, "whatever is in it"
        said: dict[str, JSON] = {name: condition for name, condition, _ in found}
        guesses = [f"{name}: {guess}" for name, _, guess in found if guess]
        return {"has": said}, "; ".join(guesses)

    def _of_lists(self) -> tuple[dict[str, JSON], str]:
        said: dict[str, JSON] = {"type": "array", "max_items": self._longest}
        guess = f"the longest of {self.times}"
        if self._items and self._items.times and self._longest <= MAX_ITEMS:
            said["each"], of_items = self._items.condition()
            guess += f"; each: {of_items}" if of_items else ""
        return said, guess


def _writable(value: JSON) -> bool:
    """Return whether a value is short and can be written in a configuration."""
    if isinstance(value, str):
        return len(value) <= _SHORT and "${" not in value and MASK not in value
    if isinstance(value, (bool, float)):
        return True
    return isinstance(value, int) and abs(value) <= _LARGEST


def _common(folder: str, text: str) -> str | None:
    """Return the folder of a path; with a previous *folder*, the common one."""
    path = plain_path(text)
    if path is None:
        return None
    own = path.rstrip("/").split("/")[:-1]
    if folder:
        pairs = zip(folder.split("/"), own, strict=False)
        own = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return "/".join(own) or None


def _host(text: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL that is not in doubt, at the default port."""
    try:
        parts = urlsplit(text)
        found = parts.scheme.lower(), parts.hostname or ""
        said: JSON = {"scheme": found[0], "host": found[1]}
        return found if Addresses.parse(said, ()).hold(text) else None
    except (ValueError, ConditionError):
        return None


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

        table: The table that describes it; see `table_of`.

        with_denied: Calls that were denied count as well.

        sources: Where the values of parameters stood before.
    """

    agent: str
    table: str
    with_denied: bool = False
    sources: SourcesSeen = field(default_factory=SourcesSeen)
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
        yield f"[[{self.table}.allow]]"
        yield f"tools = [{quoted('/'.join(target))}]"
        yield f'calls = "{seen.most}/run"'
        entries = seen.params.conditions()
        if entries is None:
            yield "# guess: no parameters are recorded, so any are allowed"
            return
        for name, condition, guess in entries:
            line = f"params.{key_text(name)} = {value_text(condition)}"
            yield f"{line}  # guess: {quoted(guess)[1:-1]}" if guess else line
        found = self.sources.suggested(self.agent, *target)
        for name, sources, values, others in found:
            listed = value_text({"from": [*sources]})
            yield f"# params.{key_text(spelled(name))} = {listed}"
            yield f"#   of {_counted(values, 'value')}, {others} came from elsewhere"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
