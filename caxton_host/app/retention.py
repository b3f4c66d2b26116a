"""
Retention: runs that have ended go by the rules of the configuration.

By hand, or by a host that serves: one run at a time, with a pause after each. A process
that dies leaves a run as it was, or a bundle that the next pass takes. Of two hosts
that come to the same run, the erasure refuses one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..config import Config
from ..core.calls import JSON
from ..core.log.retention import ENDED, Action, Retention, Rule
from ..core.log.runs import RunRow
from ..errors import CaxtonError, UsageError
from .maintenance import Maintenance

if TYPE_CHECKING:
    from ..store.archive import Archive, Needs
    from ..store.sql import SqlStore

_log = logging.getLogger("caxton_host")

#: Who erases runs in a host that serves.
SERVICE: dict[str, JSON] = {
    "kind": "service",
    "id": "retention",
    "authenticated": False,
}
_PAGE = 500
_PAUSE_S = 0.1
_PARTS = 100
_GIVE_UP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """
    A run that has to go by a rule.

    Attributes:
        ended_at: Microseconds since 1970, UTC.

        bytes: Of its payloads.

        outcome: ``due``, if nothing was to be done; ``done``; ``kept``: something needs
            the run, so it is tried again; or ``failed``.

        bundle: The name of its bundle.

        message: Why it was kept, or failed.

        fix: What to do about it.
    """

    run_id: str
    agent: str
    state: str
    ended_at: int
    events: int
    bytes: int
    rule: str
    action: Action
    outcome: Literal["due", "done", "kept", "failed"] = "due"
    bundle: str | None = None
    message: str = ""
    fix: str = ""


async def retain(
    store: SqlStore, retention: Retention, keeper: Maintenance | None
) -> AsyncGenerator[Retained]:
    """
    Carry out the rules; yield each run that has to go, and what became of it.

    Args:
        store: Has the runs.

        retention: The rules.

        keeper: Erases runs; ``None``: nothing is written.

    Raises:
        StoreError: The log cannot be read or signed.
    """
    work, kept = _Pass(store, retention, keeper), list[tuple[RunRow, Rule]]()
    for state in ENDED:
        async with aclosing(work.due(state)) as found:
            async for due in found:
                one = await work.do(*due)
                if one.outcome == "kept":
                    kept.append(due)
                else:
                    yield one
    # A fork goes before the run it was forked from, which mostly ended before it.
    for due in reversed(kept):
        yield await work.do(*due)


@dataclass(slots=True)
class _Pass:
    store: SqlStore
    retention: Retention
    keeper: Maintenance | None
    _archive: Archive | None = field(default=None, init=False)
    _needs: Needs | None = field(default=None, init=False)

    async def due(self, state: str) -> AsyncGenerator[tuple[RunRow, Rule]]:
        """Yield the runs in a state that have to go, oldest end first."""
        reader, after = self.store.reader, (0, "")
        now = reader.now()
        before = self.retention.before(state, now)
        while before is not None:
            page = await reader.ended(state, before, after, _PAGE)
            for row in page:
                after = row.ended_at or 0, row.run_id
                if rule := self.retention.due(row.agent, state, after[0], now):
                    yield row, rule
            if len(page) < _PAGE:
                return

    async def do(self, row: RunRow, rule: Rule) -> Retained:
        """Do what a rule says of a run."""
        events, size = await self.store.reader.size(row.run_id)
        found = Retained(
            run_id=row.run_id,
            agent=row.agent,
            state=row.state,
            ended_at=row.ended_at or 0,
            events=events,
            bytes=size,
            rule=rule.name,
            action=rule.action,
            outcome="done" if self.keeper else "due",
        )
        try:
            return replace(found, bundle=await self._do(row.run_id, rule))
        except (CaxtonError, OSError) as exc:
            return replace(
                found,
                outcome="kept" if isinstance(exc, UsageError) else "failed",
                message=str(exc),
                fix=getattr(exc, "fix", None) or "see `caxton db status`",
            )

    async def _do(self, run_id: str, rule: Rule) -> str | None:
        from ..store.archive import check_needs, needs  # noqa: PLC0415 -- 110 ms

        if self._needs is None:
            self._needs = await self.store.reader.look(needs)
        held, forks = self._needs
        archives = rule.action == "archive" and self.retention.archive
        check_needs(run_id, held, forks, archived=bool(archives))
        bundle = None
        if self.keeper and archives:
            self._archive = self._archive or await self.keeper.archive(archives)
            bundle = await self._archive.bundle(run_id)
        if self.keeper:
            await self.keeper.erase(run_id, rule.name, bundle=bundle)
        forks.pop(run_id, None)
        return str(bundle["name"]) if bundle else None


@contextlib.asynccontextmanager
async def retaining(
    keeper: Maintenance, config: Callable[[], Config]
) -> AsyncGenerator[None]:
    """
    Carry out the rules in the background, from time to time.

    Args:
        keeper: Erases runs.

        config: Returns the newest configuration.
    """
    stop = asyncio.Event()
    task = asyncio.create_task(_watch(keeper, config, stop))
    try:
        yield
    finally:
        # Not cancelled: a transaction that runs in a thread would run on.
        stop.set()
        await task


async def _watch(
    keeper: Maintenance, config: Callable[[], Config], stop: asyncio.Event
) -> None:
    # Not all hosts of a log at once.
    part = (_PARTS + secrets.randbelow(_PARTS)) / (2 * _PARTS)
    while not await _over(stop, part * config().retention.every):
        if config().retention.rules:
            try:
                await _pass(keeper, config().retention, stop)
            except CaxtonError as exc:
                _log.warning("retention: %s. To fix: %s", exc, exc.fix)


async def _pass(keeper: Maintenance, retention: Retention, stop: asyncio.Event) -> None:
    done = failed = 0
    async with aclosing(retain(keeper.store, retention, keeper)) as found:
        async for one in found:
            done += one.outcome == "done"
            failed = failed + 1 if one.outcome == "failed" else 0
            if failed:
                _log.warning(
                    "retention: cannot %s run %s: %s. To fix: %s",
                    *(one.action, one.run_id, one.message, one.fix),
                )
            # As when it may not delete: the rest would fail too.
            if failed == _GIVE_UP or await _over(stop, _PAUSE_S):
                break
    if done:
        _log.info("retention: %d runs are archived or erased", done)
        await keeper.store.seal()


async def _over(stop: asyncio.Event, seconds: float) -> bool:
    """Wait, and return whether the host stops."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()
