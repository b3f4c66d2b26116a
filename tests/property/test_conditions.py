"""Conditions and decisions, for any specification and any value."""

from __future__ import annotations

import json
import posixpath
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Denied, Route
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.constraints import CONSTRAINTS
from caxton_host.core.grants.decisions import (
    Allowed,
    Attempt,
    Tally,
    considered,
    decide,
)
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Glob, Pattern
from caxton_host.errors import ConditionError
from caxton_host.lib.json_schema import fits
from tests.scene import JSON_VALUES

ECHO = Route(server="demo", tool="echo")
TOOLS = (Pattern.parse("demo/*"),)

_TEXTS = st.sampled_from(
    [
        "",
        "a",
        "/a",
        "/a/b",
        "/a/../b",
        "file:///a/b",
        "file:///a%2fb",
        "https://a.org/b",
        "https://a.org:8443",
        "http://127.0.0.1/",
        "https://[::1]/",
        "https://0x7f.1/",
        "https://u@a.org/",
        "a*",
        "**",
        "[a-z]+",
        "\0",
        "\u202e",
        "\uff0f",
    ]
) | st.text(max_size=8)
_NAMES = st.sampled_from(["a", "b", "a.b", "a\\.b"])
VALUES: st.SearchStrategy[JSON] = st.recursive(
    _TEXTS | st.integers(-2, 2) | st.sampled_from([None, True, False, 1.0, 0.5]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=2)
    ),
    max_leaves=6,
)
PARAMS = st.dictionaries(_NAMES, VALUES | JSON_VALUES, max_size=3)


def _likely(below: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    """Return tables that are conditions, or nearly."""
    numbers, counts = st.integers(-2, 3) | st.just(0.5), st.integers(1, 3)
    wanted: dict[str, st.SearchStrategy[JSON]] = {
        "type": st.sampled_from(["string", "integer", "number", "array", "object"]),
        "const": VALUES,
        "one_of": st.lists(VALUES, min_size=1, max_size=3),
        "min": numbers,
        "max": numbers,
        "min_length": counts,
        "max_length": counts,
        "min_items": counts,
        "max_items": counts,
        "pattern": st.sampled_from(["a", "[a-z/:]+", ".*", "(a|b)*"]),
        "glob": st.sampled_from(["a", "*", "/a/**", "*a*b"]),
        "path": st.sampled_from(["/", "/a"]).map(lambda root: {"inside": [root]}),
        "url": st.sampled_from(
            [{}, {"host": "a.org"}, {"host": "**.org", "path": "/*"}]
        ),
        "each": below,
        "some": below,
        "has": st.dictionaries(_NAMES, below, min_size=1, max_size=2),
        "keys": st.fixed_dictionaries({"values": below}),
        "optional": st.booleans(),
    }
    one = st.sampled_from(sorted(wanted)).flatmap(
        lambda name: wanted[name].map(lambda said: {name: said})
    )
    return st.lists(one, min_size=1, max_size=2).map(
        lambda parts: {key: value for part in parts for key, value in part.items()}
    )


CONDITION = st.recursive(
    st.just({"type": "any"}) | _likely(st.just({"type": "any"})), _likely, max_leaves=3
)
SPECS = st.dictionaries(_NAMES, CONDITION, min_size=1, max_size=2)


def parsed(spec: dict[str, JSON], *, deny: bool = False) -> Conditions | None:
    try:
        return Conditions.parse(spec, deny=deny)
    except ConditionError as exc:
        return None if exc.fix else pytest.fail("no word of what to do")


def rules(*specs: dict[str, JSON], deny: bool = False) -> Iterator[Rule]:
    for number, spec in enumerate(specs, 1):
        if conditions := parsed(spec, deny=deny):
            kind = "deny" if deny else "allow"
            yield Rule(id=f"{kind}[{number}]", tools=TOOLS, params=conditions)


def attempt(params: dict[str, JSON]) -> Attempt:
    return Attempt(route=ECHO, params=params, matches=fits)


@given(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3), st.booleans())
def test_any_table_is_a_condition_or_is_refused_with_a_fix(
    spec: dict[str, JSON],
    deny: bool,  # noqa: FBT001 -- hypothesis passes it by name
) -> None:
    parsed(spec, deny=deny)


