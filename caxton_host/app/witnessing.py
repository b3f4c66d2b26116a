"""
Witnesses of this log: each checkpoint is sent to all, and kept with their signatures.

A run never waits for them. What they cosigned last is in the state folder, so that a
log that was set back with its database is found out.

    cosigned/NAME   the newest checkpoint that a quorum cosigned, by the log's origin
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..config.model import Audit, Config, Witness
from ..core.log.checkpoint import MAX_NOTE, Note, Signature, parse_note
from ..core.log.witnesses import SIZE_TYPE, Submission
from ..errors import BadBytes, CaxtonError, LogBrokenError, ToolError
from ..lib.files import replace_file
from ..lib.signing import cosigned_at

if TYPE_CHECKING:
    from ..lib.http import Client
    from ..store.anchors import Anchor
    from ..store.export import Exporter
    from ..store.sql import SqlStore

_log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
#: Between two checkpoints: witnesses are asked by others too.
_REST_S = 10.0
#: A witness that others use too may have come on between two answers.
_TRIES = 4
_OK, _CONFLICT, _UNPROVEN = 200, 409, 422


class SetBackError(LogBrokenError):
    """A witness has seen another log under this name, or more of it."""


@dataclass(slots=True)
class Witnesses:
    """
    The witnesses of a log.

    Attributes:
        audit: Names them, and how many are enough.

        log: Proves that the log has grown.

        folder: Where the newest cosigned checkpoint is kept.
    """

    audit: Audit
    log: Exporter
    folder: Path
    proxy: str | None = None
    _seen: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _client: Client = field(init=False)

    def __post_init__(self) -> None:
        from ..lib.http import Client  # noqa: PLC0415 -- 150 ms, only with witnesses

        self._client = Client(proxy=self.proxy)

    async def send(self, note: Note) -> None:
        """
        Have a checkpoint cosigned, and keep it.

        Raises:
            CaxtonError: Fewer than the quorum cosigned it.
        """
        await self.cosign(note)

    async def cosign(self, note: Note) -> Note:
        """
        Return a checkpoint with the signatures of its witnesses; it is kept.

        Raises:
            SetBackError: A witness has seen more of this log, or another one.

            ToolError: Fewer than the quorum cosigned it, for another reason.
        """
        async with self._turn:
            asked = [self._ask(one, note) for one in self.audit.witnesses]
            answers = await asyncio.gather(*asked, return_exceptions=True)
        found = [one for one in answers if isinstance(one, Signature)]
        failed = [one for one in answers if isinstance(one, BaseException)]
        for one in failed:
            if not isinstance(one, (CaxtonError, OSError)):
                raise one
        set_back = next((one for one in failed if isinstance(one, SetBackError)), None)
        if len(found) < self.audit.enough:
            if set_back:
                raise set_back
            names = [one.key.name for one in self.audit.witnesses]
            why = "".join(
                f"; {name}: {answer}"
                for name, answer in zip(names, answers, strict=True)
                if isinstance(answer, BaseException)
            )
            raise ToolError(
                "transport",
                "unknown",
                f"{len(found)} of {len(names)} witnesses cosigned, of "
                f"{self.audit.enough} wanted{why}",
            )
        if set_back:
            # One of several may be wrong, or lie.
            _log.warning("%s. To fix: %s", set_back, set_back.fix)
        cosigned = replace(note, signatures=(*note.signatures, *found))
        await asyncio.to_thread(keep, self.folder, cosigned)
        return cosigned

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, witness: Witness, note: Note) -> Signature:
        size, name = note.checkpoint.size, witness.key.name
        for _ in range(_TRIES):
            old = self._seen.get(name, 0)
            if old > size:
                await self._check_ahead(name, old, size)
            proof = await self.log.growth(old, size) if 0 < old < size else ()
            body = Submission(old=old, proof=proof, note=note).to_bytes()
            answer = await self._client.request(
                "POST",
                f"{witness.url.rstrip('/')}/add-checkpoint",
                timeout=_TIMEOUT_S,
                max_bytes=MAX_NOTE,
                headers={"content-type": "text/plain; charset=utf-8"},
                content=body,
                allow_private=True,  # configured by the operator
            )
            if answer.status == _OK:
                self._seen[name] = size
                return _cosigned(note, witness, answer.body)
            known = _size(answer.body)
            if answer.status == _UNPROVEN or (
                answer.status == _CONFLICT and known == old == size
            ):
                raise SetBackError(
                    f"the witness {name} has cosigned another log of {old} events",
                    fix="caxton audit verify; who else writes to this log?",
                )
            is_size = answer.headers.get("content-type", "").startswith(SIZE_TYPE)
            if answer.status != _CONFLICT or not is_size or known in {None, old}:
                raise ToolError("protocol", "yes", f"it answered {answer.status}")
            self._seen[name] = known or 0
        raise ToolError("protocol", "yes", "it goes on without end")

    async def _check_ahead(self, name: str, seen: int, size: int) -> NoReturn:
        """Raise what it means that a witness has seen more than a checkpoint."""
        try:
            await self.log.growth(size, seen)
        except LogBrokenError:
            raise SetBackError(
                f"the witness {name} has cosigned {seen} events of this log, which has "
                "fewer",
                fix="caxton audit verify; was the database restored from a copy?",
            ) from None
        # Another host of this log was faster.
        raise ToolError("protocol", "no", "it knows a newer checkpoint")


def _size(body: bytes) -> int | None:
    text = body.strip()
    return int(text) if text.isdigit() and len(text) <= 19 else None  # noqa: PLR2004 -- 2**63


def _cosigned(note: Note, witness: Witness, body: bytes) -> Signature:
    """Return the valid signature of a witness in its answer."""
    try:
        answered = parse_note(note.signed + b"\n" + body)
    except BadBytes:
        answered = replace(note, signatures=())
    if cosigned_at(answered, witness.key) is None:
        raise ToolError("protocol", "yes", "it did not cosign")
    return answered.of_key(witness.key)[-1]


def keep(folder: Path, note: Note) -> None:
    """Keep a cosigned checkpoint on this machine, unless a newer one is kept."""
    known = kept(folder, note.checkpoint.origin)
    if known is None or known.checkpoint.size <= note.checkpoint.size:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = _path(folder, note.checkpoint.origin)
        replace_file(path, note.text().encode(), mode=0o600)


def kept(folder: Path, origin: str) -> Note | None:
    """Return the newest cosigned checkpoint of a log that is kept here."""
    try:
        return parse_note(_path(folder, origin).read_bytes())
    except (FileNotFoundError, BadBytes):
        return None


def _path(folder: Path, origin: str) -> Path:
    return folder / sha256(origin.encode()).hexdigest()[:32]


def folder_of(state: Path) -> Path:
    """Return the folder of cosigned checkpoints."""
    return state / "cosigned"


@asynccontextmanager
async def cosigning(
    config: Config, store: SqlStore, state: Path, on_failure: Callable[[bool], None]
) -> AsyncGenerator[Anchor]:
    """Give what has the newest checkpoint cosigned by the witnesses that are named."""
    from ..store.anchors import Anchor  # noqa: PLC0415 -- only with witnesses

    witnesses = _of(config, store, state)
    async with Anchor(witnesses, on_failure, rest=_REST_S, done="cosigned") as anchor:
        yield anchor


@asynccontextmanager
async def witnesses_of(
    config: Config, store: SqlStore, state: Path
) -> AsyncGenerator[Witnesses | None]:
    """Give the witnesses that a configuration names, if it names any."""
    if not config.audit.witnesses:
        yield None
        return
    witnesses = _of(config, store, state)
    try:
        yield witnesses
    finally:
        await witnesses.aclose()


def _of(config: Config, store: SqlStore, state: Path) -> Witnesses:
    from ..store.export import Exporter  # noqa: PLC0415 -- 110 ms

    return Witnesses(
        audit=config.audit,
        log=Exporter(store.reader),
        folder=folder_of(state),
        proxy=config.proxy,
    )
