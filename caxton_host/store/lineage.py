"""Which runs were forked from which: what a fork begins with is in the other's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from ..core.log.events import Event, RunStarted, from_payload
from ..core.names import RUN, run_of
from ..errors import LogBrokenError
from ..lib.codec import decode_trusted
from .rows import rows
from .schema import events, payloads


def parent_of(started: Event | None) -> str | None:
    """Return the run that a run was forked from, by its first event."""
    fork = started.forked_from if isinstance(started, RunStarted) else None
    return str(fork["run"]) if fork else None


def parent_in(type_: str, version: int, payload: bytes) -> str | None:
    """Return the same by what is stored. A run whose start is damaged goes nowhere."""
    try:
        return parent_of(from_payload(type_, version, decode_trusted(payload)))
    except (LogBrokenError, ValueError, TypeError, KeyError, AttributeError):
        return None


def heir_of(
    run_id: str, going_on: Iterable[str], parent: Callable[[str], str | None]
) -> str | None:
    """
    Return the first of the runs *going_on* that comes from a run.

    Args:
        run_id: The run.

        going_on: Their ids.

        parent: The run that a run was forked from.
    """
    return next((one for one in going_on if run_id in _lineage(one, parent)), None)


def _lineage(run_id: str, parent: Callable[[str], str | None]) -> Sequence[str]:
    found: list[str] = []
    one = parent(run_id)
    while one is not None and one not in found:
        found.append(one)
        one = parent(one)
    return found


def parents(connection: sa.Connection) -> dict[str, str | None]:
    """Return each run that is not erased, and what it was forked from."""
    query = (
        sa.select(
            events.c.stream, events.c.type, events.c.schema_version, payloads.c.payload
        )
        .join_from(events, payloads)
        .where(events.c.seq == 1, events.c.stream.startswith(RUN))
    )
    found: dict[str, Any] = {}
    for stream, *started in rows(connection, query):
        found[run_of(stream)] = parent_in(*started)
    return found


def forks_first(
    run_ids: Sequence[str], known: Mapping[str, str | None]
) -> Sequence[str]:
    """
    Return those of some runs that no other needs, forks before what they come from.

    Args:
        run_ids: The runs, in the order that is wanted otherwise.

        known: What each run that is not erased was forked from.
    """
    leaving = set(run_ids)
    needed: set[str] = set()
    forks: dict[str, list[str]] = {}
    for run_id in known:
        lineage = _lineage(run_id, known.get)
        if run_id not in leaving:
            needed.update(lineage)
        for one in lineage:
            forks.setdefault(one, []).append(run_id)
    order: dict[str, None] = {}
    for run_id in run_ids:
        if run_id not in needed:
            # A fork of a fork has the longer lineage.
            own = [one for one in forks.get(run_id, ()) if one in leaving]
            own.sort(key=lambda one: -len(_lineage(one, known.get)))
            order |= dict.fromkeys([*own, run_id])
    return list(order)
