"""
Provenance: where the values of a call came from. Pure functions of a run's events.

    origins    the grammar of sources: `Origin`, `Mention`, `Wanted`
    matching   where a value stands in a text
    links      the URLs in a text
    texts      an index of free texts
    sources    the fold of a run's events, and the lookups of a decision
"""

from __future__ import annotations

from .links import links
from .matching import stands
from .origins import Mention, Origin, Wanted, trusting
from .sources import (
    MAX_PLACES,
    MAX_VALUES,
    NARROWED,
    Found,
    Place,
    Sources,
    checked,
    places_in,
    unvouched,
)

__all__ = [
    "MAX_PLACES",
    "MAX_VALUES",
    "NARROWED",
    "Found",
    "Mention",
    "Origin",
    "Place",
    "Sources",
    "Wanted",
    "checked",
    "links",
    "places_in",
    "stands",
    "trusting",
    "unvouched",
]
