"""
The sources of a run, folded from its events: which of them has a value, and where.

A value in an answer does not count if the agent may have put it there: if it stood in
an unchecked parameter of an earlier call, or of one that was under way. A parameter is
checked if a rule looked for its sources and found one at the start of the run. An
answer that one rule trusts is too weak: another rule may want a stronger source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias, cast

from ..calls import JSON
from ..log.events import (
    Event,
    Payload,
    RunStarted,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
)
from ..names import AGENTS
from ..text.answers import STRUCTURED, values_of
from ..text.jsonpath import JsonPath, Keys, parts, selected, written
from ..text.redact import MASK
from .links import links
from .matching import Way, folded, stands, token_keys, traces, ways, word_keys
from .origins import Mention, Origin, Wanted
from .texts import Texts, TooCommon

#: Places that are recorded of one value, and values of one call.
MAX_PLACES, MAX_VALUES = 4, 64
#: Marks a place that only the rules of a narrowing asked for.
NARROWED = "narrow"
#: Items of a list, and URLs of a text, that are judged.
_MAX_ITEMS = 500
#: What an entry of the index takes besides its text, about.
_ENTRY = 128

#: A value as it is compared: ``1`` is ``1.0``, and not ``true``.
_Value: TypeAlias = "str | int | float | tuple[bool | None]"


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where a value stands.

    Attributes:
        call: The call whose answer has it; 0: the start of the run.

        path: The place there, as a JSON path.

        source: The source, as a rule writes it.
    """

    call: int
    path: str
    source: str


@dataclass(frozen=True, slots=True)
class Found:
    """
    What the sources say of a value.

    Attributes:
        places: Where it stands; of a list, where its items stand.

        holds: Whether it comes from the sources; ``None``: it cannot be judged.
    """

    places: tuple[Place, ...] = ()
    holds: bool | None = False


@dataclass(slots=True)
class _Given:
    """What the run was given of one source: free texts, and values at its path."""

    texts: Texts[str] = field(default_factory=lambda: Texts(token_keys))
    values: dict[_Value, str] = field(default_factory=dict["_Value", str])


