"""``caxton config reload``: hosts that are up read their configuration again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..core.text.redact import Redactor
from ..lib.machine import local_actor
from ..runs.cancellation import Answer, ask_hosts, asked_of, reload_document
from .context import Frame, as_json, wait
from .exits import FAILED
from .output import complain, note, patience, plain, say, show
from .overrides import check_text

if TYPE_CHECKING:
    from pathlib import Path

    from ..config import Config
    from .host_option import There


@click.command("reload")
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
        # Nobody is asked to load what is broken.
        if frame.there is not None:
            answers = wait(ask_there(frame.there, host, ("config", "reload"), reason))
        else:
            answers = wait(
                ask(frame.load(), frame.paths().state, host, "reload", reason)
            )
    if as_json:
        show([reload_document(name, answer) for name, answer in answers.items()])
    else:
        for name, answer in answers.items():
            say(f"{name}: {plain(answer.text)}")
    if not answers:
        note("no host is up; the next one reads the file as it is")
    if any(answer.state == "failed" for answer in answers.values()):
        complain("a host goes on as before", "mend what it says, and ask again")
        ctx.exit(FAILED)


async def ask(
    config: Config,
    state: Path,
    only: str | None,
    kind: str,
    reason: str,
    subject: str | None = None,
) -> dict[str, Answer]:
    """
    Ask something of hosts that are up, and return what came of it at each.

    Args:
        config: Says where the log is, and what is secret.

        state: The folder of the keys.

        only: The one host, or ``None`` for all.

        kind: What is asked.

        reason: Why; it is recorded, without secrets.

        subject: What it is about.

    Raises:
        NotFoundError: That host is not up.
    """
    from ..app.bootstrap import open_store
    from ..store.engine import file_of

    reason = Redactor(config.secrets).text(reason)
    file = file_of(config.store_url)
    if file is not None and not file.exists():
        # It is not made to say that it holds nothing.
        asked_of((), only)
        return {}
    async with open_store(config, write=True, state=state) as store:
        return await ask_hosts(
            store, kind, local_actor(), reason, subject=subject, only=only
        )


async def ask_there(
    there: There, only: str | None, where: Sequence[str], reason: str
) -> dict[str, Answer]:
    """
    Have a host ask all that share its log; see `ask`.

    Args:
        there: The host.

        only: The one to be asked, or ``None`` for all.

        where: The parts of the path of what is asked.

        reason: Why; it is recorded.
    """
    from ..remote.client import path
    from ..remote.documents import mappings, text
    from ..runs.cancellation import answer_of

    async with there.reach() as remote:
        page = await remote.post(path(*where), {"reason": reason}, host=only)
    return {
        text(one, "host"): answer_of(text(one, "outcome"))
        for one in mappings(page, "hosts")
    }
