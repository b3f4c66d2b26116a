"""Hints: how a grant would have to change to allow a call that it denies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

from ...errors import ConditionError
from ..calls import JSON
from ..grants.budgets import CallCount
from ..grants.conditions import Conditions
from ..grants.constraints import Failure
from ..grants.decisions import Attempt, Refusal, Stage, Tally, considered
from ..grants.grants import Grant, Rule
from ..names import meant_tool
from ..text.globs import Pattern
from ..text.toml_text import key_text, value_text
from .rejudge import Explanation
from .suggest import Observed, spelled


def grant_for(table: str, target: str) -> str:
    """
    Return the grant of *target*, to paste into a configuration.

    >>> print(grant_for("agents.weather", "demo/echo"))
    [[agents.weather.allow]]
    tools = ["demo/echo"]
    """
    return f'[[{table}.allow]]\ntools = ["{target}"]'


def unoffered(name: str, servers: Iterable[str], grant: Grant) -> str | None:
    """
    Return a hint if a name leads to no tool, but the tool that it means is granted.

    Args:
        name: The name of a denied call. The catalogue of the run does not have it.

        servers: The servers that were asked for their tools.

        grant: The grant of the run.
    """
    target = meant_tool(name, servers)
    if target is None or not grant.speaking(*target)[1]:
        return None
    server, tool = target
    return (
        f"# {server}/{tool} is granted, but {server} did not offer it to this run;\n"
        f"# caxton server tools {server} shows what it offers, and warns of what was "
        "left out"
    )


def when(at: int) -> str:
    """
    Format a time as in a configuration.

    >>> when(1_700_000_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def remedy(table: str, explained: Explanation) -> str | None:
    """
    Return how the grant of an agent would have to change to allow a call.

    ``None`` if the call is allowed, or if its name leads to no tool.

    Args:
        table: The table of the agent; see `table_of`.

        explained: The verdict of its grant.
    """
    attempt = explained.attempt
    if attempt.route is None:
        return None
    if explained.code == "not_granted":
        return grant_for(table, f"{attempt.route.server}/{attempt.route.tool}")
    for one in explained.considered:
        if one.rule.id != explained.rule:
            continue
        if one.kind == "deny":
            return (
                f"# {named_rule(one.rule)} forbids it, whatever allows it: narrow that"
            )
        if one.refusal:
            lines = _lines(one.rule, one.refusal, attempt, explained.tally)
            return "\n".join([f"# in {named_rule(one.rule)}:", *lines])
    return None


def named_rule(rule: Rule) -> str:
    """Return a rule as hints name it, with the place where it is written."""
    return f"{rule.id} ({rule.source})" if rule.source else rule.id


def _lines(
    rule: Rule, refusal: Refusal | None, attempt: Attempt, tally: Tally
) -> Iterator[str]:
    """Yield a line for each refusal of a rule, one after the other."""
    while refusal:
        loosen = _LOOSER.get(refusal.code)
        found = loosen(rule, attempt, tally) if loosen else None
        if found is None:
            yield f"# {refusal.message}"
            return
        rule, line = found
        yield line
        (one,) = considered(Grant(allow=(rule,)), attempt, tally)
        refusal = one.refusal


def _later(rule: Rule, _: Attempt, __: Tally) -> tuple[Rule, str]:
    then = when(rule.expires or 0)
    line = f"# expires = {then} is over: remove it, or write a later time"
    return replace(rule, expires=None), line


def _reordered(rule: Rule, _: Attempt, tally: Tally) -> tuple[Rule, str]:
    lacking = [
        pattern
        for pattern in rule.only_after
        if not any(pattern.matches(*tool) for tool in tally.done)
    ]
    if lacking:
        line = f"# only_after: call {_texts(lacking)} first, in the same run"
        return replace(rule, only_after=()), line
    line = f"# unless_after: call it before {_texts(rule.unless_after)}"
    return replace(rule, unless_after=()), line


def _texts(patterns: Iterable[Pattern]) -> str:
    return ", ".join(pattern.text for pattern in patterns)


def _larger(rule: Rule, attempt: Attempt, _: Tally) -> tuple[Rule, str]:
    line = f'max_params = "{attempt.size} B"'
    return replace(rule, max_params=attempt.size), line


def _more(rule: Rule, _: Attempt, tally: Tally) -> tuple[Rule, str] | None:
    calls = tally.used[rule.id] + 1
    if rule.calls is None or calls <= rule.calls:
        return None  # Another budget, which is full again in the next period.
    shared = [b for b in rule.budgets if isinstance(b, CallCount)]
    texts: list[JSON] = [f"{calls}/run", *(f"{b.limit}/{b.per}" for b in shared)]
    line = f"calls = {value_text(texts if shared else texts[0])}"
    return replace(rule, calls=calls), line


def _wider(rule: Rule, attempt: Attempt, _: Tally) -> tuple[Rule, str]:
    """Relax the condition that the value fails, or describe it if that is not plain."""
    params = rule.params
    failure = params and _failure(params, rule, attempt)
    assert params  # noqa: S101 -- or nothing had refused
    assert failure  # noqa: S101 -- as above
    looser = loosened(params.to_payload(), failure, attempt.params)
    if looser is not None:
        name, condition = looser
        wider = _parsed({**params.to_payload(), name: condition})
        after = _failure(wider, rule, attempt) if wider else failure
        if after is None or after.path != failure.path:
            line = f"params.{key_text(name)} = {value_text(condition)}"
            return replace(rule, params=wider), line
    wanted = "" if failure.wanted is None else _wanted(failure)
    return replace(rule, params=None), f"# {failure.message}{wanted}"


def _wanted(failure: Failure) -> str:
    return f": {failure.kind} = {value_text(failure.wanted)}"


def _failure(params: Conditions, rule: Rule, attempt: Attempt) -> Failure | None:
    return params.failure(
        attempt.params,
        attempt.matches,
        sources=attempt.sources,
        others=rule.other_params,
    )


def _parsed(spec: dict[str, JSON]) -> Conditions | None:
    try:
        return Conditions.parse(spec)
    except ConditionError:
        return None


_LOOSER: Mapping[Stage, Callable[[Rule, Attempt, Tally], tuple[Rule, str] | None]] = {
    "expired": _later,
    "order": _reordered,
    "too_large": _larger,
    "params": _wider,
    "budget": _more,
}


_Said: TypeAlias = dict[str, JSON]
_Make: TypeAlias = Callable[[_Said, JSON], _Said]


def loosened(
    known: Mapping[str, JSON], failure: Failure, params: Mapping[str, JSON]
) -> tuple[str, dict[str, JSON]] | None:
    """
    Return the name of a parameter and a relaxed condition that accepts its value.

    ``None`` if that is not plain: the failure is of a part without a name of its own,
    or of a pattern, a path or a URL.

    >>> known = {"days": {"type": "integer", "max": 7}}
    >>> loosened(known, Failure(("days",), "max", 7, True), {"days": 9})
    ('days', {'type': 'integer', 'max': 9})

    Args:
        known: The conditions, by name.

        failure: Why *params* fail them.

        params: The parameters of the call.
    """
    steps = [step for step in failure.at if isinstance(step, str)]
    name = ".".join(map(spelled, steps))
    condition = known.get(name, {} if failure.kind == "other" else None)
    make = _MAKERS.get(failure.kind)
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


_MAKERS: Mapping[str, _Make] = {
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
