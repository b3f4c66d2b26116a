"""``caxton schedule``: list, pause and start what runs by the clock."""

from __future__ import annotations

import click
from click.exceptions import Exit

from ..core.calls import JSON
from . import completion
from .context import HostApi, StartOptions, check_known, on_host
from .freezes import actor_id, freezing
from .output import note, plain, show, table
from .overrides import Overrides
from .run_text import second

_NAME = click.argument("name", metavar="NAME", shell_complete=completion.schedules)


@click.group("schedule")
def command() -> None:
    """
    List, pause and start what runs by the clock.

    A host that serves starts the runs of [schedules.NAME]: each tick once, however many
    hosts use the log.

    \b
    Examples:
      caxton schedule list
      caxton schedule run-now nightly
      caxton schedule pause nightly --reason "the report is wrong"
      caxton schedule resume nightly --reason "it is corrected"
    """


@on_host(command.command("list"))
def list_(host: HostApi, as_json: bool) -> None:
    """
    List the schedules, with the next tick and the last run of each.

    \b
    Examples:
      caxton schedule list
      caxton schedule list --json
    """
    found = host.schedules()
    if as_json:
        show([{**one} for one in found])
        return
    table(
        ("name", "agent", "cron", "zone", "next (UTC)", "last run", "state"),
        (
            (
                *(plain(one[key]) for key in ("name", "agent", "cron", "timezone")),
                second(one["next"]) if isinstance(one["next"], int) else "paused",
                *(_of(one["last"], key) for key in ("run_id", "state")),
            )
            for one in found
        ),
    )
    for one in found:
        if isinstance(paused := one["paused"], dict):
            who, why = plain(actor_id(paused["actor"])), plain(paused["reason"])
            what = f"{paused['kind']} {plain(paused['name'])}"
            note(f"{plain(one['name'])}: {what} was frozen by {who}: {why}")
    if not found:
        note("there is no schedule: describe one in [schedules.NAME]")


def _of(last: JSON, key: str) -> str:
    return plain(last[key]) if isinstance(last, dict) else "-"


for _verb, _thaws in (("pause", False), ("resume", True)):
    command.add_command(freezing("schedule", _verb, thaws=_thaws))


@on_host(command.command("run-now"))
@_NAME
@click.option("-q", "--quiet", is_flag=True, help="Print only the output.")
def run_now(host: HostApi, name: str, quiet: bool, as_json: bool) -> None:
    """
    Run the agent of a schedule now, with its input, to the end.

    The run is yours. It is no tick: the schedule goes on as if it had not been.

    \b
    Exit codes: those of caxton run.

    \b
    Examples:
      caxton schedule run-now nightly
      caxton schedule run-now nightly --json
    """
    known = {str(one["name"]): one for one in host.schedules()}
    check_known(name, known, f"no schedule {name!r}", "caxton schedule list")
    one = known[name]
    variables = one["variables"]
    assert isinstance(variables, dict)  # noqa: S101 -- a table
    options = StartOptions(
        given=Overrides(),
        variables=variables,
        quiet=quiet,
        as_json=as_json,
        target=str(one["agent"]),
        language=None,
        input=lambda: one["input"],
        entry=None,
    )
    raise Exit(host.start(options)[0])
