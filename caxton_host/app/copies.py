"""Copies of an SQLite log: made by the clock and checked, and put in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Audit, Config, Paths
from ..core.log.chain import Verdict
from ..core.log.events import LogRestored
from ..errors import BusyError, LogBrokenError, UsageError
from ..lib.machine import SystemClock
from ..lib.signing import Keyring
from .bootstrap import open_signed, open_store, usable_store
from .maintenance import Maintenance, keeping
from .verification import verify_log

if TYPE_CHECKING:
    from ..core.log.checkpoint import Note
    from ..store.copies import Shelf
    from ..store.restoring import Lost

#: Shows that something takes long, within.
Step = Callable[[str], AbstractContextManager[object]]
_REASON = "it was erased in the log that a copy replaced"


@asynccontextmanager
async def _alone(file: Path, doing: str) -> AsyncGenerator[set[str]]:
    """Yield the living hosts of a file, as the only process that does something."""
    from ..store.file_guard import hosts_of  # noqa: PLC0415 -- slow
    from ..store.leases import FileLeases  # noqa: PLC0415 -- the same

    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    leases, own = FileLeases(hosts_of(file)), f"host/{doing}"
    if own in leases.hosts():
        raise BusyError(
            f"another {doing} of {file} is under way", fix="wait until it has ended"
        )
    await leases.join(own)
    try:
        yield leases.hosts() - {own}
    finally:
        await leases.aclose()


def _quietly(done: int, total: int) -> None:
    del done, total


async def copy_database(
    url: str, to: Path, progress: Callable[[int, int], None] = _quietly
) -> int:
    """
    Copy the SQLite database at *url*, of any schema; see `backup`.

    Raises:
        UsageError: It cannot be opened.

        StoreError: See `backup`.
    """
    from ..store.copies import backup  # noqa: PLC0415 -- slow
    from ..store.engine import open_engine  # noqa: PLC0415 -- the same

    with usable_store():
        engine = open_engine(url, write=False)
    try:
        return await asyncio.to_thread(backup, engine, to, progress)
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """
    A copy that was made and verified.

    Attributes:
        file: Where it is.

        size: In bytes.

        events: How many it has.

        removed: Older copies that were removed then.
    """

    file: Path
    size: int
    events: int
    removed: Sequence[Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """
    A log that was restored, or a copy that does not verify.

    Attributes:
        verdict: Of the copy.

        lost: What the log had and the copy lacks.

        kept: The file of the log that was replaced, if there was one.

        runs: How many runs are suspended.

        repaired: How much of what lists show was not as its events say.

        erased: Runs that were erased again.

        returned: Runs that had been erased, and are readable again.

        revoked: Tokens that were revoked again.

        tokens: How many tokens are accepted.
    """

    verdict: Verdict
    lost: Lost | None = None
    kept: Path | None = None
    runs: int = 0
    repaired: int = 0
    erased: Sequence[str] = ()
    returned: Sequence[str] = ()
    revoked: Sequence[str] = ()
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """
    Makes copies of a log, and restores it from one.

    Attributes:
        config: Names the log.

        paths: Of this machine.

        trusted: Public keys whose checkpoints are believed.

        outside: Checkpoints that were kept elsewhere.

        step: Shows what is done.
    """

    config: Config
    paths: Paths
    trusted: Collection[bytes]
    outside: Sequence[Note] = ()
    step: Step = field(repr=False)

    async def keep(self, shelf: Shelf, keep: int) -> Kept:
        """
        Copy the log, verify that, and only then name it and remove the oldest copies.

        Args:
            shelf: Where the copy goes.

            keep: How many copies stay.

        Raises:
            LogBrokenError: The copy does not verify.

            StoreError: It cannot be made.
        """
        from ..store.copies import clear  # noqa: PLC0415 -- slow

        async with _alone(shelf.lock, "backup"):
            clear(shelf.draft)
            try:
                with self.step("copying"):
                    await copy_database(self.config.store_url, shelf.draft)
                found = await self._verify(shelf.draft)
                if found.verdict == "broken":
                    raise LogBrokenError(
                        f"a copy that was made is broken, and not kept: "
                        f"{found.faults[0]}",
                        fix="caxton audit verify",
                    )
                file = shelf.put(SystemClock().now())
            finally:
                clear(shelf.draft)
            removed = shelf.trim(file, keep)
        size = file.stat().st_size
        return Kept(file=file, size=size, events=found.events, removed=removed)

    async def restore(self, copy: Path, log: Path, *, lose: bool) -> Restored:
        """
        Restore *log* from the file *copy*.

        Args:
            copy: The copy.

            log: The file of the log.

            lose: Restore it even if the log has events that the copy lacks.

        Raises:
            UsageError: It is not a copy, or lacks events.

            BusyError: A host has the log open.

            StoreError: The log cannot be replaced.
        """
        from ..store.copies import clear  # noqa: PLC0415 -- slow
        from ..store.restoring import adopt, draft_of, url_of  # noqa: PLC0415 -- the same

        # A second restore is refused, and so is a host while there is no log.
        async with _alone(log, "restore") as living:
            if living:
                raise BusyError(
                    f"{', '.join(sorted(living))} has the log open",
                    fix="stop all hosts of the log first",
                )
            clear(draft := draft_of(log))
            try:
                with self.step("copying"):
                    await copy_database(url_of(copy), draft)
                    with usable_store():
                        await asyncio.to_thread(adopt, draft, copy)
                return await self._restore(draft, copy, log, lose=lose)
            finally:
                clear(draft)

    async def _restore(
        self, draft: Path, copy: Path, log: Path, *, lose: bool
    ) -> Restored:
        from ..store.copies import stamp  # noqa: PLC0415 -- slow
        from ..store.restoring import compare, replace_log  # noqa: PLC0415 -- the same

        found = await self._verify(draft)
        if found.verdict != "intact":
            return Restored(verdict=found)
        with self.step("comparing"):
            lost = await asyncio.to_thread(compare, draft, log)
        if not lose and (why := _lacking(found, lost, log)):
            raise UsageError(
                f"{why}: with the copy they would be lost",
                fix=f"take a newer copy; or caxton db restore {copy} --lose-events",
            )
        made = await self._own(draft, Restored(verdict=found, lost=lost))
        now = SystemClock().now()
        while (kept := log.with_name(f"{log.name}.replaced-{stamp(now)}")).exists():
            now += 1_000_000
        replacing = partial(replace_log, is_sound=lost.events is not None)
        kept_as = await asyncio.to_thread(replacing, draft, log, kept)
        # It is remembered under its own path, and its checkpoint is sent away.
        keys = Keyring(self.paths.state)
        async with open_signed(self.config, keys, self.paths.state):
            return replace(made, kept=kept_as)

    async def _verify(self, file: Path) -> Verdict:
        """Return the verdict about a copy, which may lack what was signed since."""
        from ..store.restoring import url_of  # noqa: PLC0415 -- slow

        config = replace(self.config, store_url=url_of(file))
        with self.step("verifying"):
            async with open_store(config, write=False) as store:
                found, _ = await verify_log(
                    store,
                    self.paths.state,
                    self.trusted,
                    outside=self.outside,
                    copy=True,
                    again=False,
                )
                return found

    async def _own(self, draft: Path, made: Restored) -> Restored:
        """Make the draft a log of its own, without what was taken back since."""
        from ..store.restoring import url_of  # noqa: PLC0415 -- slow

        url, now = url_of(draft), SystemClock().now()
        # Nothing is sent away before it is the log.
        config = replace(self.config, store_url=url, audit=Audit())
        with self.step("suspending runs"):
            async with keeping(config, self.paths, accept=True) as keeper:
                store, lost = keeper.store, made.lost
                _, wrong = await store.projections.verify(_quietly)
                if wrong:
                    await store.projections.rebuild(_quietly)
                erased, returned = await _erase(keeper, lost.erased if lost else ())
                for token, at in (revoked := lost.revoked if lost else ()):
                    await keeper.revoke_token(token, at)
                tokens = await store.tokens.all()
                log: LogRestored | None = store.incarnation.restored
        return replace(
            made,
            runs=log.runs if log else 0,
            repaired=len(wrong),
            erased=erased,
            returned=returned,
            revoked=[token for token, _ in revoked],
            tokens=sum(
                one.revoked_at is None
                and (one.expires_at is None or one.expires_at > now)
                for one in tokens
            ),
        )


async def _erase(
    keeper: Maintenance, runs: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Erase runs, and return which were, and which have not ended or are needed."""
    erased: list[str] = []
    for run in runs:
        try:
            await keeper.erase(run, _REASON)
            erased.append(run)
        except UsageError:
            continue
    return erased, [run for run in runs if run not in erased]


def _lacking(found: Verdict, lost: Lost, log: Path) -> str:
    """Return which events would be lost, if any would."""
    if lost.events is None:
        return f"{log} cannot be read, so nobody knows which events it has"
    if lost.events:
        return f"{log} has {lost.events} events that the copy lacks"
    if found.lag:
        return f"the copy lacks {found.lag} events that were signed"
    return ""
