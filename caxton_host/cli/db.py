"""``caxton db``: migrate, copy and archive the event store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.log.events import LogRestored, to_payload
from ..core.log.retention import Retention, Rule
from ..errors import UsageError
from ..lib.machine import SystemClock
from .context import SIGNED, HostApi, on_host, wait
from .db_copies import COMMANDS
from .options import Moment
from .output import (
    AUDIT,
    FAILED,
    complain,
    counted,
    note,
    patience,
    plain,
    progress,
    say,
    show,
    table,
)
from .run_text import moment

if TYPE_CHECKING:
    from ..app.retention import Retained
    from ..config import Config
    from ..store.recheck import Difference

#: Differences that are printed.
_SHOWN = 10


@click.group("db")
def command() -> None:
    """
    Migrate, copy and archive the event store.

    \b
    Examples:
      caxton db status
      caxton db migrate
      caxton db backup caxton-2026-01-31.db
    """


for one in COMMANDS:
    command.add_command(one)


@on_host(command.command("status"))
def status(host: HostApi, as_json: bool) -> None:
    """
    Show the location, schema and server of the store.

    \b
    Exit codes: 0 usable; 1 another schema, or unfit server; 2 no such database.

    \b
    Examples:
      caxton db status
      caxton --db sqlite:///copy.db db status --json
    """
    document = _status(host.look().store_url)
    _tell(document, as_json=as_json)
    server = document["server"]
    if fix := _FIXES.get(str(document["state"])):
        if isinstance(server, dict) and not server["may_migrate"]:
            fix = fix.replace(_MIGRATE, f"{_BY_OWNER}, as the owner of the database")
        complain(f"the schema of the database is {document['state']}", fix)
        raise Exit(FAILED)
    if isinstance(server, dict):
        from ..store.health import problems

        for wrong, fix in (found := problems(server)):
            complain(wrong, fix)
        if found:
            raise Exit(FAILED)


@on_host(command.command("migrate"))
def migrate(host: HostApi, as_json: bool) -> None:
    """
    Create the store, or update its schema; events are kept.

    \b
    Examples:
      caxton db migrate
      caxton --db sqlite:///copy.db db migrate
    """
    from ..app.bootstrap import usable_store
    from ..app.placement import prepare_placement
    from ..store.migrate import upgrade

    config = host.look("placement")
    with usable_store():
        upgrade(config.store_url)
        wait(prepare_placement(config))
    _tell(_status(config.store_url), as_json=as_json)


@on_host(command.command("recount"))
def recount(host: HostApi, as_json: bool) -> None:
    """
    Rebuild the budgets of all agents from the log.

    Spending is in a table beside the log, which a copy may lack. Hosts wait while it
    is rebuilt. The spending of erased runs is not included.

    \b
    Examples:
      caxton db recount
    """
    from ..app.bootstrap import open_store

    async def count() -> tuple[int, int]:
        config = host.look()
        # Do not create a missing database.
        async with open_store(config, write=False):
            pass
        async with open_store(config, write=True, state=host.paths().state) as store:
            return await store.budgets.recount()

    with patience("counting"):
        budgets, places = wait(count())
    if as_json:
        show({"$type": "caxton.recount/v1", "budgets": budgets, "calls": places})
        return
    say(f"{counted(budgets, 'budget')}, {counted(places, 'call')} under way")


@on_host(command.command("verify-projections"))
@click.option("--repair", is_flag=True, help="Make them again from the events first.")
def verify_projections(host: HostApi, repair: bool, as_json: bool) -> None:
    """
    Compare what lists show with the events of all runs.

    Lists read tables that are made from events: see caxton audit verify for the events
    themselves. Hosts may write meanwhile.

    \b
    Exit codes: 0 the same; 5 they differ.

    \b
    Examples:
      caxton db verify-projections
      caxton db verify-projections --repair
    """
    count, found = wait(_verify_projections(host, repair=repair))
    if as_json:
        shown: list[JSON] = [
            {
                "run_id": one.run_id,
                "column": one.column,
                "stored": repr(one.stored),
                "events": repr(one.events),
            }
            for one in found[:_SHOWN]
        ]
        numbers: dict[str, JSON] = {"runs": count, "differ": len(found)}
        show({"$type": "caxton.projections/v1", **numbers, "differences": shown})
    else:
        say(f"{counted(count, 'run')}, {counted(len(found), 'difference')}")
        for one in found[:_SHOWN]:
            where = f"run {one.run_id}" if one.run_id else "all runs"
            said = f"{one.column} is {one.stored!r}, by its events {one.events!r}"
            say(f"{where}: {plain(said)}")
    if found:
        complain(
            "lists differ from events",
            host.named("caxton db verify-projections --repair"),
        )
        raise Exit(AUDIT)


async def _verify_projections(
    host: HostApi, *, repair: bool
) -> tuple[int, list[Difference]]:
    from ..app.bootstrap import open_store

    config, state = host.look(), host.paths().state
    # Do not create a missing database.
    async with open_store(config, write=False):
        pass
    if repair:
        async with open_store(config, write=True, state=state) as store:
            with progress("repairing") as tell:
                await store.projections.rebuild(tell)
    async with open_store(config, write=False) as store:
        with progress("comparing") as tell:
            return await store.projections.verify(tell)


@on_host(command.command("accept-copy"))
def accept_copy(host: HostApi, as_json: bool) -> None:
    """
    Accept a log that lacks events this machine has signed.

    Such a log was restored from a copy, or its end was removed. What it lacks is
    recorded, and each unfinished run is suspended until caxton runs resume --restored.
    Stop all hosts of the log first.

    \b
    Examples:
      caxton db accept-copy
    """
    lost = wait(_accept_copy(host))
    if as_json:
        payload = to_payload(lost) if lost else {}
        show({"$type": "caxton.accepted/v1", "accepted": lost is not None, **payload})
    elif lost is None:
        say("the log has all that this machine has signed: there is nothing to accept")
    else:
        had = "" if lost.had_size is None else f" of {lost.had_size}"
        say(f"accepted: {counted(lost.size, 'event')}{had}")
        say(f"suspended: {counted(lost.runs, 'run')}")
        if lost.runs:
            note(host.named("next: caxton runs list --state suspended"))


async def _accept_copy(host: HostApi) -> LogRestored | None:
    from ..app.bootstrap import open_signed, open_store
    from ..lib.signing import Keyring

    config, state = host.look(*SIGNED), host.paths().state
    # Do not create a missing database.
    async with open_store(config, write=False):
        pass
    async with open_signed(config, Keyring(state), state, accept=True) as store:
        return store.incarnation.restored


@on_host(command.command("archive"))
@click.option(
    "--before",
    type=Moment(),
    required=True,
    help="Only runs that ended before this time.",
)
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder of the bundles.",
)
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
def archive(
    host: HostApi, before: int, folder: Path, dry_run: bool, as_json: bool
) -> None:
    """
    Move old runs to bundles, one file per run.

    The data of a run is erased from the store once its bundle is on disk; its
    envelopes and hashes stay, so the log verifies as before, and the bundle verifies
    against it. Unfinished runs and runs on hold are skipped, and so are parents of runs
    that stay.

    A time is ISO 8601, UTC unless it names a zone, or a duration: 90d is ninety days
    ago.

    \b
    Examples:
      caxton db archive --before 90d --to archive --dry-run
      caxton db archive --before 2026-01-01 --to archive
    """
    age = (SystemClock().now() - before) / 1_000_000
    rule = Rule(name="archived", action="archive", after=age)
    config = host.look(*SIGNED)
    rules = Retention(rules=[rule], archive=folder)
    found, is_gone = wait(_retain(host, config, rules, dry_run=dry_run))
    moved = [one for one in found if one.outcome in {"due", "done"}]
    if as_json:
        keys = ("run_id", "agent", "state", "ended_at", "events", "bytes", "bundle")
        shown = [{key: getattr(one, key) for key in keys} for one in moved]
        show([{"$type": "caxton.archived/v1", **one} for one in shown])
    else:
        table(
            ("run", "agent", "state", "ended at (UTC)", "events", "bytes", "bundle"),
            ((*_cells(one), one.bundle or "") for one in moved),
        )
        note(f"{counted(len(moved), 'run')} {'to move' if dry_run else 'moved'}")
    _end(found, is_gone=is_gone)


@on_host(command.command("retain"))
@click.option("--dry-run", is_flag=True, help="Only list the runs; write nothing.")
def retain(host: HostApi, dry_run: bool, as_json: bool) -> None:
    """
    Archive or erase the runs that have to go by [retention].

    A host that serves does the same by itself. A run that is on hold, or that a fork
    needs, is kept and tried again the next time. What fails is listed, and the rest is
    done.

    \b
    Exit codes: 0 done; 1 something failed; 2 there are no rules.

    \b
    Examples:
      caxton db retain --dry-run
      caxton db retain --json
    """
    config = host.look(*SIGNED, "retention")
    if not config.retention.rules:
        raise UsageError(
            "no rule says how long runs are kept",
            fix="add [[retention.rules]] to caxton.toml: "
            "docs/how-to/keep-and-forget.md",
        )
    work = _retain(host, config, config.retention, dry_run=dry_run)
    found, is_gone = wait(work)
    if as_json:
        show([{"$type": "caxton.retained/v1", **asdict(one)} for one in found])
    else:
        titles = ("run", "agent", "state", "ended at (UTC)", "events", "bytes")
        table(
            (*titles, "rule", "action", "outcome", ""),
            (
                (
                    *(*_cells(one), one.rule, one.action, one.outcome),
                    one.bundle or one.message,
                )
                for one in found
            ),
        )
        count = Counter(one.outcome for one in found)
        said = ", ".join(f"{number} {outcome}" for outcome, number in count.items())
        note(f"{counted(len(found), 'run')}{': ' * bool(said)}{said}")
    _end(found, is_gone=is_gone)


def _cells(one: Retained) -> tuple[object, ...]:
    ended = moment(one.ended_at)
    return (one.run_id, one.agent, one.state, ended, one.events, one.bytes)


def _end(found: Sequence[Retained], *, is_gone: bool) -> None:
    failed = [one for one in found if one.outcome == "failed"]
    for one in failed:
        complain(f"run {one.run_id}: {one.message}", one.fix)
    if not is_gone:
        note(
            "warning: the database file could not be rewritten and may still "
            "contain the data; to rewrite it: sqlite3 FILE VACUUM"
        )
    if failed:
        raise Exit(FAILED)


async def _retain(
    host: HostApi, config: Config, retention: Retention, *, dry_run: bool
) -> tuple[list[Retained], bool]:
    from ..app.bootstrap import open_store
    from ..app.maintenance import keeping
    from ..app.retention import retain

    found: list[Retained] = []
    async with open_store(config, write=False) as store:
        # A missing database is not created.
        if dry_run:
            return [one async for one in retain(store, retention, None)], True
    async with keeping(config, host.paths()) as keeper:
        with (
            patience("looking for runs") as doing,
            doing.part(lambda: f"{counted(len(found), 'run')} looked at"),
        ):
            work = retain(keeper.store, retention, keeper)
            async with aclosing(work) as each:
                async for one in each:
                    found.append(one)  # noqa: PERF401 -- for the progress
        with patience("rewriting the database"):
            done = any(one.outcome == "done" for one in found)
            return found, not done or await keeper.store.erasure.scrub()


_MIGRATE, _BY_OWNER = "caxton db migrate", "caxton --db URL db migrate"
_FIXES = {
    "empty": _MIGRATE,
    "older": _MIGRATE,
    "newer": "install the version of caxton-host that wrote it",
}


def _status(url: str) -> dict[str, JSON]:
    from ..app.bootstrap import usable_store
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
