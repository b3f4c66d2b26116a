"""
Measure the cost of a decision, also for values that are chosen to be expensive.

Times are processor time of the deciding thread, because other load on the machine
would distort the 99.9th percentile. Values are 64 KiB, the limit for the parameters of
a call. Each repeats a part that is expensive for its constraint, with other parts at
some places.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import shake_256
from pathlib import Path
from typing import Any, cast

from caxton_host.core.calls import JSON, Route
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.decisions import Allowed, Attempt, Tally, decide
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.core.tools.schemas import Mismatch
from caxton_host.lib.json_schema import fits, input_check

from .page import Figure, Section

_SIZE = 64 * 1024
_EACH = 10_000
_DECISIONS = 5_000
_ROUTE = Route(server="github", tool="create_issue")
_PARAMS: dict[str, JSON] = {
    "repo": "acme/site",
    "title": "Broken link on the front page",
    "labels": ["bug", "question"],
    "priority": 3,
    "ref": "WEB-1234",
}
_SCHEMA: dict[str, JSON] = {
    "type": "object",
    "properties": {
        "repo": {"type": "string"},
        "title": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "priority": {"type": "integer"},
        "ref": {"type": "string"},
    },
    "required": [*_PARAMS],
}

#: The rule that all engines can express; Cedar has no length of a text.
_CEL = (
    'server == "github" && tool == "create_issue" && repo.matches("^acme/[^/]*$")'
    ' && priority >= 1 && priority <= 5 && labels.all(x, x in ["bug", "question"])'
)
_CEDAR = """
permit(principal, action, resource) when {
  context.server == "github" && context.tool == "create_issue"
  && context.repo like "acme/*" && context.priority >= 1 && context.priority <= 5
  && ["bug", "question"].containsAll(context.labels)
};
"""
_FORBID = """
permit(principal, action, resource);
forbid(principal, action, resource) when { context.amount > 100 };
"""

#: For each kind: the constraint, and parts of values that are expensive for it.
_HARD: Mapping[str, tuple[JSON, tuple[str, ...]]] = {
    "const": ({"const": "a" * _SIZE + "b"}, ("a",)),
    "one_of": ({"one_of": ["a" * n for n in range(1, 500)]}, ("a", "ab")),
    "max_length": ({"max_length": 2 * _SIZE}, ("a", "\u00e9")),
    "pattern": ({"pattern": "(a+)+b|([a-z]+/?)*|.*x.*y"}, ("a", "a/", "ab", "x")),
    "glob": ({"glob": "*aab*ab*b"}, ("a", "ab", "/", "aa/")),
    "glob with **": ({"glob": "a/**/*b*/c"}, ("a/", "/", "a", "/b")),
    "path": ({"path": {"inside": ["/a"]}}, ("/a", "/", "../", "%2e", "\u2025")),
    "url": ({"url": {"host": "**.a.org"}}, ("https://a.", "a.", "%", "[", "/../")),
    "each": ({"each": {"glob": "*a*"}}, ("a", "ab")),
    "keys": ({"keys": {"names": {"pattern": "[a-z0-9]+"}}}, ("a", "ab")),
    "has": ({"has": {"a": {"max_length": 5, "optional": True}}}, ("a", "ab")),
}
#: Characters of one item, where a value is a list or a map.
_ITEM = 140


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the cost of decisions."""
    del folder
    rounds = range(options.rounds)
    spread, crowded = _grant(spread=True), _grant(spread=False)
    check = input_check(_SCHEMA)
    figures = [
        Figure(
            "50 rules with 5 constraints each, one matches the tool",
            [_median(_deciding(spread)) for _ in rounds],
            "us",
            (15.0, False),
        ),
        Figure(
            "the same, with the schema of the tool",
            [_median(_deciding(spread, check)) for _ in rounds],
            "us",
        ),
        Figure(
            "the same rules, all match the tool, the last allows",
            [_median(_deciding(crowded)) for _ in rounds],
            "us",
        ),
        *(
            Figure(f"{_EACH:,} of 64 KiB, p99.9: {kind}", [_worst(kind)], "ms", _MOST)
            for kind in _HARD
        ),
        *(
            Figure(f"one rule, {name}", [_median(call) for _ in rounds], "us")
            for name, call in _engines().items()
        ),
    ]
    return Section(
        "decisions",
        "Decisions",
        "A call of `github/create_issue` with five parameters: a glob, a length, a "
        "list of labels, bounds and a pattern. Then values of 64 KiB, each chosen to "
        "be expensive for one constraint; `path` and `url` reject a text of that "
        "length without reading it. Then one rule, precompiled, in four engines. All "
        "times are processor time.",
        figures,
        [_failing()],
    )


_MOST = (1.0, False)
_MIDDLE, _RULES = 25, 50


def _rule(number: int, tool: str, repo: str) -> Rule:
    params: dict[str, JSON] = {
        "repo": {"glob": repo},
        "title": {"max_length": 120},
        "labels": {"each": {"one_of": ["bug", "question"]}, "max_items": 3},
        "priority": {"type": "integer", "min": 1, "max": 5},
        "ref": {"pattern": "[A-Z]{2,5}-[0-9]+"},
    }
    return Rule(
        id=f"allow[{number}]",
        tools=(Pattern.parse(tool),),
        params=Conditions.parse(params),
    )


