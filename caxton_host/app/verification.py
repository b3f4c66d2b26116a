"""Verifying a log on its machine, by hand and for those who ask a host that serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.log.checkpoint import fingerprint
from ..lib.machine import SystemClock
from ..lib.signing import Keyring, judge
from ..service.verifying import Verifying

if TYPE_CHECKING:
    from ..core.log.chain import Verdict
    from ..core.log.checkpoint import Note
    from ..store.sql import SqlStore
    from ..store.verified import Verifications, Verified


CHECKED = ("chain", "tree", "checkpoints")


async def verify_log(  # noqa: PLR0913 -- what `caxton audit verify` takes
    store: SqlStore,
    state: Path,
    trusted: Collection[bytes],
    *,
    stream: str | None = None,
    outside: Sequence[Note] = (),
    copy: bool = False,
    again: bool = True,
    full: bool = False,
    told: Callable[[int], None] = lambda _: None,
) -> tuple[Verdict, Verified | None]:
    """
    Verify a log, and return the verification before it if this one goes on.

    Args:
        store: The log.

        state: The folder of the keys, which has what was signed and verified here.

        trusted: See `verify`.

        stream: See `verify`.

        outside: See `verify`.

        copy: See `verify`.

        again: Go on from the verification before, and keep this one.

        full: Do not go on from there.

        told: See `verify_since`.
    """
    from ..store.verified import Verified  # noqa: PLC0415 -- slow
    from ..store.verify import LARGE, verify_since  # noqa: PLC0415 -- the same

    look = partial(_known, store, state, again=again, full=full)
    signed, past, before = await asyncio.to_thread(look)
    if before and before.place.tree.size <= LARGE:
        before = None
    kept = [signed] if signed and judge(signed, trusted) == "trusted" else []
    found, place = await verify_since(
        store.reader,
        before.place if before else None,
        stream,
        trusted=trusted,
        outside=[*outside, *kept],
        copy=copy,
        told=told,
    )
    if past and place and found.verdict == "intact":
        at = SystemClock().now()
        new = Verified(place=place, at=at, full_at=before.full_at if before else at)
        with suppress(OSError):  # The folder may be read-only.
            await asyncio.to_thread(past.keep, new)
    return found, before


def _known(
    store: SqlStore, state: Path, *, again: bool, full: bool
) -> tuple[Note | None, Verifications | None, Verified | None]:
    """Return what this machine signed last, and from where a verification goes on."""
    from ..store.incarnation import Marks, signed_here  # noqa: PLC0415 -- slow
    from ..store.verified import Verifications  # noqa: PLC0415 -- the same

    signed = signed_here(store.engine, Marks.of(state))
    past = Verifications.of(store.engine, state, Keyring(state)) if again else None
    before = past.newest() if past and not full else None
    return signed, past, before


def verifying_of(
    store: SqlStore,
    state: Path,
    trusted: Callable[[], Collection[bytes]],
    *,
    again: bool = True,
) -> Verifying:
    """Return what verifies a log on request; see `verify_log`."""

    async def look(told: Callable[[int], None], *, full: bool) -> dict[str, JSON]:
        found = await verify_log(
            store, state, trusted(), again=again, full=full, told=told
        )
        return audit_document(*found)

    kept = partial(kept_document, store, state)
    return Verifying(look=look, now=SystemClock().now, kept=kept)


def kept_document(store: SqlStore, state: Path) -> dict[str, JSON] | None:
    """Return up to where this machine found a log intact, and when; or ``None``."""
    _, _, found = _known(store, state, again=True, full=False)
    if found is None:
        return None
    return {
        "events": found.place.tree.size,
        "at": found.at,
        "full_at": found.full_at,
    }


def audit_document(found: Verdict, before: Verified | None = None) -> dict[str, JSON]:
    """Return the ``caxton.audit/v1`` document of a verification."""
    bad, signed, signer = found.first_bad, found.checkpoint, found.signer
    public = signer.public_key if signer else None
    return {
        "$type": "caxton.audit/v1",
        "verdict": found.verdict,
        "checked": [*CHECKED],
        "streams": found.streams,
        "events": found.events,
        "erased": found.erased,
        "erased_runs": [*found.erased_runs],
        "before": {
            "events": found.before,
            "verified_at": before.at,
            "full_at": before.full_at,
        }
        if before
        else None,
        "behind": found.behind,
        "lag": found.lag,
        "checkpoint": {
            "origin": signed.origin,
            "size": signed.size,
            "root": signed.root.hex(),
        }
        if signed
        else None,
        "signer": {
            "trusted": signer.trusted,
            "fingerprint": fingerprint(public) if public else None,
        }
        if signer
        else None,
        "faults": [
            {
                "kind": fault.kind,
                "stream": fault.stream,
                "seq": fault.seq,
                "message": fault.message,
            }
            for fault in found.faults
        ],
        "first_bad": {"stream": bad[0], "seq": bad[1]} if bad else None,
    }
