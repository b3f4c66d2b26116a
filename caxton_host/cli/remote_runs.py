"""Runs on a host that serves: started, seen to their end, and told of as those here."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.grants.approvals import Verdict
from ..core.log.events import Recorded, ToolProgress
from ..core.log.runs import ENDS
from ..core.names import stream_of
from ..errors import BusyError, CaxtonError, Suspend, UsageError
from .interrupt import began, drive
from .output import note, patience
from .overrides import Overrides
from .run_report import Told, deciding, named

if TYPE_CHECKING:
    from ..remote.client import Remote
    from ..remote.log import RemoteLog
    from ..runs.recording import Recording
    from .context import Frame
    from .host_option import There


_KEY_BYTES = 16
#: Seconds that a start which nobody wants any more has to say what it started.
_SOON = 10.0


def refuse_options(given: Overrides, **more: object) -> None:
    """
    Return if no option is given that is of no use with a host.

    Raises:
        UsageError: One is.
    """
    options: dict[str, object] = {"server": given.servers, "allow": given.allow}
    options |= {"wire_log": given.wire_log, **more}
    if said := [name for name, value in options.items() if value]:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in said)
        raise UsageError(
            f"{names} cannot be said to a host",
            fix="leave it out: the configuration there says what agents may do, and "
            "the token who you are",
        )


def told_there(frame: Frame, *, quiet: bool, as_json: bool) -> Told:
    """Return what tells of runs of a host: it knows all agents that it runs."""
    from ..config import Config

    return Told(
        frame=frame,
        config=Config(store_url=""),
        given=Overrides(),
        quiet=quiet,
        as_json=as_json,
    )


def start(
    told: Told, there: There, agent: str, given: JSON, variables: Mapping[str, JSON]
) -> Recording:
    """Start a run there, see it to its end, and return what it did."""
    body: JSON = {"agent": agent, "input": given, "variables": {**variables}}
    return drive(_start(told, there, body), told.frame.command())


async def _start(told: Told, there: There, body: JSON) -> Recording:
    from ..remote.log import summary

    key = secrets.token_urlsafe(_KEY_BYTES)
    async with there.log() as log:
        starting = asyncio.create_task(log.remote.post("/runs", body, key=key))
        try:
            run = summary(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # It may have begun, though nobody knows its name here yet.
            with suppress(CaxtonError, TimeoutError):
                async with asyncio.timeout(_SOON):
                    await _cancel(log.remote, summary(await starting).run_id)
            raise
        return await _see_out(told, log, run.run_id, f"run {run.run_id}  {run.agent}")


async def _see_out(
    told: Told, log: RemoteLog, run_id: str, what: str, after: int = 0
) -> Recording:
    """Tell what a run does behind event *after*, until it ends or is suspended."""
    from ..remote.client import Away
    from ..runs.recording import Recording

    try:
        await _watch(told, log, run_id, what, after)
        return await Recording.load(run_id, log)
    except Away as exc:
        raise Away(
            f"{exc}; run {run_id} is recorded, and the next host goes on with it",
            fix=f"start the host again if it is yours; then caxton runs show {run_id}",
        ) from None


async def _watch(
    told: Told, log: RemoteLog, run_id: str, what: str, after: int
) -> None:
    began(run_id)
    if not told.quiet:
        note(what)
    try:
        with patience(f"waiting for {what}"):
            async with aclosing(log.follow(run_id)) as found:
                async for recorded in found:
                    if recorded.seq <= after:
                        continue
                    if isinstance(recorded.event, ToolProgress):
                        told.watch(run_id, recorded.event)
                    if ENDS.get(recorded.type, "running") != "running":
                        break
    except asyncio.CancelledError:
        with suppress(CaxtonError):
            await _cancel(log.remote, run_id)
        raise


async def _cancel(remote: Remote, run_id: str) -> None:
    from ..remote.client import path

    await remote.post(path("runs", run_id, "cancel"), {"reason": "interrupted"})


async def resume(
    told: Told, there: There, run: str, *, restored: bool = False
) -> Recording:
    """Let a run there go on, see it to its end, and return what it did."""
    from ..remote.client import path
    from ..runs.recording import Recording

    async with there.log() as log:
        before = await Recording.load(await log.find_run(run), log)
        run_id = before.run_id
        try:
            body: dict[str, JSON] | None = {"restored": True} if restored else None
            await log.remote.post(path("runs", run_id, "resume"), body)
        except Suspend as exc:
            raise Suspend(exc.call, str(exc), fix=_word(told, before)) from None
        return await _go_on(told, log, before)


async def _go_on(told: Told, log: RemoteLog, before: Recording) -> Recording:
    what = f"run {before.run_id}  {before.started.agent}, resumed"
    return await _see_out(told, log, before.run_id, what, before.own[-1].seq)


def _word(told: Told, recording: Recording) -> str:
    """Return the command that says the word which a run waits for."""
    journal, run_id = recording.journal(), recording.run_id
    if journal.in_doubt:
        return told.resolving(run_id, journal.in_doubt[0].seq)
    waiting = journal.waiting
    return deciding(told.frame, run_id, waiting[0], "approve") if waiting else ""


async def decide(
    told: Told, there: There, run: str, seq: int | None, verdict: Verdict, reason: str
) -> Recording:
    """Say a word about a call there, and see what comes of it."""
    from ..lib.machine import SystemClock
    from ..remote.client import path
    from ..runs.approvals import meant, open_questions
    from ..runs.recording import Recording

    async with there.log() as log:
        before = await Recording.load(await log.find_run(run), log)
        before.check_unended()
        run_id = before.run_id
        asked = meant(run_id, seq, before.journal().waiting)
        where = path("approvals", run_id, str(asked.seq), verdict)
        await log.remote.post(where, {"reason": reason})
        note(f"{verdict} is recorded of {named(asked.requested)}")
        now = await Recording.load(run_id, log)
        if now.end or open_questions(now, SystemClock().now()):
            return now
        return await _go_on(told, log, before)


async def resolve(
    told: Told, there: There, run: str, body: dict[str, JSON]
) -> Recording:
    """Say what became of a call there, and see what comes of it."""
    from ..remote.client import path
    from ..runs.recording import Recording

    async with there.log() as log:
        before = await Recording.load(await log.find_run(run), log)
        where = path("runs", before.run_id, "resolve")
        await log.remote.post(where, body)
        now = await Recording.load(before.run_id, log)
        return now if now.end else await _go_on(told, log, before)


async def fork(told: Told, there: There, run: str, body: dict[str, JSON]) -> Recording:
    """Fork a run there, see the fork to its end, and return what it did."""
    from ..remote.client import path
    from ..remote.log import summary

    async with there.log() as log:
        parent = await log.find_run(run)
        new = summary(await log.remote.post(path("runs", parent, "fork"), body))
        what = f"run {new.run_id}  {new.agent}, forked from run {parent}"
        return await _see_out(told, log, new.run_id, what)


async def cancel(there: There, run: str, reason: str) -> tuple[str, list[Recorded]]:
    """End a run there, and return its id and what it did."""
    from ..remote.client import path

    async with there.log() as log:
        run_id = await log.find_run(run)
        with patience(f"waiting for the host of {run_id}"):
            try:
                body: JSON = {"reason": reason}
                await log.remote.post(path("runs", run_id, "cancel"), body)
            except BusyError as exc:
                note(str(exc))
                async with aclosing(log.follow(run_id)) as found:
                    async for _ in found:
                        pass
        return run_id, await log.read(stream_of(run_id))
