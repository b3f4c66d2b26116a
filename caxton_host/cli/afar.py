"""Runs on a host that serves: started, seen to their end, and told of as those here."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.events import ToolProgress
from ..core.names import stream_of
from ..core.runs import ENDS
from ..errors import CaxtonError, UsageError
from .interrupt import began, drive
from .overrides import Overrides, check_text
from .screen import note, patience
from .told import Told

if TYPE_CHECKING:
    from ..recording import Recording
    from ..remote.client import Remote
    from ..remote.log import RemoteLog
    from .frame import Frame
    from .there import There

__all__ = ["refuse_overrides", "see_out", "start", "told_there", "variables_there"]

_KEY_BYTES = 16


def refuse_overrides(given: Overrides, **more: object) -> None:
    """
    Return if no option is given that only a run on this machine can have.

    Raises:
        UsageError: One is.
    """
    options = {"--server": given.servers, "--allow": given.allow}
    options |= {"--wire-log": given.wire_log}
    options |= {f"--{name.replace('_', '-')}": value for name, value in more.items()}
    if said := [name for name, value in options.items() if value]:
        raise UsageError(
            f"{' and '.join(said)} cannot be said to a host",
            fix="leave it out: what agents may do there, its configuration says",
        )


def variables_there(variables: Sequence[str]) -> dict[str, JSON]:
    """Return the variables of a run, as they are typed."""
    check_text("--var", variables)
    pairs = [item.partition("=") for item in variables]
    if not all(key and equals for key, equals, _ in pairs):
        raise UsageError("--var takes KEY=VALUE", fix="write --var k=v")
    return {key: value for key, _, value in pairs}


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
            began(run.run_id)
            if not told.quiet:
                note(f"run {run.run_id}  {run.agent}")
            return await see_out(told, log, run.run_id, run.agent)
        except asyncio.CancelledError:
            # It may have begun, though nobody knows its name here yet.
            with suppress(CaxtonError):
                await _cancel(log.remote, summary(await starting).run_id)
            raise


async def _cancel(remote: Remote, run_id: str) -> None:
    from ..remote.client import path

    await remote.post(path("runs", run_id, "cancel"), {"reason": "interrupted"})


async def see_out(told: Told, log: RemoteLog, run_id: str, agent: str) -> Recording:
    """Tell what a run does until it ends, or is suspended."""
    from ..recording import Recording

    events = log.tail(stream=stream_of(run_id), follow=True)
    with patience(f"running {agent}"):
        async with aclosing(events) as found:
            async for recorded, _ in found:
                if isinstance(recorded.event, ToolProgress):
                    told.watch(run_id, recorded.event)
                if ENDS.get(recorded.type, "running") != "running":
                    break
    return await Recording.load(run_id, log)
