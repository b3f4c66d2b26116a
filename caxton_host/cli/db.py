"""``caxton db``: the event store itself."""

from __future__ import annotations

import click

from ..core.calls import JSON
from .exits import FAILED
from .frame import Frame, as_json
from .screen import complain, plain, say, show

__all__ = ["command"]


@click.group("db")
def command() -> None:
    """
    Look after the event store.

    \b
    Examples:
      caxton db status
      caxton db migrate
    """


@command.command("status")
@as_json
@click.pass_obj
@click.pass_context
def status(ctx: click.Context, frame: Frame, as_json: bool) -> None:
    """
    Show where the store is, whether its schema is current, and how its server is.

    \b
    Exit codes: 0 fine; 1 another schema, or the server is not fit; 2 no such database.

    \b
    Examples:
      caxton db status
      caxton --db sqlite:///copy.db db status --json
    """
    document = _status(frame.load().store_url)
    _tell(document, as_json=as_json)
    server = document["server"]
    if fix := _FIXES.get(str(document["state"])):
        if isinstance(server, dict) and not server["may_migrate"]:
            fix = fix.replace(_MIGRATE, f"{_BY_OWNER}, as the owner of the database")
        complain(f"the schema of the database is {document['state']}", fix)
        ctx.exit(FAILED)
    if isinstance(server, dict):
        from ..store.health import problems

        for wrong, fix in (found := problems(server)):
            complain(wrong, fix)
        if found:
            ctx.exit(FAILED)


@command.command("migrate")
@as_json
@click.pass_obj
def migrate(frame: Frame, as_json: bool) -> None:
    """
    Make the store, or bring its schema up to date. Events are kept.

    \b
    Examples:
      caxton db migrate
      caxton --db sqlite:///copy.db db migrate
    """
    from ..bootstrap import usable_store
    from ..store.migrate import upgrade

    url = frame.load().store_url
    with usable_store():
        upgrade(url)
    _tell(_status(url), as_json=as_json)


_MIGRATE, _BY_OWNER = "caxton db migrate", "caxton --db URL db migrate"
_FIXES = {
    "empty": _MIGRATE,
    "older": _MIGRATE,
    "newer": "install the version of caxton-host that wrote it",
}


def _status(url: str) -> dict[str, JSON]:
    from ..bootstrap import usable_store
    from ..store.health import server
    from ..store.migrate import current, head, shown

    with usable_store():
        found = current(url)
        about = server(url)
    state = "empty"
    if found is not None:
        state = "current" if found == head() else "older" if found < head() else "newer"
    return {
        "$type": "caxton.db/v1",
        "url": shown(url),
        "schema": found,
        "wanted": head(),
        "state": state,
        "server": about,
    }


def _tell(document: dict[str, JSON], *, as_json: bool) -> None:
    if as_json:
        show(document)
        return
    for key in ("url", "schema", "wanted", "state"):
        say(f"{key:<8}{document[key] or 'none'}")
    if isinstance(server := document["server"], dict):
        for key, value in server.items():
            say(f"server  {key} {plain(value) or 'none'}")
