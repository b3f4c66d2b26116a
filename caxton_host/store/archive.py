"""
Runs that leave the log for bundles.

A bundle gets its name once it is on the disk, verified, and has all events of its run;
only then are the payloads erased. The erasure records the bundle's name and digest. A
bundle that is there already, of a host that died in between, is verified and taken.
Envelopes and hashes stay in the log: it verifies as before, and the bundle against it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkstemp
from typing import TypeAlias

import sqlalchemy as sa

from ..core.calls import JSON
from ..core.log.checkpoint import Note
from ..core.names import RUN, run_of, stream_of
from ..errors import BadBytes, LogBrokenError, StoreError, UsageError
from ..lib.codec import encode
from .bundle_store import check_bundle, read_bundle
from .copies import named
from .database import rows
from .drafts import erased_before, heir_of, is_held, lineage, parent_in
from .export import Exporter
from .file_guard import on_disk
from .holds import HELD
from .reader import Reader
from .schema import events, payloads

_AWAY = "move the file away; it is written again"
#: In the payload of each `RunStarted` of a fork: a map of run, number and hash.
_FORKED = encode("forked_from") + b"\x83"


@dataclass(slots=True, kw_only=True)
class Archive:
    """
    A folder of bundles.

    Attributes:
        reader: Of the log.

        note: A checkpoint that covers the runs.

        public_key: Of its signer.

        trusted: The keys of this host, those of before too.

        folder: Created if it does not exist.

        code: Bundles include modules and programs.
    """

    reader: Reader
    note: Note
    public_key: bytes
    trusted: Collection[bytes]
    folder: Path
    code: bool = True
    _exporter: Exporter = field(init=False)

    def __post_init__(self) -> None:
        self._exporter = Exporter(self.reader)

    async def bundle(self, run_id: str) -> dict[str, JSON]:
        """
        Write the bundle of a run that has ended, unless it is there.

        Raises:
            NotKeptError: The run was erased.

            StoreError: Another file has the name, or the bundle cannot be verified.

            OSError: It cannot be written.
        """
        path = self.folder / f"{run_id}.caxton"
        if path.exists():
            digest = await asyncio.to_thread(self._checked, run_id, path)
        else:
            try:
                data = await self._exporter.bundle(
                    run_id, self.note, self.public_key, code=self.code
                )
            except LogBrokenError:
                # Another host has erased it since the log was signed.
                if stream_of(run_id) in await self.reader.erased():
                    raise erased_before(run_id) from None
                raise
            digest = await asyncio.to_thread(self._written, run_id, path, data)
        return {"name": path.name, "sha256": digest}

    def _written(self, run_id: str, path: Path, data: bytes) -> str:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = mkstemp(".partial", f".{path.name}.", self.folder)
        draft = Path(name)
        os.close(handle)
        try:
            draft.write_bytes(data)
            on_disk(draft)
            digest = self._checked(run_id, draft, "caxton audit verify says where")
            named(draft, path)
            on_disk(path)
        except FileExistsError:  # Another host was faster.
            return self._checked(run_id, path)
        finally:
            draft.unlink(missing_ok=True)
        return digest

    def _checked(self, run_id: str, path: Path, fix: str = _AWAY) -> str:
        """Return the digest of a file, once it is the whole bundle of a run."""
        query = sa.select(events.c.hash).where(events.c.stream == stream_of(run_id))
        with self.reader.engine.connect() as connection:
            end = connection.scalar(query.order_by(events.c.seq.desc()).limit(1))
        try:
            bundle = read_bundle(path)
            found = check_bundle(bundle, self.trusted)
        except BadBytes as exc:
            raise _other(path, run_id, str(exc), fix) from None
        if found.verdict != "intact":
            why = str(found.faults[0]) if found.faults else "its signer is unknown"
            raise _other(path, run_id, why, fix)
        if bundle.header.run != run_id or bundle.events[-1][-1].hash != end:
            raise _other(path, run_id, "it ends with another event", fix)
        if run_id in found.erased_runs:
            raise erased_before(run_id)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _other(path: Path, run_id: str, why: str, fix: str) -> StoreError:
    return StoreError(f"{path} is not the bundle of run {run_id}: {why}", fix=fix)


#: The runs on hold, and the parent of each fork that is not erased.
Needs: TypeAlias = tuple[Collection[str], dict[str, str | None]]


def needs(connection: sa.Connection) -> Needs:
    """Return the runs on hold, and the parent of each fork that is not erased."""
    held = connection.exec_driver_sql(HELD).scalars().all()
    if connection.dialect.name == "sqlite":
        at = sa.func.instr(payloads.c.payload, _FORKED)
    else:
        at = sa.func.position(sa.literal(_FORKED).op("IN")(payloads.c.payload))
    started = events.c.type, events.c.schema_version, payloads.c.payload
    query = sa.select(events.c.stream, *started).join_from(events, payloads)
    query = query.where(events.c.seq == 1, events.c.stream.startswith(RUN), at > 0)
    return held, {
        run_of(stream): parent_in(*first) for stream, *first in rows(connection, query)
    }


def check_needs(
    run_id: str,
    held: Collection[str],
    forks: Mapping[str, str | None],
    *,
    archived: bool,
) -> None:
    """
    Return if a run may go, by what `needs` has found.

    Raises:
        UsageError: It is on hold, or a fork of it is; or a fork of it has to be
            archived first, since its bundle begins with the events of this run.
    """
    for one in held:
        if run_id in {one, *lineage(one, forks.get)}:
            raise is_held(run_id, one)
    if archived and (fork := heir_of(run_id, forks, forks.get)):
        raise UsageError(
            f"run {fork}, a fork of run {run_id}, has to be archived first",
            fix=f"caxton runs show {fork}",
        )
