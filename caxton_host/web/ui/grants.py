"""The page of an agent: its rules, what they did, and a box to try another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from ...core.analysis.rejudge import ALLOWED, ASKS
from ...core.calls import JSON
from ...errors import ForbiddenError
from .asking import Action, Asking, Fields, Shown, View
from .views import micros

#: Events that are read where nothing is tried: the page must come at once.
_GLANCE = 10_000
_WEEK = timedelta(days=7)
_TIME = "%Y-%m-%dT%H:%M"
#: Of a cell: what it is called, and the class of its colour.
_MAY = {
    "yes": ("allowed", "ok"),
    "if": ("only with bounds", "waits"),
    "asks": ("needs approval", "waits"),
    "deny": ("denied", "denied"),
    "-": ("denied: no rule allows it", "denied"),
}


async def agent(asking: Asking) -> Shown:
    """Show an agent."""
    query = asking.request.query_params
    return await _shown(asking, asking.request.path_params["agent"], query)


async def tried(asking: Asking, fields: Fields) -> Shown:
    """Show an agent, and what a changed rule would have done."""
    # A text of some length fits into no address.
    return await _shown(asking, fields["name"], fields)


async def _shown(asking: Asking, name: str, said: Fields) -> Shown:
    found = await asking.of("showGrants", name=name)
    given = {key: said.get(key, "") for key in ("rule", "toml", "since", "until")}
    given["toml"] = given["toml"].replace("\r\n", "\n")  # As forms send lines.
    # The text may be empty: then the rule is taken away.
    tried = "toml" in said
    body: dict[str, JSON] = {} if tried else {"events": _GLANCE}
    body |= {key: micros(key, given[key]) for key in ("since", "until") if given[key]}
    if tried:
        body |= {key: given[key] for key in ("rule", "toml") if given[key]}
    history = None
    with suppress(ForbiddenError):
        history = await asking.of("judgeHistory", body=body, name=name)
    week_ago = datetime.fromtimestamp(asking.now / 1e6, UTC) - _WEEK
    return Shown(
        template="agent",
        title=name,
        values={
            **found,
            "cells": [(one, *_MAY[_may(one)]) for one in found["tools"]],
            "history": history,
            "given": given,
            "tried": tried and history,
            "changes": _sorted(history["changes"]) if history else [],
            "place": _place(found["rules"], given["rule"]),
            "week_ago": f"{week_ago:{_TIME}}",
        },
    )


def _may(cell: Mapping[str, Any]) -> str:
    return "asks" if cell["asks"] else cell["may"]


def _place(rules: list[dict[str, Any]], wanted: str) -> str:
    """Return where a rule is written."""
    return next((one["source"] for one in rules if one["id"] == wanted), "")


def _sorted(changes: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return changed decisions with the kind of change, by that."""
    return sorted(((_change(one), one) for one in changes), key=lambda one: one[0])


def _change(one: Mapping[str, Any]) -> str:
    """
    Return what changes for a call.

    >>> verdicts = ("allowed", "params"), ("asks", "allowed"), ("rate", "asks")
    >>> [_change({"was": {"verdict": a}, "now": {"verdict": b}}) for a, b in verdicts]
    ['newly denied', 'no longer asks', 'newly asks']
    """
    was, now = one["was"]["verdict"], one["now"]["verdict"]
    if now == ASKS:
        return "newly asks"
    if now != ALLOWED:
        return "newly denied"
    return "no longer asks" if was == ASKS else "newly allowed"


#: Paths below ``/ui``, and their pages.
VIEWS: Mapping[str, View] = {"/agents/{agent}": agent}
ACTIONS: Mapping[str, tuple[Action, str]] = {"judgeHistory": (tried, "")}
