"""The least grant that covers what was recorded: it loads, and it decides the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.config.load import load_bytes
from caxton_host.core.analysis.rejudge import Rejudger
from caxton_host.core.analysis.suggest import Observed, Suggestion
from caxton_host.core.calls import JSON, Completed, Denied, Route
from caxton_host.core.clients import table_of
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import Event, LogWritten, ToolInvoked, settled
from tests.scene import JSON_VALUES

LONG = ["x" * n for n in (101, 105, 120)]


def observed(*values: JSON) -> tuple[dict[str, JSON], str]:
    seen = Observed()
    for value in values:
        seen.take(value)
    return seen.condition()


def invoked(
    number: int,
    params: dict[str, JSON] | None,
    *,
    tool: str | None = "echo",
    by: str | None = "allow[1]",
) -> ToolInvoked:
    return ToolInvoked(
        call=number,
        name=f"mcp__demo__{tool}",
        server=tool and "demo",
        tool=tool,
        params=params,
        params_sha256="",
        effect="read",
        rule=by,
        idempotency_key="",
        fuel=0,
    )


def denied(
    number: int, params: dict[str, JSON] | None, code: str = "order", **more: str | None
) -> list[Event]:
    end = Denied(code=code, rule=None, message="")
    return [invoked(number, params, by=None, **more), settled(number, end)]


def grant_of(text: str, agent: str = "weather") -> Grant:
    config = load_bytes(text.encode(), Path("it"), environ={}, cwd=Path.cwd())
    return config.agents[agent].grant if agent in config.agents else Grant()


def suggested(
    *runs: list[Event],
    agent: str = "weather",
    with_denied: bool = False,
    leads: Callable[[str], Route | None] = lambda _: None,
) -> str:
    suggestion = Suggestion(agent=agent, table=table_of(agent), with_denied=with_denied)
    for events in runs:
        run = Rejudger(grant=Grant(), leads=leads)
        for seq, event in enumerate(events, 1):
            if call := run.take(event, seq, seq):
                suggestion.take(call)
    return suggestion.to_toml()


# -- of a value ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "condition", "guess"),
    [
        (["Oslo"] * 3, {"const": "Oslo"}, ""),
        (["Oslo", "Rome"], {"one_of": ["Oslo", "Rome"]}, ""),
        ([1, 1.0, True], {"one_of": [1, 1.0, True]}, ""),
        ([[], {}], {"one_of": [[], {}]}, ""),
        ([None], {"type": "null"}, ""),
        ([*range(6)], {"type": "integer", "min": 0, "max": 5}, "the range of 6"),
        (
            [3, 0.5, 1, 2, 5, 4],
            {"type": "number", "min": 0.5, "max": 5},
            "the range of 6",
        ),
        ([2**64 - 1], {"type": "integer"}, "the range of 1"),
        (LONG, {"type": "string", "max_length": 120}, "the longest of 3"),
        (["${env:X}"], {"type": "string", "max_length": 8}, "the longest of 1"),
        (
            ["key [redacted]"],
            {"type": "string"},
            "any text, for a secret was taken out",
        ),
        ([None, "x"], {"type": "any"}, "values of several types"),
        (
            [f"/srv/data/{n}/a" for n in range(6)],
            {"path": {"inside": ["/srv/data"]}},
            "the folder of 6",
        ),
        (
            [f"/{n}/a" for n in range(6)],
            {"type": "string", "max_length": 4},
            "the longest of 6",
        ),
        (
            [*(f"https://a.test/{n}" for n in range(6)), "http://b.test/"],
            {"url": {"scheme": ["http", "https"], "host": ["a.test", "b.test"]}},
            "the hosts of 7",
        ),
        (
            [f"https://h{n}.test/" for n in range(6)],
            {"type": "string", "max_length": 16},
            "the longest of 6",
        ),
        (
            [f"http://[{n}/" for n in range(6)],
            {"type": "string", "max_length": 10},
            "the longest of 6",
        ),
        (
            [["a"], ["b", "a"]],
            {"type": "array", "max_items": 2, "each": {"one_of": ["a", "b"]}},
            "the longest of 2",
        ),
        (
            [[n] for n in range(6)],
            {
                "type": "array",
                "max_items": 1,
                "each": {"type": "integer", "min": 0, "max": 5},
            },
            "the longest of 6; each: the range of 6",
        ),
        (
            [{"a": 1}, {"a": 2, "b.c": "x"}],
            {
                "has": {
                    "a": {"one_of": [1, 2]},
                    "b\\.c": {"const": "x", "optional": True},
                }
            },
            "",
        ),
        (
            [{"a": n} for n in range(6)],
            {"has": {"a": {"type": "integer", "min": 0, "max": 5}}},
            "a: the range of 6",
        ),
        ([{"": 1}, {"a": 1}], {"type": "object"}, "whatever is in it"),
        (
            [{f"k{n}": 1} for n in range(51)],
            {"type": "object"},
            "whatever is in it",
        ),
        (
            [["x"] * 1001],
            {"type": "array", "max_items": 1001},
            "the longest of 1",
        ),
    ],
)
def test_condition_is_the_least_that_takes_what_was_seen(
    values: list[JSON], condition: dict[str, JSON], guess: str
) -> None:
    assert observed(*values) == (condition, guess)


def test_what_is_deep_is_not_looked_into() -> None:
    deep: JSON = [["x"]]
    for _ in range(8):
        deep = {"a": deep}

    condition, _ = observed(deep)

    assert str(condition).count("has") == 6
    assert Conditions.parse({"p": condition}).failure({"p": deep}) is None


def test_lists_that_are_deep_are_not_looked_into() -> None:
    deep: JSON = "x"
    for _ in range(9):
        deep = [deep]

    assert str(observed(deep)[0]).count("each") == 6


@settings(max_examples=50)
@given(st.lists(JSON_VALUES, min_size=1, max_size=8))
def test_condition_takes_every_value_that_it_was_made_of(values: list[JSON]) -> None:
    condition, _ = observed(*values)

    wanted = Conditions.parse({"p": condition})

    assert all(wanted.failure({"p": value}) is None for value in values)


# -- of runs ---------------------------------------------------------------------


def test_grant_has_a_rule_for_each_tool_with_what_was_passed() -> None:
    text = suggested(
        [invoked(1, {"city": "Oslo"}), invoked(2, {"city": "Rome", "days": 3})],
        [invoked(1, {"city": "Oslo"}), invoked(2, {}, tool="rm")],
    )

    assert text.splitlines() == [
        "# 3 calls in 2 runs",
        "[[agents.weather.allow]]",
        'tools = ["demo/echo"]',
        'calls = "2/run"',
        'params.city = { one_of = ["Oslo", "Rome"] }',
        "params.days = { const = 3, optional = true }",
        "",
        "# 1 call in 1 run",
        "[[agents.weather.allow]]",
        'tools = ["demo/rm"]',
        'calls = "1/run"',
        "# guess: no parameters are recorded, so any are allowed",
    ]


def test_what_is_more_than_was_recorded_is_marked() -> None:
    text = suggested([invoked(n, {"n\n": n}) for n in range(1, 8)])

    assert text.splitlines()[-1] == (
        'params."n\\n" = { type = "integer", min = 1, max = 7 }'
        "  # guess: the range of 7"
    )


def test_what_was_denied_is_no_reason_for_a_grant_unless_asked_for() -> None:
    run = [*denied(1, {"a": 1}), *denied(2, None, "bad_request"), invoked(3, {"a": 2})]

    assert "params.a = { const = 2 }" in suggested(run)
    assert "params.a = { one_of = [1, 2] }" in suggested(run, with_denied=True)
    assert suggested([*denied(1, {"a": 1}), *denied(2, {}, "limit")]) == ""


def test_name_that_led_nowhere_counts_where_it_would_lead() -> None:
    run = denied(1, {"a": 1}, "not_granted", tool=None)

    assert suggested(run, with_denied=True) == ""
    assert 'tools = ["demo/echo"]' in suggested(
        run, with_denied=True, leads=lambda _: Route(server="demo", tool="echo")
    )


def test_call_that_was_denied_before_spends_of_the_grant_too() -> None:
    run = [*denied(1, {"a": 1}), invoked(2, {"a": 1}), *denied(3, {"a": 1})]

    assert 'calls = "2/run"' in suggested(run)


def test_other_events_and_ends_of_no_known_call_say_nothing() -> None:
    line = LogWritten(n=1, level="info", text="")
    end = settled(1, Denied(code="order", rule=None, message=""))
    nowhere = denied(3, {}, tool=None)

    assert suggested([line, settled(2, Completed()), end, *nowhere]) == ""


NAMES = st.text(max_size=6)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["echo", "rm"]),
        st.dictionaries(NAMES, JSON_VALUES, max_size=3),
    ),
    max_size=5,
)


@settings(max_examples=25)
@given(runs=st.lists(CALLS, max_size=3), agent=st.sampled_from(["weather", "a.b"]))
def test_grant_loads_and_allows_all_that_it_was_made_of(
    runs: list[list[tuple[str, dict[str, JSON]]]], agent: str
) -> None:
    histories: list[list[Event]] = [
        [
            event
            for number, (tool, params) in enumerate(calls, 1)
            for event in (invoked(number, params, tool=tool), settled(number, DONE))
        ]
        for calls in runs
    ]

    grant = grant_of(suggested(*histories, agent=agent), agent)

    for events in histories:
        trial = Rejudger(grant=grant)
        judged = [trial.take(event, n, n) for n, event in enumerate(events, 1)]
        assert not any(one.changed for one in judged if one)


DONE = Completed()
