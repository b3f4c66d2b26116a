"""Approvals, asked for where the run was driven: of who sits at the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from ..core.grants.approvals import Asked
from ..core.names import stream_of
from ..errors import BusyError, UsageError
from ..lib.machine import local_actor
from . import interrupt
from .output import note
from .resume import go_on
from .run_report import described

if TYPE_CHECKING:
    from ..app.bootstrap import Running
    from ..runs.approvals import Word
    from ..runs.recording import Recording
    from .run_report import Told


#: Seconds between two looks for a word that is said elsewhere.
_EVERY = 0.3
_LINE = 4096


async def ask_here(told: Told, up: Running, recording: Recording) -> Recording:
    """
    Ask about the calls that a run waits for, and let it go on.

    If nobody is here, or nobody wants to say, it stays suspended.

    Returns:
        What the run did by then.
    """
    while _can_ask(told) and _waiting(up, recording):
        recording = await _asked(up, recording)
        if _waiting(up, recording):
            break
        recording = await _gone_on(told, up, recording.run_id)
    return recording


async def see_through(
    told: Told, up: Running, run_id: str, *, shared: bool = False
) -> Recording:
    """
    Let a run go on, and ask here about the calls that it waits for.

    Args:
        told: Tells how it goes.

        up: The host.

        run_id: The run.

        shared: Another process may go on with it as well: then wait for that one.
    """
    from ..runs.recording import Recording

    recording = await Recording.load(run_id, up.store.reader)
    if not (_can_ask(told) and _waiting(up, recording)):
        go = _gone_on if shared else go_on
        recording = await go(told, up, run_id)
    return await ask_here(told, up, recording)


def _can_ask(told: Told) -> bool:
    return not told.quiet and sys.stdin.isatty() and sys.stderr.isatty()


def _waiting(up: Running, recording: Recording) -> list[Asked]:
    from ..runs.approvals import open_questions

    return open_questions(recording, up.host.clock.now())


async def _asked(up: Running, recording: Recording) -> Recording:
    """Ask about each call, as long as there is an answer."""
    from ..runs.approvals import say
    from ..runs.recording import Recording

    run_id = recording.run_id
    for asked in _waiting(up, recording):
        if word := await _word(up, recording, asked):
            try:
                await say(up.store, run_id, asked.seq, word, now=up.host.clock.now())
            except (UsageError, BusyError) as exc:
                note(str(exc))  # Somebody else was faster, or the time is over.
        recording = await Recording.load(run_id, up.store.reader)
        if word is None:
            break
    return recording


async def _gone_on(told: Told, up: Running, run_id: str) -> Recording:
    """Let the run go on, or wait for the end of it if another process does."""
    from ..runs.recording import Recording

    try:
        return await go_on(told, up, run_id)
    except BusyError:
        note("another process goes on with the run")
    except UsageError:
        if (await Recording.load(run_id, up.store.reader)).end is None:
            raise
    while await up.store.leases.owner(run_id):  # noqa: ASYNC110 -- of another process
        await asyncio.sleep(_EVERY)
    return await Recording.load(run_id, up.store.reader)


async def _word(up: Running, recording: Recording, asked: Asked) -> Word | None:
    """Return what who sits here says of a call, or ``None``: nothing."""
    from ..runs.approvals import Word

    note(f"run {recording.run_id} waits for an approval:")
    for line in described(asked):
        note(f"  {line}")
    roles = [str(role) for role in asked.requested.by]
    role: str | None = roles[0] if roles else ""
    if len(roles) > 1:
        role = await _line(up, recording, asked, f"Who are you, {' or '.join(roles)}? ")
    if role is None or (roles and role not in roles):
        return None
    whom = role and f" as {role}"
    given = await _line(up, recording, asked, f"Approve it{whom}? [y/N] ")
    if given is None:
        return None
    reason = await _line(up, recording, asked, "Why? It is recorded: ")
    if reason is None:
        return None
    return Word(
        verdict="approve" if given.lower() in {"y", "yes"} else "deny",
        actor=local_actor(),
        reason=up.redact.text(reason),
        role=role,
    )


async def _line(
    up: Running, recording: Recording, asked: Asked, question: str
) -> str | None:
    """
    Return a line that is typed.

    ``None`` after Ctrl-C or Ctrl-D, or when it is too late: the time is over, or the
    run has gone on without it.
    """
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    keys = sys.stdin.fileno()
    # What was typed before the question is no answer to it.
    termios.tcflush(keys, termios.TCIFLUSH)
    click.echo(question, nl=False, err=True)
    loop.add_reader(keys, typed.set)
    try:
        with interrupt.asking():
            while not typed.is_set():
                if asked.is_over(up.host.clock.now()):
                    note("\nnobody decided in time")
                    return None
                if await _has_gone_on(up, recording):
                    note("")
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY):
                        await typed.wait()
    except asyncio.CancelledError:
        # The run waits in the log: there is nothing to cancel.
        if task := asyncio.current_task():
            task.uncancel()
        note("")
        return None
    finally:
        loop.remove_reader(keys)
    line = os.read(keys, _LINE)
    if not line:
        note("")
        return None
    return line.decode(errors="replace").strip()


async def _has_gone_on(up: Running, recording: Recording) -> bool:
    last = recording.own[-1]
    events = up.store.reader.stream_events(
        stream_of(recording.run_id), after=last.position
    )
    async with aclosing(events) as found:
        async for _ in found:
            return True
    return False