def _grant(*, spread: bool) -> Grant:
    def one(number: int) -> Rule:
        if spread:
            tool = "create_issue" if number == _MIDDLE else f"tool_{number}_*"
            return _rule(number, f"github/{tool}", "acme/*")
        org = "acme" if number == _RULES else f"org{number}"
        return _rule(number, "github/create_*", f"{org}/*")

    return Grant(allow=tuple(map(one, range(1, _RULES + 1))))


def _deciding(
    grant: Grant, schema: Callable[[JSON], Mismatch | None] | None = None
) -> Callable[[], bool]:
    tally = Tally()

    def decided() -> bool:
        attempt = Attempt(
            route=_ROUTE,
            params=_PARAMS,
            size=100,
            matches=fits,
            schema=schema,
        )
        return isinstance(decide(grant, attempt, tally), Allowed)

    return decided


def times(calls: Iterator[Callable[[], object]]) -> list[int]:
    """Return the duration of each call in nanoseconds, sorted."""
    clock = time.thread_time_ns
    found: list[int] = []
    for call in calls:
        before = clock()
        call()
        found.append(clock() - before)
    return sorted(found)


def _median(call: Callable[[], bool]) -> float:
    assert call(), "the call was not allowed"  # noqa: S101 -- or nothing is measured
    found = times(call for _ in range(_DECISIONS))
    return found[len(found) // 2] / 1000


def _worst(kind: str) -> float:
    """Return the 99.9th percentile over the values of a kind, in milliseconds."""
    spec, parts = _HARD[kind]
    conditions = Conditions.parse({"a": spec})

    def calls() -> Iterator[Callable[[], object]]:
        for number in range(_EACH):
            params = {"a": _value(kind, parts, number)}
            yield partial(conditions.failure, params, fits)

    found = times(calls())
    return found[len(found) * 999 // 1000] / 1e6


def _value(kind: str, parts: tuple[str, ...], number: int) -> JSON:
    """Return a value of 64 KiB: one of the *parts* repeated, others at some places."""
    drawn = shake_256(f"{kind} {number}".encode()).digest(12)
    part = parts[drawn[0] % len(parts)]
    text = part * (_SIZE // len(part.encode()))
    for at in range(drawn[1] % 4):
        place = int.from_bytes(drawn[2 + 2 * at : 4 + 2 * at]) % len(text)
        text = text[:place] + parts[drawn[10] % len(parts)] + text[place:]
    items = [f"{text[at : at + _ITEM]}{at}" for at in range(0, len(text), _ITEM)]
    if kind == "each":
        return [*items]
    return dict.fromkeys(items, 1) if kind in {"keys", "has"} else text


def _engines() -> dict[str, Callable[[], bool]]:
    import cedarpy  # noqa: PLC0415 -- in an extra
    import cel  # noqa: PLC0415 -- as above
    import celpy  # noqa: PLC0415 -- as above
    from celpy.adapter import json_to_cel  # noqa: PLC0415 -- as above

    named = {"server": "github", "tool": "create_issue", **_PARAMS}
    rust = cel.compile(_CEL)
    environment = celpy.Environment()
    program = environment.program(environment.compile(_CEL))
    policies = cedarpy.PolicySet.from_str(_CEDAR)
    request = {
        "principal": 'Agent::"a"',
        "action": 'Action::"call"',
        "resource": 'Tool::"t"',
        "context": named,
    }
    params: dict[str, JSON] = {
        "repo": {"glob": "acme/*"},
        "priority": {"min": 1, "max": 5},
        "labels": {"each": {"one_of": ["bug", "question"]}},
    }
    rule = Rule(
        id="allow[1]",
        tools=(Pattern.parse("github/create_issue"),),
        params=Conditions.parse(params),
        other_params=True,
    )
    return {
        "caxton": _deciding(Grant(allow=(rule,))),
        "common-expression-language": lambda: rust.execute(named) is True,
        "cel-python": lambda: bool(program.evaluate(cast("Any", json_to_cel(named)))),
        "cedarpy": lambda: cedarpy.is_authorized(request, policies, []).allowed,
    }


def _failing() -> str:
    """Describe how each engine treats a deny rule whose parameter is missing."""
    import cedarpy  # noqa: PLC0415 -- in an extra

    request = {
        "principal": 'Agent::"a"',
        "action": 'Action::"call"',
        "resource": 'Tool::"t"',
        "context": {},
    }
    cedar = cedarpy.is_authorized(request, _FORBID, []).allowed
    deny = Rule(
        id="deny[1]",
        tools=(Pattern.parse("bank/*"),),
        params=Conditions.parse({"amount": {"min": 101}}, deny=True),
    )
    every = Rule(id="allow[1]", tools=deny.tools)
    attempt = Attempt(route=Route(server="bank", tool="transfer"))
    ours = decide(Grant(allow=(every,), deny=(deny,)), attempt, Tally())
    words = {True: "allows", False: "denies"}
    return (
        "For a deny rule on amounts over 100 and a call without an amount, Cedar "
        f"{words[cedar]} the call and caxton {words[isinstance(ours, Allowed)]} it. "
        "Both CEL engines raise an error, which their caller has to treat as a denial."
    )
