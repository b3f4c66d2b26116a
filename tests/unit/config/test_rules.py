"""Rules of agents: conditions on parameters, and budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.grants.budgets import Budget, CallCount, Concurrency, Pace, Sum

from .conftest import Folder

ALLOW = "[[agents.a.allow]]\ntools = ['demo/x']\n"
DENY = "[[agents.a.deny]]\ntools = ['demo/x']\n"


@pytest.mark.parametrize(
    ("spec", "place", "problem", "fix"),
    [
        ("{}", "", "has no constraint on the value", "any"),
        ("{ optional = true }", "", "has no constraint on the value", "any"),
        ("5", "", "must be a table of constraints, found a number", "type"),
        ("{ kindof = 'string' }", ".kindof", "not a known constraint", "has"),
        (
            "{ email = { type = 'string' } }",
            ".email",
            "not a known",
            'params."p.email"',
        ),
        ("{ type = 'text' }", ".type", "is not a type", "string"),
        ("{ type = ['string'] }", ".type", "is not a type", "string"),
        ("{ type = 'any', max = 5 }", "", "contradicts the rest", "remove"),
        ("{ type = 'string', max = 5 }", ".max", "no value can match", "remove"),
        ("{ max_length = 5, min_items = 1 }", ".min_items", "another type", "remove"),
        ("{ const = 1, one_of = [1] }", "", "redundant", "keep one"),
        ("{ const = 'a', max_length = 5 }", "", "redundant", "keep one"),
        ("{ one_of = [1, 2], max = 1 }", "", "redundant", "keep one"),
        ("{ type = 'string', const = 1 }", ".const", "no value can match", "remove"),
        ("{ one_of = [] }", ".one_of", "not a list of values", "1 to 1000"),
        ("{ one_of = 'a' }", ".one_of", "not a list of values", "1 to 1000"),
        ("{ one_of = ['a', 'b', 'a'] }", ".one_of", "a value twice", "remove"),
        ("{ min = 2, max = 1 }", "", "min is more than max", "correct"),
        ("{ min_length = 2, max_length = 1 }", "", "more than max_length", "correct"),
        ("{ min_items = 2, max_items = 1 }", "", "more than max_items", "correct"),
        ("{ min = '1' }", ".min", "is not a number", "10"),
        ("{ max = true }", ".max", "is not a number", "10"),
        ("{ max = nan }", ".max", "is not a number", "finite"),
        ("{ min_length = 0 }", ".min_length", "not an integer", "1 or more"),
        ("{ max_length = -1 }", ".max_length", "not an integer", "0 or more"),
        ("{ max_items = 1.5 }", ".max_items", "not an integer", "0 or more"),
        ("{ optional = 'yes', max = 1 }", ".optional", "true or false", "true"),
        ("{ pattern = '' }", ".pattern", "is not a pattern", "1 to 1000"),
        ("{ pattern = 5 }", ".pattern", "is not a pattern", "1 to 1000"),
        ("{ pattern = '[a' }", ".pattern", "linear time", "look-around"),
        ("{ pattern = '(?=a)a' }", ".pattern", "linear time", "look-around"),
        ("{ pattern = '(a)\\1' }", ".pattern", "linear time", "look-around"),
        ("{ pattern = 'a)|(?:b' }", ".pattern", "linear time", "look-around"),
        ("{ pattern = '\\p{L}{1,80}' }", ".pattern", "too large", "large classes"),
        ("{ glob = '' }", ".glob", "is not a glob", "1 to 1000"),
        ("{ glob = 5 }", ".glob", "is not a text", "acme/*"),
        ("{ glob = '*a*b*c*d' }", ".glob", "more than 3 stars", "narrower"),
        ("{ glob = 'a**' }", ".glob", "whole segment", "alone"),
        ("{ glob = '**/a/**' }", ".glob", "only once", "alone"),
        ("{ path = '/srv' }", ".path", "names no folders", "inside"),
        ("{ path = { in = ['/a'] } }", ".path", "names no folders", "inside"),
        ("{ path = { inside = [] } }", ".path.inside", "not a list", "/srv/data"),
        ("{ path = { inside = '/a' } }", ".path.inside", "not a list", "/srv/data"),
        ("{ path = { inside = ['a'] } }", ".path.inside.1", "canonical", "/srv/data"),
        ("{ path = { inside = [1] } }", ".path.inside.1", "canonical", "/srv/data"),
        (
            "{ path = { inside = ['/a', '/a/../b'] } }",
            ".path.inside.2",
            "canonical",
            "/srv/data",
        ),
        (
            "{ path = { inside = ['file:///a'] } }",
            ".path.inside.1",
            "canonical",
            "/srv/data",
        ),
        ("{ url = 'https://a.org' }", ".url", "not a table of parts", "host"),
        ("{ url = { hosts = ['a'] } }", ".url", "not a table of parts", "host"),
        ("{ url = { host = [] } }", ".url.host", "lists nothing", "leave it out"),
        ("{ url = { host = 5 } }", ".url.host", "is not a text", "quotes"),
        ("{ url = { host = 'A.org' } }", ".url.host", "is no host", "example"),
        ("{ url = { host = 'a.org.' } }", ".url.host", "is no host", "example"),
        ("{ url = { host = 'ä.org' } }", ".url.host", "is no host", "example"),
        ("{ url = { host = '*' } }", ".url.host", "names every host", "example"),
        ("{ url = { host = '**' } }", ".url.host", "elsewhere than alone", "example"),
        ("{ url = { host = 'a.**' } }", ".url.host", "elsewhere", "example"),
        ("{ url = { host = '**.*' } }", ".url.host", "names every host", "example"),
        ("{ url = { host = '*a*b*c*d' } }", ".url.host", "3 stars", "example"),
        ("{ url = { host = '127.1' } }", ".url.host", "odd notation", "example"),
        ("{ url = { host = '1::2::3' } }", ".url.host", "odd notation", "example"),
        ("{ url = { scheme = 'file' } }", ".url.scheme", "not known here", "https"),
        ("{ url = { port = 0 } }", ".url.port", "is no port", "65535"),
        ("{ url = { port = true } }", ".url.port", "is no port", "65535"),
        ("{ url = { path = 'v1/*' } }", ".url.path", "begin with a slash", "/v1/*"),
        ("{ url = { path = '/**/**' } }", ".url.path", "only once", "alone"),
        ("{ each = {} }", ".each", "has no constraint on the value", "any"),
        ("{ each = { type = 'x' } }", ".each.type", "is not a type", "string"),
        (
            "{ each = { type = 'any' }, max_items = 0 }",
            ".max_items",
            "allows no entries",
            "1",
        ),
        ("{ some = { type = 'string' } }", ".some", "deny rules only", "each"),
        ("{ keys = {} }", ".keys", "not a table", "max, names, values"),
        ("{ keys = 5 }", ".keys", "not a table", "max, names, values"),
        ("{ keys = { key = {} } }", ".keys", "not a table", "max, names, values"),
        ("{ keys = { max = 0 } }", ".keys", "allows no entries", "1"),
        ("{ keys = { names = { max = 5 } } }", ".keys.names", "are texts", "pattern"),
        ("{ has = {} }", ".has", "not a table", "NAME"),
        ("{ has = { a = {} } }", ".has.a", "has no constraint", "any"),
        ("{ has = { '' = { max = 1 } } }", '.has.""', "empty name", "dot"),
        ("{ const = '${env:HOME}' }", ".const", "variable", "its value"),
        ("{ one_of = ['a', '${file:x}'] }", ".one_of.2", "variable", "its value"),
    ],
)
def test_condition_that_cannot_be_is_refused(
    folder: Folder, spec: str, place: str, problem: str, fix: str
) -> None:  # law 4
    error = folder.refusal(f"{ALLOW}params.p = {spec}")

    assert str(error).startswith(f"caxton.toml: agents.a.allow[1].params.p{place}: ")
    assert problem in str(error)
    assert fix in error.fix


@pytest.mark.parametrize(
    ("text", "place", "problem", "fix"),
    [
        (ALLOW + "params = {}", "allow[1].params", "names 0 parameters", "1 to 100"),
        (ALLOW + "params = 5", "allow[1].params", "wanted a table", "NAME"),
        (
            ALLOW + "params.'a.' = { max = 1 }",
            'allow[1].params."a."',
            "empty name",
            "dot",
        ),
        (
            ALLOW + f"params.'{'a.' * 900}a' = {{ max = 1 }}",
            "allow[1].params.",
            "more than 16",
            "dot",
        ),
        (
            ALLOW + "params.a = { max = 1 }\nparams.'a.b' = { max = 1 }",
            "allow[1].params.a",
            "is no map",
            "object",
        ),
        (
            ALLOW + "params.a = { has = { b = { max = 1 } } }\n"
            "params.'a.b' = { max = 1 }",
            "allow[1].params.a",
            "named twice",
            "once",
        ),
        (
            ALLOW + "other_params = 'allow'",
            "allow[1].other_params",
            "has no effect without params",
            "remove",
        ),
        (
            ALLOW + "params.a = { max = 1 }\nother_params = true",
            "allow[1].other_params",
            "not one of the known values",
            '"allow"',
        ),
        (
            DENY + "params.a = { max = 1, optional = true }",
            "deny[1].params.a.optional",
            "is not allowed in a deny rule",
            "remove it",
        ),
        (
            DENY + "params.a = { each = { max = 1 } }",
            "deny[1].params.a.each",
            "is not allowed in a deny rule",
            "some",
        ),
        (
            DENY + "params.a = { keys = { max = 1 } }",
            "deny[1].params.a.keys",
            "is not allowed in a deny rule",
            "name the entries",
        ),
        (
            DENY + "params.a = { type = 'string' }",
            "deny[1].params.a",
            "always applies",
            "leave params out",
        ),
        (DENY + "other_params = 'allow'", "deny[1].other_params", "unknown key", ""),
    ],
)
def test_rule_that_says_too_little_or_too_much_is_refused(
    folder: Folder, text: str, place: str, problem: str, fix: str
) -> None:  # law 4
    error = folder.refusal(text)

    assert str(error).startswith(f"caxton.toml: agents.a.{place}")
    assert problem in str(error)
    assert fix in error.fix


def test_conditions_that_are_too_deep_are_refused(folder: Folder) -> None:  # law 9
    spec = "{ each = " * 20 + "{ max = 1 }" + " }" * 20

    assert "too deep" in str(folder.refusal(f"{ALLOW}params.p = {spec}"))


def test_conditions_are_kept_as_they_were_written(folder: Folder) -> None:
    config = folder.load(
        f'{ALLOW}params.a = {{ max = 5 }}\nother_params = "allow"\n'
        f'params."b.c" = {{ each = {{ pattern = "a+" }}, optional = true }}'
    )

    (rule,) = config.agents["a"].grant.allow
    assert rule.params is not None
    assert rule.params.to_payload() == {
        "a": {"max": 5},
        "b.c": {"each": {"pattern": "a+"}, "optional": True},
    }
    assert rule.other_params
    assert list(rule.params.patterns()) == [("a+", ("b", "c", "each", "pattern"))]


def test_other_params_may_say_what_holds_anyway(folder: Folder) -> None:
    config = folder.load(f'{ALLOW}params.a = {{ max = 5 }}\nother_params = "deny"')

    (rule,) = config.agents["a"].grant.allow
    assert not rule.other_params


RULE = "[[agents.a.allow]]\ntools = ['bank/*']\n"
ONE = "{ of = 'a', max = 1, per = 'run' }"
PLACE = "agents.a.allow[1]"


OF_ANSWER = "of = 'result$.usage.n', max = 5, per = 'run'"
ANSWERED = Sum(of="result$.usage.n", limit=5_000_000, per="run", estimate=2 * 10**9)


@pytest.mark.parametrize(
    ("text", "calls", "budgets"),
    [
        ("calls = 5", 5, []),
        ("calls = '5/run'", 5, []),
        ("calls = ['5/run']", 5, []),
        ("calls = '20/day'", None, [CallCount(limit=20, per="day")]),
        (
            "calls = ['20/day', '5/run', '9 / hour']",
            5,
            [CallCount(limit=9, per="hour"), CallCount(limit=20, per="day")],
        ),
        ("rate = '30/min'", None, [Pace(limit=30, every=60_000_000)]),
        (
            "rate = '2/s'\nwait = '500ms'",
            None,
            [Pace(limit=2, every=1_000_000, wait=500_000)],
        ),
        ("concurrency = 2", None, [Concurrency(limit=2)]),
        (
            "sum = { of = 'amount', max = 200000, per = 'day' }",
            None,
            [Sum(of="amount", limit=200_000_000_000, per="day")],
        ),
        (
            """sum = [
                { of = 'to.amount', max = "199.95", per = 'run' },
                { of = 'to.amount', max = 0.1, per = 'month' },
            ]""",
            None,
            [
                Sum(of="to.amount", limit=199_950_000, per="run"),
                Sum(of="to.amount", limit=100_000, per="month"),
            ],
        ),
        (
            f"sum = {{ {OF_ANSWER}, estimate = 2000 }}",
            None,
            [ANSWERED],
        ),
        (
            f"sum = {{ {OF_ANSWER}, estimate = 2000, price = 0.000002 }}",
            None,
            [replace(ANSWERED, price=2_000_000)],
        ),
        (
            (
                f"sum = {{ {OF_ANSWER}, estimate = 2000, prices = {{ by = 'p.model', "
                "table = { 'm.small' = '0.00000015', large = 2 }, default = 1e-6 } }"
            ),
            None,
            [
                replace(
                    ANSWERED,
                    by="p.model",
                    prices={"m.small": 150_000, "large": 2 * 10**12},
                    price=1_000_000,
                )
            ],
        ),
    ],
)
def test_budgets_are_read(
    folder: Folder, text: str, calls: int | None, budgets: list[Budget]
) -> None:
    (rule,) = folder.load(RULE + text).agents["a"].grant.allow

    assert (rule.calls, list(rule.budgets)) == (calls, budgets)


def test_rule_has_the_name_that_it_is_given(folder: Folder) -> None:
    (rule,) = folder.load(f"{RULE}name = 'payments'").agents["a"].grant.allow

    assert rule.account == "payments"


@pytest.mark.parametrize(
    ("text", "place", "problem", "fix"),
    [
        ("calls = '5/year'", "calls", "periods are run, hour, day", "20/day"),
        ("calls = [5]", "calls", "not a number of calls", "5/run"),
        ("calls = true", "calls", "not a number of calls", "5/run"),
        ("calls = []", "calls", "empty", "5/run"),
        ("calls = ['5/day', '6/day']", "calls", "sets the calls twice per day", "one"),
        ("calls = '0/day'", "calls", "no calls", "remove the rule"),
        ("rate = '30'", "rate", "not a rate", "60/min"),
        ("wait = '5s'", "wait", "is only valid with rate", "30/min"),
        ("concurrency = 0", "concurrency", "no calls", "remove the rule"),
        ("concurrency = '2'", "concurrency", "wanted a whole number", "20"),
        ("sum = 5", "sum", "wanted a table", "key"),
        ("sum = { of = 'a', max = 5 }", "sum", "has no per", "amount"),
        ("sum = { of = 'a', max = 5, per = 'year' }", "sum.per", "not one of", "day"),
        (
            "sum = { of = 'a..b', max = 5, per = 'run' }",
            "sum.of",
            "not a valid",
            "amount",
        ),
        (
            "sum = { of = 'a', max = 0, per = 'run' }",
            "sum.max",
            "not a number above 0",
            "199.95",
        ),
        (
            "sum = { of = 'a', max = 1e-7, per = 'run' }",
            "sum.max",
            "not a number above 0",
            "199.95",
        ),
        (
            "sum = { of = 'a', max = 1e13, per = 'run' }",
            "sum.max",
            "not a number above 0",
            "199.95",
        ),
        (
            "sum = { of = 'a', max = '1e3', per = 'run' }",
            "sum.max",
            "not a number above 0",
            "199",
        ),
        (
            "sum = { of = 'a', max = true, per = 'run' }",
            "sum.max",
            "not a number above 0",
            "199.95",
        ),
        (
            f"sum = [{ONE}, {ONE}]",
            "sum",
            "same sum twice",
            "keep one",
        ),
        (f"sum = {{ {OF_ANSWER} }}", "sum", "has no estimate", "estimate = 2000"),
        (
            "sum = { of = 'a', max = 5, per = 'run', estimate = 2 }",
            "sum.estimate",
            "only valid for a number of the answer",
            "result$",
        ),
        (
            "sum = { of = 'a', max = 5, per = 'run', price = 2 }",
            "sum.price",
            "only valid for a number of the answer",
            "result$",
        ),
        (
            "sum = { of = 'result$.a[', max = 5, per = 'run', estimate = 2 }",
            "sum.of",
            "brackets",
            "$.items",
        ),
        (
            f"sum = {{ {OF_ANSWER}, estimate = 0 }}",
            "sum.estimate",
            "not a number above 0",
            "estimate = 200000",
        ),
        *(
            (
                f"sum = {{ {OF_ANSWER}, estimate = 2, price = {price} }}",
                "sum.price",
                "not a price from 0 to 1000000",
                "0.000002",
            )
            for price in ("-1", "1e-13", "true", "nan", "1e7", "'1/2'", "[1]")
        ),
        (
            (
                f"sum = {{ {OF_ANSWER}, estimate = 2, price = 1, prices = "
                "{ by = 'm', table = { a = 1 } } }"
            ),
            "sum",
            "has a price and prices",
            "default",
        ),
        (
            f"sum = {{ {OF_ANSWER}, estimate = 2, prices = {{ by = 'm' }} }}",
            "sum.prices",
            "no prices in its table",
            "m-small",
        ),
        (
            (
                f"sum = {{ {OF_ANSWER}, estimate = 2, prices = "
                "{ by = 'm', table = { a = 'x' } } }"
            ),
            "sum.prices.table.a",
            "not a price",
            "0.000002",
        ),
        (
            "sum = { of = 'result$.a', most = 5, per = 'run', estimate = 2 }",
            "sum.most",
            "unknown key",
            "max",
        ),
        ("name = 'a/b'", "name", "not a valid rule name", "letters"),
    ],
)
def test_complaint_names_the_key_and_what_to_do(
    folder: Folder, text: str, place: str, problem: str, fix: str
) -> None:
    error = folder.refusal(RULE + text)

    assert f"{PLACE}.{place}" in str(error)
    assert problem in str(error)
    assert fix in error.fix


def test_two_rules_never_spend_one_budget(folder: Folder) -> None:
    error = folder.refusal(f"{RULE}calls = '5/day'\n{RULE}concurrency = 2")
    assert "agents.a.allow[2]" in str(error)
    assert "has budgets for the same tools as allow[1]" in str(error)
    assert "name" in error.fix

    error = folder.refusal(f"{RULE}name = 'x'\n{RULE}name = 'x'")
    assert "agents.a.allow[2].name" in str(error)
    assert "is also the name of allow[1]" in str(error)

    folder.load(f"{RULE}calls = '5/day'\nname = 'x'\n{RULE}concurrency = 2")
    folder.load(f"{RULE}calls = 5\n{RULE}calls = 7")  # these are each rule's own
