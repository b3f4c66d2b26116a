"""``caxton serve token``: create, list and revoke tokens of a host."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.grants.principals import (
    PREFIX,
    SCOPES,
    TokenScope,
)
from ..core.names import nearest
from ..errors import NotFoundError, UsageError
from ..lib.machine import SystemClock
from ..ports.serving import TokenRow
from ..service.token_making import (
    Wanted,
    check_wanted,
    lifetime,
    make,
    token_document,
    token_state,
)
from . import completion
from .context import SIGNED, HostApi, as_json, wait
from .output import note, say, show, table
from .overrides import check_text
from .run_text import second

if TYPE_CHECKING:
    from ..config import Config


@click.group("token")
def command() -> None:
    """
    Create, list and revoke tokens for callers of this host.

    A token is shown once. The event store keeps only its digest: hosts that share a
    store share tokens, and a reader of the store cannot recover one.

    \b
    Examples:
      caxton serve token create --name laptop --scope run -o token.txt
      caxton serve token list
      caxton serve token revoke laptop
    """


class _Lifetime(click.ParamType[float]):
    """Seconds, or infinity."""

    name = "duration"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return lifetime(value)
        except UsageError as exc:
            self.fail(str(exc), param, ctx)


@command.command("create")
@click.option("--name", default="", help="A name for people; shown in lists.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([*SCOPES]),
    help="What the token allows. Repeatable.",
)
@click.option(
    "--session",
    metavar="NAME",
    shell_complete=completion.sessions,
    help="The session that it is for, instead of scopes.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    default=["*"],
    metavar="PATTERN",
    help="Agents it may use, like bank-*; default all. Repeatable.",
)
@click.option(
    "--tenant",
    metavar="NAME",
    help="The tenant whose runs it sees; default all.",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    help="A role in which it approves calls. Repeatable.",
)
@click.option(
    "--expires",
    type=_Lifetime(),
    default="90d",
    show_default=True,
    help="How long it is valid, or never.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to a new private file instead of stdout.",
)
@as_json
@click.pass_obj
def create(
    host: HostApi,
    name: str,
    scopes: tuple[TokenScope, ...],
    session: str | None,
    agents: tuple[str, ...],
    tenant: str | None,
    roles: tuple[str, ...],
    expires: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """
    Create a token, and print it once.

    Nothing else is printed on stdout.

    \b
    Scopes:
      run     start agents; see, cancel, resume and fork the runs that it started
      read    see all runs and their events
      decide  see all runs; approve and deny calls, and resolve those in doubt
      auditor read everything, freezes, servers and the host's events too
      admin   all of these; servers, tools, tokens, erasure and the configuration too

    A token with --session is good for the client of that session alone. For a token
    with --tenant, runs of others do not exist.

    An event records who created the token and for what; no event has its secret.

    \b
    Exit codes: 0 created; 2 usage or configuration.

    \b
    Examples:
      caxton serve token create --name laptop --scope run -o token.txt
      caxton serve token create --name desk --scope decide --role ops --expires 12h
      caxton serve token create --scope run --agent 'bank-*' --expires never --json
      caxton serve token create --name cursor --session dev -o token.txt
      caxton serve token create --name acme --tenant acme --scope run -o token.txt
    """
    check_text("--name", [name])
    if output is None and sys.stdout is None:  # click would print nothing.
        raise UsageError("stdout is closed", fix="write it to a file with -o FILE")
    # Names of agents and roles are checked against the configuration.
    named = ("agents",) if session or roles or agents != ("*",) else ()
    config = host.look(*SIGNED, *named, guarded=bool(name))
    wanted = Wanted(
        name=name,
        scopes=scopes,
        agents=agents,
        roles=roles,
        tenant=tenant,
        session=session,
        seconds=expires,
    )
    check_wanted(wanted, config)
    now = SystemClock().now()
    token, row = make(wanted, config, now, secrets.token_bytes)
    with _kept(output, token.text):
        wait(_add(host, config, row))
    if as_json and output:
        show(token_document(row, now))
        return
    if as_json:
        with _undone(host, row):
            show({**token_document(row, now), "token": token.text})
        return
    until = f"until {second(row.expires_at)}" if row.expires_at else "for ever"
    note(
        f"token {row.id}: {', '.join(row.scopes)} with {', '.join(row.agents)}, {until}"
    )
    if output:
        note(f"written to {output}, which only you can read")
    else:
        note("it is shown this once; keep it where nobody else can read it")
        with _undone(host, row):
            say(token.text)


@contextlib.contextmanager
def _kept(output: Path | None, text: str) -> Generator[None]:
    """Write the token to a new file; delete it if the token is not created."""
    if output is None:
        yield
        return
    try:
        # O_EXCL also refuses symbolic links.
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(
            f"{output} already exists", fix="name a new file with -o"
        ) from None
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{text}\n")
        yield
    except BaseException:
        output.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _undone(host: HostApi, row: TokenRow) -> Generator[None]:
    """Revoke a token if it cannot be printed."""
    try:
        yield
    except BaseException as exc:
        wait(_revoke(host, row.id, SystemClock().now()))
        if not isinstance(exc, OSError):
            raise
        raise UsageError(
            f"stdout cannot be written, so token {row.id} is revoked: {exc.strerror}",
            fix="write it to a file with -o FILE",
        ) from None


async def _add(host: HostApi, config: Config, row: TokenRow) -> None:
    from ..app.maintenance import keeping

    async with keeping(config, host.paths()) as keeper:
        await keeper.add_token(row)


@command.command("list")
@as_json
@click.pass_obj
def list_(host: HostApi, as_json: bool) -> None:
    """
    List all tokens of the event store, including revoked ones.

    \b
    Examples:
      caxton serve token list
      caxton serve token list --json
    """
    rows, now = wait(_all(host)), SystemClock().now()
    if as_json:
        show([token_document(row, now) for row in rows])
        return
    table(
        ("id", "name", "scopes", "agents", "roles", "tenant", "expires", "state"),
        [
            (
                row.id,
                row.name,
                " ".join(row.scopes),
                " ".join(row.agents),
                " ".join(row.roles),
                row.tenant or "",
                second(row.expires_at) if row.expires_at else "never",
                token_state(row, now),
            )
            for row in rows
        ],
    )


async def _all(host: HostApi) -> list[TokenRow]:
    async with host.log() as store:
        return await store.tokens.all()


@command.command("revoke")
@click.argument("token", metavar="ID|NAME", shell_complete=completion.tokens)
@as_json
@click.pass_obj
def revoke(host: HostApi, token: str, as_json: bool) -> None:
    """
    Revoke a token permanently, from the next request on.

    Runs that it started continue: see caxton runs cancel.

    \b
    Exit codes: 0 revoked; 2 no such token, or it was revoked before.

    \b
    Examples:
      caxton serve token revoke laptop
      caxton serve token revoke 0f3c2a915be04d77
    """
    row = _named(token, wait(_all(host)))
    now = SystemClock().now()
    wait(_revoke(host, row.id, now))
    if as_json:
        show(token_document(replace(row, revoked_at=now), now))
    else:
        say(f"revoked token {row.id}{' ' * bool(row.name)}{row.name}")


async def _revoke(host: HostApi, token_id: str, now: int) -> None:
    from ..app.maintenance import keeping

    async with keeping(host.look(), host.paths()) as keeper:
        await keeper.revoke_token(token_id, now)


def _named(word: str, rows: list[TokenRow]) -> TokenRow:
    """Return the token that can still be revoked and has that id or name."""
    if word.startswith(PREFIX):
        # No error shows the secret of a whole token.
        word = word.removeprefix(PREFIX).partition("_")[0]
    meant = [row for row in rows if word in {row.id, row.name}]
    found = [row for row in meant if row.revoked_at is None]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{len(found)} tokens have the name {word!r}",
            fix=f"name one by its id: {', '.join(row.id for row in found)}",
        )
    if meant:
        raise NotFoundError(
            f"token {word!r} was revoked already", fix="caxton serve token list"
        )
    live = [row for row in rows if row.revoked_at is None]
    close = nearest(word, [one for row in live for one in (row.id, row.name) if one])
    raise NotFoundError(
        f"there is no token {word!r}",
        fix=f"did you mean {close}?" if close else "caxton serve token list",
    )