class Sources:
    """
    What a run's events say about the sources of values.

    Args:
        wanted: What the rules ask for. Nothing else is kept.

        limit: Most bytes that are indexed, about. What is not found when they are
            spent cannot be judged.

    Attributes:
        size: Bytes that are indexed, about.
    """

    def __init__(self, wanted: Iterable[Wanted], limit: int) -> None:
        every = tuple(wanted)
        origins = dict.fromkeys(o for one in every for o in one.all_origins)
        mentions = dict.fromkeys(one.mention for one in every if one.mention)
        self.size = 0
        self._limit = limit
        self._given = {o: _Given() for o in origins if o.tool is None}
        self._values: dict[Origin, dict[_Value, int]] = {
            o: {} for o in origins if o.tool
        }
        self._documents = {m: Texts[tuple[int, str]](token_keys) for m in mentions}
        #: The values at the paths of mentions.
        self._placed: dict[Mention, dict[_Value, int]] = {m: {} for m in mentions}
        self._echoes = Texts[int](word_keys)
        #: The number of the event that was no longer indexed.
        self._full: int | None = None
        self._now = 0
        self._calls: dict[int, ToolInvoked] = {}
        #: The number of the event, and its data.
        self._answers: dict[int, tuple[int, JSON]] = {}
        self._known: dict[tuple[Wanted, _Value], Found] = {}
        self._births: dict[_Value, int] = {}

    # -- the fold --------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold *event* into the state. Events that have no values are ignored."""
        self._now += 1
        self._known.clear()
        self._births.clear()
        if isinstance(event, RunStarted):
            self._note_start(event)
        elif isinstance(event, ToolInvoked):
            self._note_call(event)
        elif isinstance(event, (ToolCompleted, ToolFailed)):
            self._note_end(event)

    def _note_start(self, started: RunStarted) -> None:
        read = {*map(str, _beside_variables(started)), *unvouched(started)}
        for origin, given in self._given.items():
            if origin.kind == "input":
                self._give(origin, given, started.input, started.vouched)
            elif origin.name in started.context and origin.name not in read:
                self._give(origin, given, started.context[origin.name], None)

    def _give(
        self,
        origin: Origin,
        given: _Given,
        root: JSON,
        vouched: Payload | None,
    ) -> None:
        counts = _vouching(root, vouched)
        named = origin.kind == "context" or origin.path is not None
        places = selected(root, origin.path) if origin.path else iter([((), root)])
        for top, item in places:
            for keys, leaf in parts(item, top):
                if isinstance(leaf, (dict, list)) or not counts(keys):
                    continue
                if not self._take(leaf):
                    return
                if isinstance(leaf, str):
                    given.texts.add(leaf, written(keys))
                value = _comparable(leaf)
                if value is not None and (
                    (named and keys == top) or (type(value) in _NUMBERS and ways(leaf))
                ):
                    given.values.setdefault(value, written(keys))

    def _note_call(self, invoked: ToolInvoked) -> None:
        if self._values or self._documents:
            self._calls[invoked.call] = invoked
            if invoked.rule is not None:
                self._note_params(invoked)

    def _note_params(self, invoked: ToolInvoked) -> None:
        known = checked(invoked.sources)
        for keys, leaf in parts(invoked.params or {}):
            texts = [str(key) for key in leaf] if isinstance(leaf, dict) else []
            if not isinstance(leaf, (dict, list)) and written(keys) not in known:
                texts = [folded(leaf)]
            for text in texts:
                if self._take(text):
                    self._echoes.add(text.casefold(), self._now)

    def _note_end(self, done: ToolCompleted | ToolFailed) -> None:
        invoked = self._calls.get(done.call)
        if invoked is None:
            return
        if invoked.rule is None:
            # A fork inherits a call that its own grants do not allow: it was sent.
            self._note_params(invoked)
            self._now += 1
        if isinstance(done, ToolCompleted):
            self._note_answer(invoked, done)

    def _note_answer(self, invoked: ToolInvoked, done: ToolCompleted) -> None:
        if done.is_error or done.cut or done.withheld:
            return
        tool = invoked.server or "", invoked.tool or ""
        if tool[0] == AGENTS:
            return  # An agent's answer is never a source.
        self._answers[done.call] = self._now, done.data
        origins = [origin for origin in self._values if origin.tool == tool]
        roots = values_of(done.data) if origins else []
        for origin in origins:
            assert origin.path is not None  # noqa: S101 -- see `Origin.parse`
            self._note_values(self._values[origin], origin.path, done.call, roots)
        for mention in self._documents:
            if mention.tool == "/".join(tool) and self._is_named(mention, invoked):
                self._note_document(mention, done)

    def _note_document(self, mention: Mention, done: ToolCompleted) -> None:
        if mention.path is None:
            texts = texts_of(done.data)
        else:
            roots, values = values_of(done.data), self._placed[mention]
            self._note_values(values, mention.path, done.call, roots)
            texts = _texts_at(mention.path, roots)
        for keys, text in texts:
            if self._take(text):
                self._documents[mention].add(text, (done.call, written(keys)))

    def _note_values(
        self, values: dict[_Value, int], path: JsonPath, call: int, roots: list[JSON]
    ) -> None:
        for root in roots:
            for _, item in selected(root, path):
                value = _comparable(item)
                if value is None or value in values:
                    continue
                if not self._take(item):
                    return
                values[value] = call

    def _is_named(self, mention: Mention, invoked: ToolInvoked) -> bool:
        """Return whether the document that a call reads is named by trusted sources."""
        name = (invoked.params or {}).get(mention.param)
        return isinstance(name, str) and bool(
            self.find_one(name, Wanted(mention.by)).holds
        )

    def _take(self, leaf: JSON) -> bool:
        """Count what is indexed; return whether there is room for it."""
        size = _ENTRY + (len(leaf) if isinstance(leaf, str) else 0)
        if self._full is None and self.size + size > self._limit:
            self._full = self._now
        if self._full is not None:
            return False
        self.size += size
        return True

    # -- lookups ---------------------------------------------------------------

    def find(self, value: JSON, wanted: Wanted) -> Found:
        """
        Return where *value* comes from.

        Of a list, each item has to come from the sources; of a text whose URLs alone
        are judged, each URL. A map cannot be judged.
        """
        if wanted.links:
            urls = _bounded(links(value)) if isinstance(value, str) else None
            return self._each(urls, wanted)
        if isinstance(value, list):
            return self._each(_bounded(_leaves(value)), wanted)
        return self.find_one(value, wanted)

    def _each(self, values: list[JSON] | None, wanted: Wanted) -> Found:
        if values is None:
            return Found(holds=None)
        places: list[Place] = []
        judged = True
        for value in values:
            found = self.find_one(value, wanted)
            if found.holds is False:
                return found
            judged = judged and found.holds is True
            places += found.places
        return Found(tuple(dict.fromkeys(places))[:MAX_PLACES], judged or None)

    def find_one(self, value: JSON, wanted: Wanted) -> Found:
        """Return where one value comes from, or one URL."""
        known = _comparable(value)
        if known is None:
            return Found(holds=None)
        if (wanted, known) not in self._known:
            self._known[wanted, known] = self._found(value, known, wanted)
        return self._known[wanted, known]

    def _found(self, value: JSON, known: _Value, wanted: Wanted) -> Found:
        notations = ways(value)
        judged = notations is not None and self._full is None
        places: list[Place] = []
        for look in self._looks(value, known, wanted, notations or ()):
            if isinstance(look, TooCommon):
                judged = False
            elif len(places) < MAX_PLACES:
                places.append(look)
        return Found(tuple(places), bool(places) or (False if judged else None))

    def _looks(
        self, value: JSON, known: _Value, wanted: Wanted, notations: Sequence[Way]
    ) -> Iterator[Place | TooCommon]:
        """Yield where each source has a value, or that it cannot be judged."""
        for origin in wanted.origins:
            if origin.kind == "trusted":
                yield TooCommon()
            elif origin.tool is None:
                yield from self._look_given(origin, known, notations)
            elif (call := self._values[origin].get(known)) is not None and (
                origin.kind == "own" or self._is_first(call, value, known)
            ):
                yield Place(call, self._path(origin, call, known), origin.text)
        if wanted.mention:
            yield from self._look_mentioned(wanted.mention, value, known, notations)

    def _look_mentioned(
        self, mention: Mention, value: JSON, known: _Value, notations: Sequence[Way]
    ) -> Iterator[Place | TooCommon]:
        call = self._placed[mention].get(known)
        if call is not None and self._is_first(call, value, known):
            yield Place(call, self._path(mention, call, known), mention.text)
            return
        found = self._documents[mention].find(notations)
        if isinstance(found, TooCommon):
            yield found
        elif found is not None and self._is_first(found[0], value, known):
            yield Place(*found, mention.text)

    def _look_given(
        self, origin: Origin, known: _Value, notations: Sequence[Way]
    ) -> Iterator[Place | TooCommon]:
        given = self._given[origin]
        found = given.values.get(known) or given.texts.find(notations)
        if isinstance(found, TooCommon):
            yield found
        elif found is not None:
            yield Place(0, found, origin.text)

    def _is_first(self, call: int, value: JSON, known: _Value) -> bool:
        """Return whether an answer had a value before an unchecked parameter had it."""
        if known not in self._births:
            self._births[known] = self._born(value)
        return self._answers[call][0] < self._births[known]

    def _born(self, value: JSON) -> int:
        """
        Return the event that first had a value in an unchecked parameter.

        What cannot be judged was there from the start. What never was comes after all.
        """
        # Answers have no parameters, so the one that filled the index is judged.
        never = (self._now if self._full is None else self._full) + 1
        if not (found := traces(value)):
            return never if found == () else 0
        first = self._echoes.find(found)
        if isinstance(first, TooCommon):
            return 0
        return never if first is None else min(first, never)

    def _path(self, origin: Origin | Mention, call: int, known: _Value) -> str:
        assert origin.path is not None  # noqa: S101 -- it selected the value
        return next(
            written(keys)
            for root in values_of(self._answers[call][1])
            for keys, item in selected(root, origin.path)
            if _comparable(item) == known
        )


