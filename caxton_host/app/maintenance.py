"""
Whoever looks after the log: it is erased, archived and signed without a run.

A host process too, with a stream of its own for what was done, but without a tool or
a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Config, Paths
from ..core.calls import JSON
from ..core.log.events import (
    Event,
    KeyRotated,
    RunErased,
    TokenCreated,
    TokenRevoked,
    ToolsChanged,
)
from ..core.text.redact import Redactor
from ..errors import StoreError
from ..lib.clock import SystemClock
from ..lib.local_user import local_actor
from ..lib.signing import Keyring, Rotation
from ..ports import TokenRow
from .bootstrap import announced, host_started, new_stream, open_signed

if TYPE_CHECKING:
    from ..store.copies import BundleWriter
    from ..store.sql import SqlStore


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """
    Looks after the log, without a tool, a sandbox or a run.

    Attributes:
        stream: Of this process as a host: what it does is recorded there.

        announced: What that stream begins with.

        actor: Who does it.
    """

    store: SqlStore
    keys: Keyring
    stream: str
    announced: tuple[Event, ...]
    actor: dict[str, JSON]
    redact: Redactor

    async def erase(
        self, run_id: str, reason: str, bundle: dict[str, JSON] | None = None
    ) -> RunErased:
        """Delete the payloads of a run that has ended; see `SqlStore.erase`."""
        known = await self.store.reader.read(self.stream)
        return await self.store.erasure.erase(
            run_id,
            self.stream,
            *(() if known else self.announced),
            actor=self.actor,
            reason=self.redact.text(reason),
            bundle=bundle,
        )

    async def accept(self, server: str, tool: str, definition: bytes) -> None:
        """Have runs that begin from now on use this definition of a tool."""
        changed = ToolsChanged(server=server, changed=(tool,), actor=self.actor)
        await self.store.create(self.stream).append(*self.announced, changed)
        await self.store.definitions.accept(
            {(server, tool): definition}, self.actor, anew=True
        )

    async def add_token(self, row: TokenRow) -> None:
        """Have whoever has a token call the host; see `SqlStore.add_token`."""
        created = TokenCreated(
            id=row.id,
            name=row.name,
            scopes=row.scopes,
            agents=row.agents,
            roles=row.roles,
            expires_at=row.expires_at,
            actor=self.actor,
        )
        await self.store.tokens.add(row, self.stream, *self.announced, created)

    async def revoke_token(self, token_id: str, at: int) -> None:
        """Have a token be good for nothing; see `SqlStore.revoke_token`."""
        revoked = TokenRevoked(id=token_id, actor=self.actor)
        await self.store.tokens.revoke(
            token_id, at, self.stream, *self.announced, revoked
        )

    async def bundles(self) -> BundleWriter:
        """Sign the log, and return what writes the bundles of runs that have ended."""
        from ..store.export import export  # noqa: PLC0415 -- 110 ms

        note, key = await self.store.seal(), self.keys.public_key()

        async def write(run_id: str, path: Path) -> None:
            data = await export(self.store.reader, run_id, note, key)
            await asyncio.to_thread(_write_privately, path, data)

        return write


def _write_privately(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


@contextlib.asynccontextmanager
async def keeping(config: Config, paths: Paths) -> AsyncGenerator[Keeper]:
    """Open the event store to look after it, and sign what was done."""
    keys = Keyring(paths.state)
    async with open_signed(config, keys, paths.state) as store:
        yield Keeper(
            store=store,
            keys=keys,
            stream=new_stream(SystemClock()),
            announced=announced(config, paths),
            actor=local_actor(),
            redact=Redactor(config.secrets),
        )
        # An erasure is a transaction of its own, which nobody signs by itself.
        try:
            await store.seal()
        except StoreError as exc:
            fix = exc.fix or "see `caxton db status`"
            _log.warning("the log is not signed: %s. To fix: %s", exc, fix)


async def record_rotation(
    store: SqlStore, rotation: Rotation, actor: dict[str, JSON]
) -> None:
    """Record in a stream of its own that another key signs from here on."""
    log = store.create(new_stream(SystemClock()))
    await log.append(
        host_started(rotation.public_key(), actor),
        KeyRotated(
            former=rotation.former.hex(),
            public_key=rotation.public_key().hex(),
            actor=actor,
        ),
    )
