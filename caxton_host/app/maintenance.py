"""
Maintenance of the log: erase, archive and sign, without running agents.

Such a process is a host too, with its own stream for what it did, but without tools and
without a sandbox.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Config, Paths
from ..core.calls import JSON
from ..core.grants.principals import digest_recorded
from ..core.log.checkpoint import Note
from ..core.log.events import (
    Event,
    KeyRotated,
    RunErased,
    TokenCreated,
    TokenRevoked,
    ToolsChanged,
)
from ..core.text.redact import Redactor
from ..errors import CaxtonError
from ..lib.machine import SystemClock, local_actor
from ..lib.signing import Keyring, Rotation
from ..ports.serving import TokenRow
from .bootstrap import announced, host_started, new_stream, open_signed, sign
from .witnessing import Witnesses, witnesses_of

if TYPE_CHECKING:
    from ..store.archive import Archive
    from ..store.sql import SqlStore


_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Maintenance:
    """
    Maintains the log.

    Attributes:
        store: The event store.

        keys: The signing keys of this machine.

        stream: The stream of this process, where its actions are recorded.

        announced: The first events of that stream.

        actor: The user of this process.

        redact: Removes configured secrets from reasons.

        witnesses: Who cosigns checkpoints, if anybody does.
    """

    store: SqlStore
    keys: Keyring
    stream: str
    announced: tuple[Event, ...]
    actor: dict[str, JSON]
    redact: Redactor
    witnesses: Witnesses | None = None
    _is_announced: bool = field(default=False, init=False)

    async def erase(
        self, run_id: str, reason: str, bundle: dict[str, JSON] | None = None
    ) -> RunErased:
        """Delete the payloads of a run that has ended; see `SqlStore.erase`."""
        erased = await self.store.erasure.erase(
            run_id,
            self.stream,
            *(() if self._is_announced else self.announced),
            actor=self.actor,
            reason=self.redact.text(reason),
            bundle=bundle,
        )
        self._is_announced = True
        return erased

    async def scrub(self) -> bool:
        """Remove what was erased from the file too; return whether that was done."""
        return await self.store.erasure.scrub()

    async def bundle(self, run_id: str, since: Sequence[Note] = ()) -> bytes:
        """Sign the log, and return the bundle of a run; see `export`."""
        from ..store.export import export  # noqa: PLC0415 -- 110 ms

        signed, key = await self._signed(), self.keys.public_key()
        return await export(self.store.reader, run_id, signed, key, since=since)

    async def accept(self, server: str, tool: str, definition: bytes) -> None:
        """Accept a definition of a tool for runs that start from now on."""
        changed = ToolsChanged(server=server, changed=(tool,), actor=self.actor)
        await self.store.create(self.stream).append(*self.announced, changed)
        await self.store.definitions.accept(
            {(server, tool): definition}, self.actor, anew=True
        )

    async def add_token(self, row: TokenRow) -> None:
        """Add a token that authenticates callers; see `SqlStore.add_token`."""
        created = TokenCreated(
            id=row.id,
            name=row.name,
            scopes=row.scopes,
            agents=row.agents,
            roles=row.roles,
            expires_at=row.expires_at,
            actor=self.actor,
            tenant=row.tenant,
            digest=digest_recorded(row.digest),
        )
        await self.store.tokens.add(row, self.stream, *self.announced, created)

    async def revoke_token(self, token_id: str, at: int) -> None:
        """Revoke a token; see `SqlStore.revoke_token`."""
        revoked = TokenRevoked(id=token_id, actor=self.actor)
        await self.store.tokens.revoke(
            token_id, at, self.stream, *self.announced, revoked
        )

    async def sign(self) -> None:
        """Sign the log, if that is possible."""
        await sign(self.store)

    async def _signed(self) -> Note:
        """Sign the log, and have that cosigned if there are witnesses."""
        note = await self.store.seal()
        if self.witnesses is not None:
            try:
                return await self.witnesses.cosign(note)
            except CaxtonError as exc:
                fix = exc.fix or "see whether it answers, and caxton audit verify"
                _log.warning("no witness vouches for the log: %s. To fix: %s", exc, fix)
        return note

    async def archive(self, folder: Path, *, code: bool = True) -> Archive:
        """Sign the log, and return what writes bundles of ended runs; see `Archive`."""
        from ..store.archive import Archive  # noqa: PLC0415 -- 110 ms

        return Archive(
            reader=self.store.reader,
            note=await self._signed(),
            public_key=self.keys.public_key(),
            trusted=self.keys.known(),
            folder=folder,
            code=code,
        )


@contextlib.asynccontextmanager
async def keeping(
    config: Config, paths: Paths, *, accept: bool = False
) -> AsyncGenerator[Maintenance]:
    """Open the store for maintenance, and sign it at the end; see `open_store`."""
    keys = Keyring(paths.state)
    async with (
        open_signed(config, keys, paths.state, accept=accept) as store,
        witnesses_of(config, store, paths.state) as witnesses,
    ):
        keeper = Maintenance(
            store=store,
            keys=keys,
            stream="",
            announced=announced(config, paths),
            actor=local_actor(),
            redact=Redactor(config.secrets),
            witnesses=witnesses,
        )
        async with keeping_for(keeper, keeper.actor) as found:
            yield found


@contextlib.asynccontextmanager
async def keeping_for(
    keeper: Maintenance, actor: dict[str, JSON]
) -> AsyncGenerator[Maintenance]:
    """Maintain the same log for an actor, in a new stream, and sign it at the end."""
    yield replace(keeper, stream=new_stream(SystemClock()), actor=actor)
    # An erasure is a transaction of its own, which is not signed by itself.
    await keeper.sign()


async def record_rotation(
    store: SqlStore, rotation: Rotation, actor: dict[str, JSON]
) -> None:
    """Record a key rotation in a stream of its own."""
    log = store.create(new_stream(SystemClock()))
    await log.append(
        host_started(rotation.public_key(), actor),
        KeyRotated(
            former=rotation.former.hex(),
            public_key=rotation.public_key().hex(),
            actor=actor,
        ),
    )