_NUMBERS = frozenset({int, float})
#: The marks of places that do not check a parameter.
_PARTIAL = frozenset({"url", NARROWED})


def _comparable(value: JSON) -> _Value | None:
    """Return a value as it is compared; ``None``: it cannot be."""
    if isinstance(value, (list, dict)) or (isinstance(value, str) and MASK in value):
        return None
    return (value,) if value is None or isinstance(value, bool) else value


def _leaves(value: JSON) -> Iterator[JSON]:
    """Yield the items of a list and of the lists in it."""
    for _, item in parts(value):
        if not isinstance(item, list):
            yield item


def _bounded(values: Iterable[JSON]) -> list[JSON] | None:
    found = [*islice(values, _MAX_ITEMS + 1)]
    return found if len(found) <= _MAX_ITEMS else None


def _vouching(root: JSON, vouched: Payload | None) -> Callable[[Keys], bool]:
    """Return whether a place of the input counts."""
    if vouched is None:
        return lambda _: True
    paths = cast("list[str]", vouched.get("input", []))
    tops = {keys for path in paths for keys, _ in selected(root, JsonPath.parse(path))}
    return lambda keys: any(keys[:size] in tops for size in range(len(keys) + 1))


def _beside_variables(started: RunStarted) -> Iterator[JSON]:
    """Yield the keys of resources of servers that may have replaced a variable."""
    below = cast("dict[str, dict[str, JSON]]", started.context.get("resources", {}))
    read = cast("dict[str, list[dict[str, JSON]]]", started.resources or {})
    for server, entries in read.items():
        for entry in entries:
            if "error" not in entry and entry["key"] not in below.get(server, {}):
                yield entry["key"]


