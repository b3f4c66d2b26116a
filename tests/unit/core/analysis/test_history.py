"""Runs that were judged against a change, in groups."""

from __future__ import annotations

from caxton_host.core.analysis import history as module
from caxton_host.core.analysis.history import Finding, History, Verdict


def found(number: int, verdict: Verdict, at: str = "", how: str = "") -> Finding:
    run_id = f"{number:04}"
    return Finding(
        run_id=run_id, agent="a", verdict=verdict, at=at, how=how, calls=2, seq=3
    )


def test_runs_whose_first_difference_is_alike_are_a_group() -> None:
    history = History(against={"kind": "module", "name": "new.wasm"})
    for number in range(30):
        history.take(found(number, "diverged", "demo/echo $.params"))
    history.take(found(30, "failed", how="a trap"))
    history.take(found(31, "diverged", "demo/other $.params"))
    history.take(found(32, "identical"))

    document = history.to_document()

    assert (history.runs, history.changed, history.judged) == (33, 31, 32)
    assert (document["calls"], document["complete"]) == (66, False)
    told = [(one.count, len(one.runs), one.example.what) for one in history.groups()]
    assert told == [
        (30, 20, "demo/echo $.params"),
        (1, 1, "demo/other $.params"),
        (1, 1, "a trap"),
    ]


def test_differences_beyond_the_most_groups_are_counted_together() -> None:
    history = History(against={})
    for number in range(module._GROUPS + 5):
        history.take(found(number, "denied", f"demo/tool{number}"))

    groups = [*history.groups()]

    assert len(groups) == module._GROUPS + 1
    assert sum(one.count for one in groups) == module._GROUPS + 5
