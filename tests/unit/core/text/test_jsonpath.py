"""Places in a value are found as RFC 9535 says, in one pass, and masked."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.text.jsonpath import JsonPath, masked, selected
from caxton_host.core.text.redact import MASK
from caxton_host.errors import UsageError
from tests.scene import JSON_VALUES


def mask(value: JSON, *paths: str) -> JSON:
    return masked(value, map(JsonPath.parse, paths))[0]


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("$", {"a": 1}, MASK),
        ("$.a", {"a": 1, "b": 1}, {"a": MASK, "b": 1}),
        ("$.a.b", {"a": {"b": [1]}}, {"a": {"b": MASK}}),
        ("$.a", {"b": 1}, {"b": 1}),
        ("$.a", ["a"], ["a"]),
        ("$.a.b", {"a": 1}, {"a": 1}),
        ("$.*", {"a": 1, "b": [2]}, {"a": MASK, "b": MASK}),
        ("$.*", [1, 2], [MASK, MASK]),
        ("$[*].n", [{"n": 1}, {"m": 1}], [{"n": MASK}, {"m": 1}]),
        ("$[*]", {"a": 1}, {"a": MASK}),
        ("$[0]", [1, 2, 3], [MASK, 2, 3]),
        ("$[-1]", [1, 2, 3], [1, 2, MASK]),
        ("$[3]", [1, 2, 3], [1, 2, 3]),
        ("$[-4]", [1, 2, 3], [1, 2, 3]),
        ("$[0]", {"0": 1}, {"0": 1}),
        ("$['0']", [1], [1]),
        ("$['first name']", {"first name": 1}, {"first name": MASK}),
        ('$["it\'s"]', {"it's": 1}, {"it's": MASK}),
        (r"$['it\'s']", {"it's": 1}, {"it's": MASK}),
        ("$['\"']", {'"': 1}, {'"': MASK}),
        (r'$["\u00e9"]', {"é": 1}, {"é": MASK}),
        ("$.é_1", {"é_1": 1}, {"é_1": MASK}),
        ("$['']", {"": 1}, {"": MASK}),
        ("$..n", {"n": {"n": 1}, "m": [{"n": 2}]}, {"n": MASK, "m": [{"n": MASK}]}),
        ("$.m..n", {"n": 1, "m": {"n": 2}}, {"n": 1, "m": {"n": MASK}}),
        ("$..[0]", [[1, 2], 3], [MASK, 3]),
        ("$..*", {"a": {"b": 1}}, {"a": MASK}),
        ("$..['n']", [{"n": 1}], [{"n": MASK}]),
        ("$..a..b", {"a": {"a": {"b": 1}}, "b": 2}, {"a": {"a": {"b": MASK}}, "b": 2}),
    ],
)
def test_path_leads_where_the_standard_says(
    path: str, value: JSON, found: JSON
) -> None:
    assert mask(value, path) == found


def test_place_from_the_end_of_a_list_is_named_from_its_start() -> None:
    path = JsonPath.parse("$..[-1]")

    assert [*selected({"a": [1, 2], "b": [], "c": 3}, path)] == [(("a", 1), 2)]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "$a",
        "$.",
        "$..",
        "$.a.",
        "$.a b",
        "$.1",
        "$.-",
        "$.*x",
        "$[",
        "$[]",
        "$[*",
        "$[a]",
        "$[01]",
        "$[-0]",
        "$[1.0]",
        "$[9007199254740992]",
        "$[99999999999999999]",
        "$[1:2]",
        "$[0,1]",
        "$[?@.a]",
        "$['a'",
        "$['a]",
        "$['a\"]",
        r"$['\x']",
        r"$['\ud800']",
        r'$["\\"',
        r"$['\"']",
        r'$["\'"]',
        "$['\n']",
        "$ .a",
        "$" + ".a" * 33,
    ],
)
def test_what_is_no_path_is_refused_with_an_example(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        JsonPath.parse(path)
    assert "$.user.email" in caught.value.fix


def test_many_paths_are_one_pass_and_count_what_they_find() -> None:
    paths = [JsonPath.parse(text) for text in ("$.a", "$.a.b", "$..c", "$.x")]
    value: JSON = {"a": {"b": 1, "c": 2}, "d": [{"c": 3}]}

    assert masked(value, paths) == ({"a": MASK, "d": [{"c": MASK}]}, 2)


def test_what_nothing_is_taken_from_is_the_same_object() -> None:
    value: JSON = {"a": [{"b": 1}]}

    assert masked(value, [JsonPath.parse("$..z")]) == (value, 0)
    assert masked(value, [JsonPath.parse("$..z")])[0] is value


# -- against a plain reading of the standard ------------------------------------

NAMES = st.sampled_from(["a", "b", "é"])
SELECTORS = st.none() | NAMES | st.integers(-3, 3)
STEPS = st.lists(st.tuples(st.booleans(), SELECTORS), max_size=4)
VALUES = st.recursive(
    st.integers() | JSON_VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=12,
)


def spelt(steps: list[tuple[bool, str | int | None]]) -> str:
    def one(selector: str | int | None) -> str:
        return "[*]" if selector is None else f"[{selector!r}]"

    return "$" + "".join((".." if deep else "") + one(s) for deep, s in steps)


def children(value: JSON) -> dict[str | int, JSON]:
    if isinstance(value, dict):
        return {key: value[key] for key in value}
    return dict(enumerate(value)) if isinstance(value, list) else {}


def places(
    value: JSON,
    steps: list[tuple[bool, str | int | None]],
    here: tuple[str | int, ...] = (),
) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of each node that the path selects, as section 2 has it."""
    if not steps:
        yield here
        return
    (deep, selector), *rest = steps
    parts = children(value)
    if deep:
        for key, part in parts.items():
            yield from places(part, steps, (*here, key))
    wanted = selector
    if isinstance(selector, int) and selector < 0:
        wanted = len(parts) + selector
    for key, part in parts.items():
        if selector is None or (type(wanted) is type(key) and wanted == key):
            yield from places(part, rest, (*here, key))


def put(value: JSON, place: tuple[str | int, ...]) -> JSON:
    if not place or value == MASK:
        return MASK
    value[place[0]] = put(value[place[0]], place[1:])  # type: ignore[index]
    return value


@given(value=VALUES, paths=st.lists(STEPS, max_size=3))
def test_one_pass_masks_what_the_standard_selects(
    value: JSON, paths: list[list[tuple[bool, str | int | None]]]
) -> None:
    expected = copy.deepcopy(value)
    for steps in paths:
        for place in places(value, steps):
            expected = put(expected, place)

    assert mask(value, *map(spelt, paths)) == expected


@given(steps=STEPS)
def test_path_that_is_read_is_kept_as_it_was_written(
    steps: list[tuple[bool, str | int | None]],
) -> None:
    assert JsonPath.parse(spelt(steps)).text == spelt(steps)


@given(text=st.text(alphabet="$.[]*'\"\\au0-é\n", max_size=12))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    try:
        path = JsonPath.parse(text)
    except UsageError:
        return
    masked({"a": [1]}, [path])


class Visited(dict[str, JSON]):
    """A table that counts how often it is looked through."""

    looks = 0

    def items(self) -> object:  # type: ignore[override]  # what is counted
        Visited.looks += 1
        return super().items()


def test_each_part_is_looked_at_once_whatever_the_stars() -> None:  # law 9
    value: JSON = 1
    for _ in range(40):
        value = Visited(a=value)
    Visited.looks = 0

    mask(value, "$..*..z", "$" + "..[*]..a" * 15 + ".z")

    assert Visited.looks <= 40
