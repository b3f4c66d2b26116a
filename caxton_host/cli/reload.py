"""``caxton config reload``: hosts that are up read their configuration again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.redact import Redactor
from ..errors import NotFoundError
from .exits import FAILED
from .frame import Frame, as_json, local_actor, wait
from .overrides import check_text
from .screen import complain, note, patience, plain, say, show

if TYPE_CHECKING:
    from ..store.sql import SqlStore

__all__ = ["ask", "command"]

_PAUSE = 0.1
_MOST = 30.0
_SILENT = "does not answer"
_ENDED = "has ended"
_GOOD = ("generation", "nothing has changed", _ENDED)


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
        show([_document(name, outcome) for name, outcome in outcomes.items()])
    else:
        for name, outcome in outcomes.items():
            say(f"{name}: {plain(outcome)}")
    if not outcomes:
        note("no host is up; the next one reads the file as it is")
    if not all(outcome.startswith(_GOOD) for outcome in outcomes.values()):
        complain("a host goes on as before", "mend what it says, and ask again")
        ctx.exit(FAILED)


def _document(host: str, outcome: str) -> dict[str, JSON]:
    return {
        "$type": "caxton.reload/v1",
        "host": host,
        "reloaded": outcome.startswith(_GOOD),
        "outcome": outcome,
    }


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

    config = frame.load()  # Nobody is asked to load what is broken.
    reason = Redactor(config.secrets).text(reason)
    async with open_store(config, write=True) as store:
        hosts = await store.hosts()
        if only is not None and only not in hosts:
            raise NotFoundError(
                f"no host {only!r} is up", fix=f"name one of: {', '.join(hosts)}"
            )
        asked = {
            host: await store.ask(host, kind, local_actor(), reason, subject)
            for host in ([only] if only else hosts)
        }
        async with asyncio.TaskGroup() as tasks:
            found = {
                host: tasks.create_task(_outcome(store, host, number))
                for host, number in asked.items()
            }
    return {host: task.result() for host, task in found.items()}


async def _outcome(store: SqlStore, host: str, number: int) -> str:
    try:
        async with asyncio.timeout(_MOST):
            while (outcome := await store.outcome(number)) is None:
                if host not in await store.hosts():
                    return _ENDED
                await asyncio.sleep(_PAUSE)
            return outcome
    except TimeoutError:
        return _SILENT
