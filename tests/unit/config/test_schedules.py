"""Schedules, as a file describes them."""

from __future__ import annotations

import sys

import pytest

from caxton_host.config import describe
from caxton_host.config.model import Schedule

from .conftest import Folder

AGENTS = """
[agents.report]
module = "report.wasm"
[sessions.desk]
"""
CONTEXT = """
[context]
team = { required = true }
key = { private = true }
"""


def test_every_key_of_a_schedule_is_read_and_shown(folder: Folder) -> None:
    config = folder.load(
        f"""{AGENTS}
        [schedules.nightly]
        agent = "report"
        cron = "30 2 * * mon-fri"
        timezone = "Europe/Oslo"
        input = {{ days = 1 }}
        variables = {{ team = "ops" }}
        overlap = "allow"
        catch_up = "last"
        """
    )

    nightly = Schedule(
        name="nightly",
        agent="report",
        cron="30 2 * * mon-fri",
        timezone="Europe/Oslo",
        input={"days": 1},
        variables={"team": "ops"},
        overlap="allow",
        catch_up="last",
    )
    assert config.schedules == {"nightly": nightly}
    shown = describe(config)["schedules"]
    assert isinstance(shown, dict)
    assert shown["nightly"] == {
        "name": "nightly",
        "agent": "report",
        "cron": "30 2 * * mon-fri",
        "timezone": "Europe/Oslo",
        "input": {"days": 1},
        "variables": {"team": "ops"},
        "overlap": "allow",
        "catch_up": "last",
    }


def test_a_schedule_skips_and_catches_nothing_up_unless_it_says_so(
    folder: Folder,
) -> None:
    found = folder.load(
        f'{AGENTS}[schedules.hourly]\nagent = "report"\ncron = "0 * * * *"'
    )

    assert found.schedules["hourly"] == Schedule(
        name="hourly", agent="report", cron="0 * * * *"
    )


@pytest.mark.parametrize(
    ("lines", "key", "problem", "fix"),
    [
        ('cron = "0 * * * *"', "nightly", "needs its agent", 'agent = "weather"'),
        ('agent = "report"', "nightly", "needs its cron", 'write cron = "0 9'),
        ('agent = "reporrt"', "agent", "not an agent", "did you mean report?"),
        ('agent = "desk"', "agent", "not an agent", "describe it in [agents]"),
        ('cron = "daily"', "cron", "not five fields", "minute, hour, day"),
        ('cron = "0 25 * * *"', "cron", "does not know", "minute, hour, day"),
        ('cron = "0 0 31 2 *"', "cron", "never comes", "name a day"),
        ('timezone = "Europe/Olso"', "timezone", "no", "did you mean Europe/Oslo?"),
        ('overlap = "queue"', "overlap", "not one of", '"skip", "allow"'),
        (
            "variables = {}",
            "variables",
            "'team' is required",
            "what [context] requires",
        ),
        (
            'variables = { team = "ops", key = "k" }',
            "variables.key",
            "is private",
            "the default in [context]",
        ),
    ],
)
def test_a_schedule_that_cannot_run_is_refused_by_file_line_and_key(
    folder: Folder, lines: str, key: str, problem: str, fix: str
) -> None:
    given = {"agent": '"report"', "cron": '"0 * * * *"'}
    if key != "nightly":
        name = lines.partition(" ")[0]
        given = {**given, "variables": '{ team = "ops" }'}
        rest = [f"{one} = {said}" for one, said in given.items() if one != name]
        lines = "\n".join([*rest, lines])

    refused = folder.refusal(f"{AGENTS}{CONTEXT}[schedules.nightly]\n{lines}")

    assert str(refused).startswith("caxton.toml:")
    assert f"schedules.nightly{'' if key == 'nightly' else f'.{key}'}" in str(refused)
    assert problem in str(refused)
    assert fix in refused.fix


def test_schedules_need_their_extra(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "croniter", None)

    refused = folder.refusal(
        f'{AGENTS}[schedules.nightly]\nagent = "report"\ncron = "0 * * * *"'
    )

    assert refused.fix == "pip install 'caxton-host[schedules]'"
    assert folder.load(AGENTS).schedules == {}