def unvouched(started: RunStarted) -> Iterator[str]:
    """Yield the variables that are no source of values: a caller gave them."""
    vouched = (started.vouched or {}).get("context")
    if isinstance(vouched, list):
        yield from started.context.keys() - set(map(str, vouched))


def checked(sources: Payload | None) -> frozenset[str]:
    """
    Return the parameters whose values the run was given at its start.

    The URLs of a text do not speak for the text, and a narrowing not for the operator:
    its rules could otherwise excuse an echo, and so widen the grant.
    """
    places = cast("Mapping[str, list[dict[str, JSON]]]", sources or {})
    return frozenset(
        path
        for path, found in places.items()
        if any(one["call"] == 0 and not one.keys() & _PARTIAL for one in found)
    )


def texts_of(data: JSON) -> Iterator[tuple[Keys, str]]:
    """Yield the free texts of an answer, names of entries too, with their places."""
    if not isinstance(data, dict):
        return
    if STRUCTURED in data:
        yield from _texts(data[STRUCTURED], (STRUCTURED,))
        return
    for keys, leaf in parts(data.get("content"), ("content",)):
        if isinstance(leaf, str) and keys[-1] == "text":
            yield keys, leaf


def _texts(value: JSON, top: Keys) -> Iterator[tuple[Keys, str]]:
    for keys, leaf in parts(value, top):
        if isinstance(leaf, dict):
            yield from ((keys, name) for name in leaf)
        elif isinstance(leaf, str):
            yield keys, leaf
        elif type(leaf) in _NUMBERS:
            yield keys, str(leaf)


def _texts_at(path: JsonPath, roots: Iterable[JSON]) -> Iterator[tuple[Keys, str]]:
    for root in roots:
        for top, item in selected(root, path):
            yield from _texts(item, top)


def places_in(value: JSON, data: JSON) -> Iterator[str]:
    """
    Yield every place of *data* that has a value: as a whole, or in a free text.

    >>> [*places_in("bob", {"to": "bob", "note": "ask bob", "cc": ["bobby"]})]
    ['$.to', '$.note']
    """
    known = _comparable(value)
    for keys, item in parts(data):
        if known is not None and (
            _comparable(item) == known
            or (isinstance(item, str) and stands(value, item) >= 0)
        ):
            yield written(keys)