@given(SPECS, PARAMS)
def test_no_value_and_no_condition_make_a_decision_raise(
    spec: dict[str, JSON], params: dict[str, JSON]
) -> None:  # law 4
    grant = Grant(allow=(*rules(spec),), deny=(*rules(spec, deny=True),))

    verdict = decide(grant, attempt(params), Tally())
    said = list(considered(grant, attempt(params), Tally()))

    deciding = [one for one in said if one.speaks and one.refusal is None]
    if isinstance(verdict, Allowed):
        assert deciding[0].rule == verdict.rule
    elif deciding:
        assert deciding[0].kind == "deny"
    for one in said:
        if one.refusal and one.refusal.failure:
            assert one.refusal.message == one.refusal.failure.message
            assert one.refusal.path.startswith("$")


@given(SPECS, SPECS, PARAMS)
def test_deny_rule_never_widens_a_grant(
    allow: dict[str, JSON], deny: dict[str, JSON], params: dict[str, JSON]
) -> None:  # law 4
    allowed, denied = (*rules(allow),), (*rules(deny, deny=True),)

    with_it = decide(Grant(allow=allowed, deny=denied), attempt(params), Tally())
    without = decide(Grant(allow=allowed), attempt(params), Tally())

    assert isinstance(with_it, Denied) or with_it == without


@given(SPECS, PARAMS)
def test_deny_rule_applies_to_whatever_the_same_words_would_allow(
    spec: dict[str, JSON], params: dict[str, JSON]
) -> None:  # law 4
    allow, deny = parsed(spec), parsed(spec, deny=True)

    if allow and deny and allow.failure(params, fits, others=True) is None:
        assert deny.spared(params, fits) is None


@given(SPECS, SPECS, PARAMS)
def test_recorded_grant_decides_as_the_one_that_was_read(
    allow: dict[str, JSON], deny: dict[str, JSON], params: dict[str, JSON]
) -> None:
    grant = Grant(allow=(*rules(allow),), deny=(*rules(deny, deny=True),))

    again = Grant.from_payload(json.loads(json.dumps(grant.to_payload())))

    assert again == grant
    assert decide(again, attempt(params), Tally()) == decide(
        grant, attempt(params), Tally()
    )


# -- errors --------------------------------------------------------------------


def broken(*_: object) -> NoReturn:
    raise RuntimeError("secret")


@pytest.mark.parametrize("deny", [False, True])
def test_engine_that_fails_denies(*, deny: bool) -> None:  # law 4
    spec: dict[str, JSON] = {"a": {"pattern": "x"}}
    every = Rule(id="allow[1]", tools=TOOLS)
    grant = (
        Grant(allow=(every,), deny=(*rules(spec, deny=True),))
        if deny
        else Grant(allow=(*rules(spec),))
    )
    call = Attempt(route=ECHO, params={"a": "b"}, matches=broken)

    verdict = decide(grant, call, Tally())

    assert isinstance(verdict, Denied)
    assert "secret" not in verdict.message
    assert verdict.code == ("denied" if deny else "params")


def test_without_an_engine_no_pattern_holds() -> None:  # law 4
    grant = Grant(allow=(*rules({"a": {"pattern": "x"}}),))

    verdict = decide(grant, Attempt(route=ECHO, params={"a": "x"}), Tally())

    assert isinstance(verdict, Denied)


def test_validator_that_fails_denies() -> None:  # law 4
    grant = Grant(allow=(Rule(id="allow[1]", tools=TOOLS),))
    call = Attempt(route=ECHO, schema=broken)

    verdict = decide(grant, call, Tally())

    assert isinstance(verdict, Denied)
    assert verdict.code == "schema"
    assert "secret" not in verdict.message


# -- steps ---------------------------------------------------------------------

SMALL, LARGE = 16 * 1024, 64 * 1024

