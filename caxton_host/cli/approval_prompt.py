"""Questions about calls that wait for an approval, asked at the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from ..core.log.asked import Asked
from ..core.names import stream_of
from ..errors import BusyError, UsageError
from ..lib.machine import local_actor
from . import interrupt
from .output import note
from .run_report import described

if TYPE_CHECKING:
    from ..app.bootstrap import Running
    from ..runs.approvals import Word
    from ..runs.recording import Recording


#: Seconds between two checks for a decision that was made elsewhere.
_EVERY = 0.3
_LINE = 4096


def can_ask() -> bool:
    """Return whether a person sits at this terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def waiting(up: Running, recording: Recording) -> list[Asked]:
    """Return the calls of a run that wait for a decision."""
    from ..runs.approvals import open_questions

    return open_questions(recording, up.host.clock.now())


def answerable(up: Running, recording: Recording) -> list[Asked]:
    """Return those of them that the user at this terminal may approve."""
    from ..runs.approvals import counts

    return [one for one in waiting(up, recording) if counts(one, local_actor())]


async def ask(up: Running, recording: Recording) -> Recording:
    """
    Ask about each call that a run waits for, as long as there is an answer.

    Returns:
        What the run did by then.
    """
    from ..runs.approvals import say
    from ..runs.recording import Recording

    run_id = recording.run_id
    for asked in answerable(up, recording):
        if word := await _word(up, recording, asked):
            try:
                await say(up.store, run_id, asked.seq, word, now=up.host.clock.now())
            except (UsageError, BusyError) as exc:
                note(str(exc))  # It was decided elsewhere, or its deadline has passed.
        recording = await Recording.load(run_id, up.store.reader)
        if word is None:
            break
    return recording


async def _word(up: Running, recording: Recording, asked: Asked) -> Word | None:
    """Ask for a decision about a call; return ``None`` without one."""
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
        signed_in_at=up.host.clock.now(),
    )


async def _line(
    up: Running, recording: Recording, asked: Asked, question: str
) -> str | None:
    """
    Return the line that is typed.

    ``None`` after Ctrl-C or Ctrl-D, after the deadline, or if the run was resumed
    elsewhere.
    """
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    keys = sys.stdin.fileno()
    # Discard what was typed before the question.
    termios.tcflush(keys, termios.TCIFLUSH)
    click.echo(question, nl=False, err=True)
    loop.add_reader(keys, typed.set)
    try:
        with interrupt.asking():
            while not typed.is_set():
                if asked.is_over(up.host.clock.now()):
                    note("\nthe deadline has passed")
                    return None
                if await _has_gone_on(up, recording):
                    note("")
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY):
                        await typed.wait()
    except asyncio.CancelledError:
        # The run is suspended in the log: nothing is left to cancel.
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
