"""``caxton runs compare`` says what two sets of runs do otherwise."""

from __future__ import annotations

from tests.e2e.shell import Shell

REFUSED = {
    "agnt=weather": "did you mean agent=...?",
    "weather": "selects no runs: the keys are agent, state",
    "since=yesterday": "--after: since: 'yesterday' is no time",
    "state=odd": "--after: state: 'odd' is not one of",
    "agent=a agent=b": "--after: agent is there twice",
    "agent='a": "--after: a quote is open",
    "agent=nobody": "--after selects no run that has ended",
}


def test_few_runs_are_shown_without_a_shift_and_odd_filters_are_refused(
    shell: Shell,
) -> None:
    shell("init")
    shell("run", "weather")
    before = ("runs", "compare", "--before", "agent=weather", "--after")
    done = shell(*before, "since=1h")

    assert done.code == 0
    assert "a run\tcalls\t3\t3\t\tno" in done.out.splitlines()
    assert "no intervals" in done.err
    told = shell(*before, "since=1h", "--json").document
    assert told["before"] == {"runs": 1, "left_out": 0}
    assert {"demo/get_weather", None} <= {one["about"] for one in told["shifts"]}

    for text, said in REFUSED.items():
        done = shell(*before, text)
        assert done.code == 2, text
        assert said in done.err
        assert "To fix:" in done.err
