"""The first rule that names agent and state says when a run has to go."""

from __future__ import annotations

import pytest

from caxton_host.core.log.retention import Retention, Rule

DAY = 86_400.0
NOW = 100 * 86_400_000_000
RULES = Retention(
    rules=[
        Rule(name="rule 1", action="keep", agents=["payer", "bank-?"]),
        Rule(
            name="rule 2", action="erase", agents=["w*"], states=["failed"], after=DAY
        ),
        Rule(name="rule 3", action="archive", states=["failed"], after=10 * DAY),
        Rule(name="rule 4", action="keep", states=["cancelled"]),
    ]
)


@pytest.mark.parametrize(
    ("agent", "state", "days", "rule"),
    [
        ("payer", "failed", 99, None),
        ("bank-1", "failed", 99, None),
        ("bank-12", "failed", 99, "rule 3"),
        ("weather", "failed", 1, "rule 2"),
        ("weather", "failed", 0.99, None),
        ("other", "failed", 9.99, None),
        ("other", "failed", 10, "rule 3"),
        ("weather", "cancelled", 99, None),
        ("weather", "completed", 99, None),
    ],
)
def test_first_rule_that_fits_decides(
    agent: str, state: str, days: float, rule: str | None
) -> None:
    ended = NOW - int(days * 86_400_000_000)
    found = RULES.due(agent, state, ended, NOW)
    assert (found.name if found else None) == rule


@pytest.mark.parametrize(
    ("state", "before"),
    [("failed", NOW - 86_400_000_000), ("cancelled", None), ("completed", None)],
)
def test_nobody_looks_for_runs_that_no_rule_takes(
    state: str, before: int | None
) -> None:
    assert RULES.before(state, NOW) == before
    assert Retention().before(state, NOW) is None
