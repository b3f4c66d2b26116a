"""``caxton server restart``: hosts that are up start a server anew."""

from __future__ import annotations

import click

from ..runs.cancellation import restart_document
from . import completion
from .context import Frame, as_json, wait
from .exits import FAILED
from .output import complain, note, patience, plain, say, show
from .overrides import check_text
from .reload import ask, ask_there


@click.command("restart")
@click.argument("name", shell_complete=completion.servers)
@click.option(
    "--only",
    "host",
    metavar="HOST",
    help="One of the hosts that share the log; default: all.",
)
@click.option("--reason", default="", help="Why; it is recorded.")
@as_json
@click.pass_obj
@click.pass_context
def restart(
    ctx: click.Context,
    frame: Frame,
    name: str,
    host: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """
    Have hosts that are up start the server NAME anew.

    Calls under way there fail as when it dies. One that was given up is tried again. A
    server with a url is connected to anew.

    \b
    Exit codes: 0 all have; 1 one could not; 2 there is no such server.

    \b
    Examples:
      caxton server restart crm
      caxton server restart crm --reason "new version installed" --json
    """
    from .server import check

    check_text("--reason", [reason])
    with patience("asking the hosts"):
        if frame.there is not None:
            where = ("servers", name, "restart")
            answers = wait(ask_there(frame.there, host, where, reason))
        else:
            config = frame.load()
            check(config, name)
            answers = wait(
                ask(config, frame.paths().state, host, "restart", reason, name)
            )
    if as_json:
        show([restart_document(name, *answer) for answer in answers.items()])
    else:
        for one, answer in answers.items():
            say(f"{one}: {plain(answer.text)}")
    if not answers:
        note("no host is up; the next one starts it when it is needed")
    if any(answer.state == "failed" for answer in answers.values()):
        see = (
            f"check the command or url of [servers.{name}]; "
            f"caxton server logs {name} shows what it said"
        )
        complain(f"{name} could not be started everywhere", see)
        ctx.exit(FAILED)
