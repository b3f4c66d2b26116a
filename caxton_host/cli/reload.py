"""``caxton config reload``: hosts that are up read their configuration again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.redact import Redactor
from ..hosts import RELOADED, ask_hosts, reload_document
from .exits import FAILED
from .frame import Frame, as_json, local_actor, wait
from .overrides import check_text
from .screen import complain, note, patience, plain, say, show

if TYPE_CHECKING:
    from .there import There

__all__ = ["ask", "command"]


@click.command("reload")
@click.option("--host", help="Only this one; default: all that share the log.")
@click.option("--reason", default="", help="Why; it is recorded.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context, frame: Frame, host: str | None, reason: str, as_json: bool
) -> None:
    """
    Have hosts that are up read their configuration again.

    Runs that go on keep the tools that they have; those that begin from then on get
    the new ones. A server that is described as before is not started again. A host
    that cannot load its file goes on as before, and says why.

    \b
    Exit codes: 0 all have; 1 one has not; 2 the configuration here is broken.

    \b
    Examples:
      caxton config reload
      caxton config reload --reason "the key of crm has changed"
    """
    check_text("--reason", [reason])
    with patience("asking the hosts"):
        outcomes = wait(ask(frame, host, "reload", reason))
    if as_json:
        show([reload_document(name, outcome) for name, outcome in outcomes.items()])
    else:
        for name, outcome in outcomes.items():
            say(f"{name}: {plain(outcome)}")
    if not outcomes:
        note("no host is up; the next one reads the file as it is")
    if not all(outcome.startswith(RELOADED) for outcome in outcomes.values()):
        complain("a host goes on as before", "mend what it says, and ask again")
        ctx.exit(FAILED)


async def ask(
    frame: Frame, only: str | None, kind: str, reason: str, subject: str | None = None
) -> dict[str, str]:
    """
    Ask something of hosts that are up, and return what came of it at each.

    Args:
        frame: Where the log is.

        only: The one host, or ``None`` for all.

        kind: What is asked.

        reason: Why; it is recorded, without secrets.

        subject: What it is about.

    Raises:
        NotFoundError: That host is not up.
    """
    from ..bootstrap import open_store

    if frame.there is not None:
        return await _ask_there(frame.there, only, kind, reason, subject)
    config = frame.load()  # Nobody is asked to load what is broken.
    reason = Redactor(config.secrets).text(reason)
    async with open_store(config, write=True) as store:
        return await ask_hosts(
            store, kind, local_actor(), reason, subject=subject, only=only
        )


async def _ask_there(
    there: There, only: str | None, kind: str, reason: str, subject: str | None
) -> dict[str, str]:
    from ..remote.client import path
    from ..remote.documents import listed, mapping, text

    where = path("servers", subject, kind) if subject else path("config", kind)
    async with there.reach() as remote:
        page = mapping(await remote.post(where, {"reason": reason}, host=only))
    hosts = [mapping(one) for one in listed(page.get("hosts"))]
    return {text(one, "host"): text(one, "outcome") for one in hosts}
