"""Budgets, as somebody types and sees them."""

from __future__ import annotations

import pytest

from tests import standin

from .guests import call, guest
from .shell import Shell, toml

RULES = """
[[agents.payer.allow]]
tools = ["demo/add"]
name = "payments"
calls = ["5/run", "3/month"]
rate = "100/10h"
sum = [
  { of = "a", max = "10.50", per = "month" },
  { of = "b", max = 100, per = "run" },
]
concurrency = 2

[[agents.payer.allow]]
tools = ["demo/echo"]
"""
DEMO = standin.command()


@pytest.fixture
def paying(shell: Shell) -> Shell:
    paid = [call("mcp__demo__add", a=a, b=1) for a in (4, 5.5, 2)]
    shell.write("payer.wasm", guest(*paid))
    agent = {"module": "payer.wasm"}
    shell.write(
        "caxton.toml", toml({"servers.demo": DEMO, "agents.payer": agent}, RULES)
    )
    return shell


def test_budgets_are_shared_by_runs_and_shown(paying: Shell) -> None:
    first = paying("run", "payer")
    assert first.code == 0, first.err
    assert "no room for so much of 'a'" in first.err
    second = paying("run", "payer")
    assert second.err.count("no room for so much of 'a'") == 1  # told once
    assert paying.rows("SELECT count(*) FROM slots") == [(0,)]

    done = paying("grant", "budgets")

    assert done.code == 0, done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[:6] for row in rows] == [
        ["payer", "allow[1]", "payments", "calls per month", "2", "3"],
        ["payer", "allow[1]", "payments", "sum of a per month", "9.5", "10.5"],
        ["payer", "allow[1]", "payments", "rate in 36000 s", "2", "100"],
        ["payer", "allow[1]", "payments", "calls under way", "0", "2"],
    ]
    assert rows[0][6].endswith("-01 00:00:00")
    assert rows[3][6] == "-"
    document = paying("grant", "budgets", "payer", "--json").document
    assert document["budgets"][1] | {"until": 0} == {
        "agent": "payer",
        "rule": "allow[1]",
        "source": "caxton.toml:8",
        "account": "payments",
        "budget": "sum of a per month",
        "spent": "9.5",
        "limit": "10.5",
        "until": 0,
        "calls": [],
    }


def test_limit_that_is_raised_keeps_what_is_spent(paying: Shell) -> None:
    paying("run", "payer")
    text = (paying.folder / "caxton.toml").read_text()
    paying.write("caxton.toml", text.replace("3/month", "9/month"))

    rows = paying("grant", "budgets").out.splitlines()

    assert rows[0].split("\t")[3:6] == ["calls per month", "2", "9"]


def test_budgets_that_were_lost_are_counted_again(paying: Shell) -> None:
    paying("run", "payer")
    before = paying("grant", "budgets", "payer").out
    with paying.tampering() as database:
        database.execute("DELETE FROM budgets")
        database.commit()
    assert paying("grant", "budgets", "payer").out != before

    done = paying("db", "recount")

    assert (done.code, done.out) == (0, "3 budgets, 0 calls under way\n"), done.err
    # The rate comes back bit by bit, by the clock of whoever counts.
    again = paying("grant", "budgets", "payer").out.splitlines()
    assert [row.split("\t")[:6] for row in again] == [
        row.split("\t")[:6] for row in before.splitlines()
    ]
    document = paying("db", "recount", "--json").document
    assert document == {"$type": "caxton.recount/v1", "budgets": 3, "calls": 0}


def test_call_that_holds_a_place_is_named(paying: Shell) -> None:
    paying("run", "payer")
    with paying.tampering() as database:
        database.execute("INSERT INTO slots VALUES ('payer/payments/open', 'run/7', 3)")
        database.commit()

    assert paying("grant", "budgets").out.splitlines()[3].endswith("1\t2\t7 call 3")
    (*_, row) = paying("grant", "budgets", "--json").document["budgets"]
    assert row["calls"] == [{"run": "7", "call": 3}]


def test_agent_without_budgets_has_none(paying: Shell) -> None:
    paying("run", "payer")
    plain = RULES.split("[[", maxsplit=2)[2]
    text = toml({"agents.payer": {"module": "payer.wasm"}}, f"[[{plain}")
    paying.write("caxton.toml", text)

    done = paying("grant", "budgets")
    assert (done.code, done.out) == (0, "")
    assert "no rule has a budget that runs share" in done.err

    done = paying("grant", "budgets", "pay")
    assert done.code == 2
    assert "no agent 'pay' in the configuration" in done.err
    assert "payer" in done.fix
    assert (
        paying("grant", "budgets", "zebra").fix
        == "caxton agent list shows what there is"
    )
