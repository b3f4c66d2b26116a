"""A condition that a value fails, as the least one more that takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..calls import JSON
from ..grants.compare_params import Failure
from .infer_constraint import Observed, spelled

_Said: TypeAlias = dict[str, JSON]
_Make: TypeAlias = Callable[[_Said, JSON], _Said]


def loosened(
    known: Mapping[str, JSON], failure: Failure, params: Mapping[str, JSON]
) -> tuple[str, dict[str, JSON]] | None:
    """
    Return the name of a parameter and the condition on it that would take its value.

    None, if that is not plain: the failure is of a part that has no name of its own, or
    of a pattern, a path or an address.

    >>> known = {"days": {"type": "integer", "max": 7}}
    >>> loosened(known, Failure(("days",), "max", 7, True), {"days": 9})
    ('days', {'type': 'integer', 'max': 9})

    Args:
        known: The conditions, by name.

        failure: Why they do not take *params*.

        params: Of the call.
    """
    steps = [step for step in failure.at if isinstance(step, str)]
    name = ".".join(map(spelled, steps))
    condition = known.get(name, {} if failure.kind == "other" else None)
    make = _LOOSER.get(failure.kind)
    if len(steps) < len(failure.at) or make is None or not isinstance(condition, dict):
        return None
    return name, make(condition, _value(params, steps))


def _value(params: Mapping[str, JSON], steps: list[str]) -> JSON:
    value: JSON = dict(params)
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _seen(_: _Said, value: JSON) -> _Said:
    seen = Observed()
    seen.take(value)
    return seen.condition()[0]


def _retyped(said: _Said, value: JSON) -> _Said:
    return _seen(said, value) | _optional(said)


def _missing(said: _Said, _: JSON) -> _Said:
    return {**said, "optional": True}


def _listed(said: _Said, value: JSON) -> _Said:
    listed = said.get("one_of", [said.get("const")])
    values = listed if isinstance(listed, list) else []
    return {"one_of": [*values, value], **_optional(said)}


def _optional(said: _Said) -> _Said:
    return {"optional": True} if "optional" in said else {}


def _bounded(name: str) -> _Make:
    def make(said: _Said, value: JSON) -> _Said:
        size = len(value) if isinstance(value, (str, list)) else value
        if size == 0 and name.startswith("min_"):
            return {key: constraint for key, constraint in said.items() if key != name}
        return {**said, name: size}

    return make


_LOOSER: Mapping[str, _Make] = {
    "other": _seen,
    "missing": _missing,
    "type": _retyped,
    "const": _listed,
    "one_of": _listed,
    **{
        name: _bounded(name)
        for name in (
            *("min", "max", "min_length", "max_length"),
            *("min_items", "max_items"),
        )
    },
}