#: For each kind of constraint: what is written, and what is hard for it.
HARD: dict[str, tuple[JSON, tuple[Callable[[int], JSON], ...]]] = {
    "type": ({"type": "integer"}, (lambda n: "a" * n,)),
    "const": ({"const": "a" * 100}, (lambda n: "a" * n,)),
    "const list": ({"const": [1, [2]]}, (lambda n: [1, [2] * (n // 2)],)),
    "one_of": ({"one_of": ["a" * n for n in range(50)]}, (lambda n: "a" * n,)),
    "min": ({"min": 1}, (lambda _: 2**63,)),
    "max": ({"max": 1}, (lambda _: 2**63,)),
    "min_length": ({"min_length": 5}, (lambda n: "a" * n,)),
    "max_length": ({"max_length": 5}, (lambda n: "a" * n,)),
    "min_items": ({"min_items": 5}, (lambda n: [0] * (n // 2),)),
    "max_items": ({"max_items": 5}, (lambda n: [0] * (n // 2),)),
    "pattern": (
        {"pattern": "(a+)+b"},
        (lambda n: "a" * n, lambda n: "ab" * (n // 2)),
    ),
    "glob": (
        {"glob": "*a*ab*b"},
        (lambda n: "a" * n, lambda n: "/" * n, lambda n: "ab" * (n // 2)),
    ),
    "deep glob": (
        {"glob": "a/**/b*"},
        (lambda n: "/" * n, lambda n: "a/" * (n // 2), lambda n: "a/" + "b" * n),
    ),
    "path": (
        {"path": {"inside": ["/a"]}},
        (lambda n: "/a" * (n // 2), lambda n: "/" * n, lambda n: "file:" + "%41" * n),
    ),
    "url": (
        {"url": {"host": "**.a.org", "path": "/*"}},
        (
            lambda n: "https://" + "a." * (n // 2) + "org/",
            lambda n: "https://a.org/" + "../" * (n // 3),
            lambda n: "https://" + "[" * n,
            lambda n: "https://a.a.org/" + "%" * n,
        ),
    ),
    "each": ({"each": {"max": 1}}, (lambda n: [0] * (n // 2), lambda n: [[0]] * n)),
    "has": ({"has": {"a": {"max": 1}}}, (lambda n: {str(k): 0 for k in range(n)},)),
    "keys": (
        {"keys": {"names": {"glob": "*"}, "values": {"max": 1}}},
        (lambda n: {str(k): 0 for k in range(n // 8)},),
    ),
}


def steps(function: Callable[[], object]) -> int:
    """Return how many instructions of the interpreter a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_every_constraint_has_values_that_are_hard_for_it() -> None:
    assert not CONSTRAINTS.keys() - HARD.keys()


@pytest.mark.parametrize("kind", HARD)
def test_steps_are_linear_in_the_length_of_the_value(kind: str) -> None:  # law 9
    spec, makers = HARD[kind]
    conditions = Conditions.parse({"a": spec})
    for make in makers:
        small, large = (
            steps(partial(conditions.failure, {"a": make(size)}, fits))
            for size in (SMALL, LARGE)
        )

        assert large <= 4 * small + 500
        assert large <= 100_000


ODD = st.text(
    "ab./\\?#%25eEcCu0; "
    "\uff0e\u2024\u2025\uff0f\uff3c\uff05\uff12\uff1fé\uff1b\uff41\u2044\u2215",
    max_size=12,
)


def _as_read_elsewhere(text: str) -> str:
    """Return the path that a lenient reader makes of a text."""
    slashed = text.replace("\u2044", "/").replace("\u2215", "/")
    plain = unicodedata.normalize("NFKC", slashed)
    path = (
        unquote(unquote(plain)).replace("\\", "/").partition("?")[0].partition("#")[0]
    )
    return posixpath.normpath("/".join(map(_bare, path.split("/"))))


def _bare(segment: str) -> str:
    """Return the dots that a segment is without its parameters and the spaces."""
    bare = segment.partition(";")[0].strip(" ")
    return bare if bare in {".", ".."} else segment


@given(name=ODD)
def test_a_star_stands_for_one_segment_however_it_is_read(name: str) -> None:
    if name and Glob.parse("acme/*").holds(f"acme/{name}"):
        assert _as_read_elsewhere(f"acme/{name}") == unicodedata.normalize(
            "NFKC", f"acme/{name}"
        )


@given(text=ODD)
def test_no_spelling_evades_a_glob_of_a_deny_rule(text: str) -> None:  # law 4
    for glob in ("a/**", "a/*", "a", "*a/b"):
        denied = Glob.parse(glob)
        if denied.holds(text) is False and text == posixpath.normpath(text):
            assert not denied.matches(_as_read_elsewhere(text))
