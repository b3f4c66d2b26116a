"""A condition with room for one value more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.analysis.relax import loosened
from caxton_host.core.calls import JSON
from caxton_host.core.grants.conditions import Conditions

KNOWN: dict[str, JSON] = {
    "city": {"const": "Oslo", "optional": True},
    "zone": {"one_of": ["a", "b"]},
    "days": {"type": "integer", "min": 2, "max": 7},
    "text": {"min_length": 2, "max_length": 4},
    "tags": {"max_items": 2, "min_items": 1, "each": {"type": "string"}},
    "user.email": {"max_length": 3},
    "repo": {"glob": "acme/*"},
}
FITS: dict[str, JSON] = {
    "city": "Oslo",
    "zone": "a",
    "days": 3,
    "text": "abc",
    "tags": ["x"],
    "user": {"email": "a@b"},
    "repo": "acme/site",
}


def told(params: dict[str, JSON]) -> tuple[str, dict[str, JSON]] | None:
    failure = Conditions.parse(KNOWN).failure(params)
    assert failure
    return loosened(KNOWN, failure, params)


@pytest.mark.parametrize(
    ("change", "wider"),
    [
        ({"city": "Rome"}, {"one_of": ["Oslo", "Rome"], "optional": True}),
        ({"zone": "c"}, {"one_of": ["a", "b", "c"]}),
        ({"days": 9}, {"type": "integer", "min": 2, "max": 9}),
        ({"days": 1}, {"type": "integer", "min": 1, "max": 7}),
        ({"days": "3"}, {"const": "3"}),
        ({"city": 1}, {"const": 1, "optional": True}),
        ({"text": "abcde"}, {"min_length": 2, "max_length": 5}),
        ({"text": "a"}, {"min_length": 1, "max_length": 4}),
        ({"text": ""}, {"max_length": 4}),
        ({"other": [1]}, {"type": "array", "max_items": 1, "each": {"const": 1}}),
    ],
)
def test_condition_takes_the_value_that_it_failed(
    change: dict[str, JSON], wider: dict[str, JSON]
) -> None:
    (name,) = change

    assert told(FITS | change) == (name, wider)


def test_parameter_that_is_missing_becomes_optional() -> None:
    params = {name: value for name, value in FITS.items() if name != "zone"}

    assert told(params) == ("zone", {"one_of": ["a", "b"], "optional": True})


def test_name_within_a_map_is_told_whole() -> None:
    assert told(FITS | {"user": {"email": "abcd"}}) == ("user.email", {"max_length": 4})


@pytest.mark.parametrize(
    "change", [{"repo": "other/site"}, {"tags": [1]}, {"user": "x"}]
)
def test_what_is_not_plain_is_left_to_a_person(change: dict[str, JSON]) -> None:
    assert told(FITS | change) is None


VALUES = st.one_of(st.integers(), st.text(max_size=6), st.lists(st.text(), max_size=4))


@given(st.dictionaries(st.sampled_from([*FITS, "new"]), VALUES))
def test_wider_condition_takes_what_the_narrower_one_did(
    change: dict[str, JSON],
) -> None:
    params = {**FITS, **change}
    failure = Conditions.parse(KNOWN).failure(params)
    found = failure and loosened(KNOWN, failure, params)
    if failure and found:
        wider = Conditions.parse({**KNOWN, found[0]: found[1]})
        after = wider.failure(params)
        assert after is None or after.path != failure.path
