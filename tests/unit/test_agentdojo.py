"""The arithmetic of the replay of AgentDojo, and its configurations."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agentdojo import replaying
from benchmarks.agentdojo.replaying import Case, Outcome, cases
from benchmarks.agentdojo.report import acting, attacked, honest, odd, page
from benchmarks.agentdojo.settings import (
    SETS,
    SUITES,
    acts,
    checked,
    configured,
    written,
)
from caxton_host.config import load
from caxton_host.core.calls import Route
from caxton_host.core.grants.decisions import may_ever


def outcome(user: int, **more: Any) -> Outcome:  # noqa: ANN401 -- its fields
    case = Case(f"user_task_{user}", more.pop("injection", None), first=False)
    given: dict[str, Any] = {
        "suite": "banking",
        "case": more.pop("case", case),
        "acts": False,
        "useful": True,
        "hit": False,
        "questions": 0,
    }
    return Outcome(**{**given, **more})


def test_the_order_in_which_more_attacks_succeed_counts() -> None:
    late = [outcome(n, hit=n == 0) for n in range(4)]
    early = [
        outcome(n, case=Case(f"user_task_{n}", "a", "plain", first=True), hit=n < 2)
        for n in range(4)
    ]

    assert str(attacked([*late, *early])) == "50.0 % (2 of 4)"


def test_a_task_that_asks_or_fails_is_not_done_without_a_question() -> None:
    found = [outcome(0), outcome(1, questions=1), outcome(2, useful=False)]

    assert honest(found, 0).some == 1
    assert honest(found, 1).some == 2
    assert honest(odd(found), 0).every == 1
    assert acting([outcome(3, acts=True), *found]) == [outcome(3, acts=True)]


def test_each_attack_with_a_call_comes_in_both_orders() -> None:
    attacks = {"injection_task_0": True, "injection_task_1": False}

    made = cases(["user_task_0"], attacks, "reader")

    assert [(one.injection, one.first) for one in made] == [
        ("injection_task_0", False),
        ("injection_task_0", True),
    ]
    assert len(cases(["user_task_0"], attacks, "text")) == 1


def test_a_page_says_what_was_missed() -> None:
    tasks = [outcome(n, questions=int(n == 0)) for n in range(4)]

    text = page({("frozen", "full", "none"): tasks}, {}, "a machine", "2026-11-23")

    assert "75.0 % (3 of 4); goal: at least 85 %, **missed**" in text
    assert "| banking user_task_0 | 1 |" in text


def test_a_page_counts_an_attack_of_the_second_set_once() -> None:
    tasks = [outcome(n) for n in range(2)]
    hit = [
        outcome(n, case=Case(f"user_task_{n}", "a", "plain", first=first), hit=first)
        for n in range(2)
        for first in (False, True)
    ]
    second = {("frozen", "full", "none"): tasks, ("frozen", "full", "plain"): hit}

    text = page({}, second, "a machine", "2026-11-23")

    assert "| frozen | all | 100.0 % (2 of 2) | 100.0 % (1 of 1) |" in text
    assert "| banking | a | plain | first | 2 |  |" in text


@pytest.mark.parametrize("suite", SUITES)
def test_the_second_set_has_ten_tasks_and_ten_attacks_a_suite(suite: str) -> None:
    folder = Path(replaying.__file__).parent / "second"
    tables = tomllib.loads((folder / f"{suite}.toml").read_text("utf-8"))

    assert len({one["name"] for one in tables["task"]}) == 10
    assert len({one["name"] for one in tables["attack"]}) == 10
    assert all(one["prompt"] and one["calls"] for one in tables["task"])
    assert all(
        one["vector"] and one["text"] and one["calls"] for one in tables["attack"]
    )


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("suite", SUITES)
def test_grants_load_and_cover_every_tool_that_they_name(
    tmp_path: Path, kind: str, suite: str
) -> None:
    (tmp_path / "guest.wasm").write_bytes(b"\0asm\1\0\0\0")
    for setting in ("open", "order", "input", "paths", "full"):
        (tmp_path / "caxton.toml").write_text(
            written(configured(kind, suite, setting)), encoding="utf-8"
        )
        config = load(tmp_path / "caxton.toml", environ={}, cwd=tmp_path)
        grant = config.agents["guest"].grant
        for tool in configured(kind, suite, "full")["servers"][suite]["tools"]:
            assert may_ever(grant, Route(server=suite, tool=tool))


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("suite", SUITES)
def test_the_last_rule_of_each_set_asks_about_anything_else(
    kind: str, suite: str
) -> None:
    rules = configured(kind, suite, "full")["agents"]["guest"]["allow"]

    assert rules[-1]["tools"] == [f"{suite}/*"]
    assert [rule["approve"] for rule in rules if "approve" in rule] == [{}]
    denying = configured(kind, suite, "full", asking=False)
    assert denying["agents"]["guest"]["allow"] == rules[:-1]


def test_a_weaker_setting_keeps_fewer_sources() -> None:
    def sources(setting: str) -> list[str]:
        rules = configured("frozen", "banking", setting)["agents"]["guest"]["allow"]
        return [
            one
            for rule in rules
            for name in checked(rule)
            for one in rule["params"][name]["from"]
        ]

    assert {*sources("input")} == {"context.prompt"}
    assert {*sources("input")} < {*sources("paths")} == {*sources("full")}


def test_a_task_acts_if_a_call_has_a_checked_parameter() -> None:
    config = configured("frozen", "banking", "full")

    assert acts(config, [("send_money", {"recipient": "x"})])
    assert not acts(config, [("update_scheduled_transaction", {"amount": 1})])
    assert not acts(config, [("get_balance", {})])
