"""``caxton runs compare``: what two sets of runs do otherwise."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.exceptions import Exit

from ..core.analysis.shifts import FEWEST, Measure, Shift, measured, shifts
from ..core.log.runs import RunFilter
from ..core.names import nearest, stream_of
from ..errors import UsageError
from .context import HostApi, on_host, wait
from .output import FAILED, counted, note, patience, show, table

_ENDED = frozenset({"completed", "failed", "cancelled"})


def compare_of(options: Mapping[str, click.Parameter]) -> click.Command:
    """
    Return the command.

    Args:
        options: Those that select runs of a list, by name.
    """

    @on_host(click.command("compare"))
    @click.option(
        "--before", "a", required=True, metavar="FILTER", help="A set of runs."
    )
    @click.option(
        "--after", "b", required=True, metavar="FILTER", help="The other set."
    )
    @click.option(
        "-n",
        "--limit",
        default=1_000,
        show_default=True,
        type=click.IntRange(FEWEST, 10_000),
        help="Only the newest runs of each set.",
    )
    @click.option("--all", "whole", is_flag=True, help="Print what did not shift too.")
    def compare(
        host: HostApi,
        a: str,
        b: str,
        limit: int,
        *,
        whole: bool,
        as_json: bool,
    ) -> None:
        """
        Compare two sets of runs: tools, denials, durations, costs.

        A FILTER is KEY=VALUE, separated by spaces; the keys are the options of caxton
        runs list. Runs that have not ended, and those that were erased, are left out.
        A change is a difference; of times and fuel it is a factor. All intervals
        together hold with a probability of 95 %; a change whose interval excludes
        "none" is a shift.

        \b
        Exit codes: 0 no shift; 1 some; 2 usage.

        \b
        Examples:
          caxton runs compare --before until=7d --after since=7d
          caxton runs compare --before 'agent=weather until=7d' --after agent=weather
          caxton runs compare --before 'actor=ann' --after 'actor=bob' --json
        """
        filters = [
            _filter(option, text, options)
            for option, text in (("--before", a), ("--after", b))
        ]
        with patience("reading runs"):
            sets = [_measured(host, one, limit) for one in filters]
        for option, (runs, left) in zip(("--before", "--after"), sets, strict=True):
            if not runs:
                raise UsageError(
                    f"{option} selects no run that has ended"
                    + (f", and {left} that has not, or was erased" if left else ""),
                    fix="caxton runs list, with the same filter, shows what there is",
                )
        found = shifts(*(runs for runs, _ in sets))
        if as_json:
            show(
                {
                    "$type": "caxton.shifts/v1",
                    "before": {"runs": len(sets[0][0]), "left_out": sets[0][1]},
                    "after": {"runs": len(sets[1][0]), "left_out": sets[1][1]},
                    "shifts": [one.to_document() for one in found],
                }
            )
        else:
            _tell(found, [len(runs) for runs, _ in sets], whole=whole)
        if any(one.shifted for one in found):
            raise Exit(FAILED)

    return compare


def _filter(
    option: str, text: str, options: Mapping[str, click.Parameter]
) -> RunFilter:
    fix = "write for example agent=NAME since=7d"
    try:
        words = shlex.split(text)
    except ValueError:
        raise UsageError(f"{option}: a quote is open", fix=fix) from None
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in options:
            meant = nearest(key, [*options])
            raise UsageError(
                f"{option}: {word!r} selects no runs: the keys are "
                f"{', '.join(options)}",
                fix=f"did you mean {meant}=...?" if meant else fix,
            )
        if key in found:
            raise UsageError(f"{option}: {key} is there twice", fix=fix)
        try:
            found[key] = options[key].type.convert(value, None, None)
        except click.BadParameter as exc:
            raise UsageError(f"{option}: {key}: {exc.message}", fix=fix) from None
    return RunFilter(**found)


def _measured(
    host: HostApi, only: RunFilter, limit: int
) -> tuple[list[Mapping[Measure, float]], int]:
    """Return the measures of the runs of a set, and how many have none."""
    rows = host.runs(only, limit).runs

    async def read() -> list[Mapping[Measure, float]]:
        found: list[Mapping[Measure, float]] = []
        async with host.history() as store:
            for row in rows:
                if row.state not in _ENDED or row.is_erased:
                    continue
                one = measured(await store.read(stream_of(row.run_id)))
                if one is not None:
                    found.append(one)
        return found

    found = wait(read())
    return found, len(rows) - len(found)


def _tell(found: Sequence[Shift], runs: Sequence[int], *, whole: bool) -> None:
    note(f"before: {counted(runs[0], 'run')}; after: {counted(runs[1], 'run')}")
    if min(runs) < FEWEST:
        note(f"no intervals: they take {FEWEST} runs on each side that have ended")
    shown = [one for one in found if whole or one.shifted or not one.measure.about]
    table(
        ("of", "what", "before", "after", "change", "shift"),
        (
            (
                one.measure.about or "a run",
                one.measure.what,
                _said(one.measure, one.before),
                _said(one.measure, one.after),
                _interval(one),
                "yes" if one.shifted else "no",
            )
            for one in shown
        ),
    )
    note(f"shifts: {sum(one.shifted for one in found)} of {len(found)} measures")
    if len(shown) < len(found):
        note(f"{len(found) - len(shown)} without one are not shown; --all shows them")


def _interval(one: Shift) -> str:
    if one.low is None or one.high is None:
        return ""
    sign = "x" if one.measure.kind == "factor" else "+"
    low, high = (
        _said(one.measure, value, "" if value < 0 else sign)
        for value in (one.low, one.high)
    )
    return f"{low} to {high}"


def _said(measure: Measure, value: float | None, sign: str = "") -> str:
    if value is None:
        return ""
    if measure.kind == "share":
        return f"{sign}{value:.1%}"
    return f"{sign}{value:.4g}"
