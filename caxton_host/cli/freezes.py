"""``caxton freeze`` and ``caxton thaw``: stop calls on every host, and allow them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import click

from ..core.calls import JSON
from ..core.grants.freezes import KINDS, Kind
from . import completion
from .context import HostApi, as_json, on_host
from .output import note, plain, say, show, table
from .overrides import check_text
from .run_text import second

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[Any]]


@click.group("freeze")
def freeze() -> None:
    """
    Stop the calls of an agent, a token, a server or a schedule.

    Within a second, every host that uses the log sends no more calls of it. Its runs
    are suspended at their next call, and go on after caxton thaw. Calls that were sent
    before are answered and recorded. Runs that make no call run on to their end.

    \b
    Examples:
      caxton freeze agent payer --reason "pays twice"
      caxton freeze token laptop --reason "stolen"
      caxton freeze server bank --reason "it is being restored"
      caxton freeze list
    """


@click.group("thaw")
def thaw() -> None:
    """
    Let what is frozen make calls again.

    A serving host resumes the suspended runs; otherwise caxton runs resume does.

    \b
    Examples:
      caxton thaw agent payer --reason "the bug is fixed"
      caxton thaw token laptop
    """


@on_host(freeze.command("list"))
def list_(host: HostApi, as_json: bool) -> None:
    """
    List what is frozen, oldest first.

    \b
    Examples:
      caxton freeze list
      caxton freeze list --json
    """
    found = host.freezes()
    if as_json:
        show([{**one} for one in found])
        return
    table(
        ("kind", "name", "since (UTC)", "by", "reason"),
        (
            (
                plain(one["kind"]),
                plain(one["name"]),
                second(int(str(one["at"]))),
                plain(actor_id(one["actor"])),
                plain(one["reason"]),
            )
            for one in found
        ),
    )
    if not found:
        note("nothing is frozen")


def actor_id(actor: JSON) -> JSON:
    """Return the id of an actor."""
    return actor.get("id") if isinstance(actor, dict) else actor


#: The metavar of each kind, what completes it, and an example.
_NAMES: Mapping[Kind, tuple[str, Complete, str]] = {
    "agent": ("NAME", completion.agents, "payer"),
    "token": ("ID|NAME", completion.tokens, "laptop"),
    "server": ("NAME", completion.servers, "bank"),
    "schedule": ("NAME", completion.schedules, "nightly"),
}

_HELP = """
{verb} {article} {kind}.

\b
Exit codes: 0 recorded; 2 {otherwise}.

\b
Examples:
  caxton {typed} {example} --reason "{reason}"
"""


def freezing(kind: Kind, name: str = "", *, thaws: bool) -> click.Command:
    """Return the command that freezes, or *thaws*, one of a kind; *name*: as it is."""
    metavar, complete, example = _NAMES[kind]

    @click.argument("name", metavar=metavar, shell_complete=complete)
    @click.option("--reason", required=not thaws, help="The reason; recorded.")
    @as_json
    @click.pass_obj
    def command(host: HostApi, name: str, reason: str | None, as_json: bool) -> None:
        reason = reason or ""
        check_text("--reason", [reason])
        found = host.freeze(kind, name, reason, thaw=thaws)
        if as_json:
            show([{**one} for one in found])
        elif thaws:
            say(f"{kind} {name} is thawed")
        else:
            say(f"{kind} {name} is frozen; its runs are suspended at their next call")

    return click.command(
        name or kind,
        help=_HELP.format(
            verb=name.title() or ("Thaw" if thaws else "Freeze"),
            typed=f"{kind} {name}"
            if name
            else f"{'thaw' if thaws else 'freeze'} {kind}",
            article="an" if kind == "agent" else "a",
            kind=kind,
            otherwise="it is not frozen" if thaws else f"no such {kind}",
            example=example,
            reason="it is fixed" if thaws else "it misbehaves",
        ),
    )(command)


for _kind in KINDS:
    freeze.add_command(freezing(_kind, thaws=False))
    thaw.add_command(freezing(_kind, thaws=True))
