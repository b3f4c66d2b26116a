"""
What rules found about the sources of a call's values, as its intent records it.

It is shown to people who are asked about the call, and tells which parameters were
checked: see `provenance.checked`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import cast

from ..calls import JSON
from ..log.events import Payload
from ..provenance import (
    MAX_PLACES,
    MAX_VALUES,
    NARROWED,
    Found,
    Sources,
    Wanted,
    links,
)
from ..text.jsonpath import Keys, parts, written
from .grants import Rule

_MAX_NAME, _MAX_URL = 64, 200


def findings(
    rules: Iterable[Rule],
    params: Mapping[str, JSON],
    sources: Sources,
    narrowing: Iterable[Rule] = (),
) -> Payload | None:
    """
    Return ``ToolInvoked.sources``; ``None``: no rule asks where a value came from.

    Args:
        rules: The rules of the operator that judged the call.

        params: Its parameters.

        sources: What the run knows.

        narrowing: The rules of narrowings that judged it. Callers wrote them, so what
            only they found is marked, and checks no parameter.
    """
    found: dict[str, list[dict[str, JSON]]] = {}
    for several, narrows in ((rules, False), (narrowing, True)):
        for path, place in _all_found(several, params, sources):
            if path not in found and len(found) == MAX_VALUES:
                continue
            known = found.setdefault(path, [])
            if place is None or place in known or len(known) == MAX_PLACES:
                continue
            said: dict[str, JSON] = {**place, NARROWED: True} if narrows else place
            known += [] if said in known else [said]
    return cast("Payload", found) or None


def _all_found(
    rules: Iterable[Rule], params: Mapping[str, JSON], sources: Sources
) -> Iterator[tuple[str, dict[str, JSON] | None]]:
    """Yield each value that rules look at, by its path, and each place that has it."""
    for rule in rules:
        for conditions in rule.conditions:
            for keys, value, wanted in conditions.root.looked({**params}):
                for path, places in _found(keys, value, wanted, sources):
                    yield path, None
                    yield from ((path, place) for place in places)


def _found(
    keys: Keys, value: JSON, wanted: Wanted, sources: Sources
) -> Iterator[tuple[str, list[dict[str, JSON]]]]:
    """Yield the places of a value, or of each item of a list, by its path."""
    for at, part in parts(value, keys):
        # The path has no longer names, so two parameters could share one.
        if isinstance(part, list) or any(len(str(key)) > _MAX_NAME for key in at):
            continue
        if not wanted.links:
            yield written(at), _places(sources.find_one(part, wanted))
        elif isinstance(part, str):
            urls = [
                url for url in islice(links(part), MAX_PLACES) if len(url) <= _MAX_URL
            ]
            found = ((url, _places(sources.find_one(url, wanted))) for url in urls)
            yield written(at), [{**one[0], "url": url} for url, one in found if one]


def _places(found: Found) -> list[dict[str, JSON]]:
    return [
        {"call": place.call, "path": place.path, "source": place.source}
        for place in found.places
    ]
