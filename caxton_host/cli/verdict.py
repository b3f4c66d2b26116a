"""The result of a verification, as text and as a document; trusted keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.log.checkpoint import (
    COSIGNATURE,
    Note,
    Verifier,
    fingerprint,
    parse_key,
)
from ..core.log.witnesses import Witnessed
from ..errors import BadBytes, UsageError
from .context import HostApi
from .output import complain, counted, note, patience, say
from .run_text import second
from .witness import parsed

if TYPE_CHECKING:
    from ..core.log.bundle import Bundle
    from ..core.log.chain import Verdict
    from ..lib.signing import Keyring
    from ..store.verified import Verified


_NAMED = 5


def keyring(host: HostApi) -> Keyring:
    """Return the keys of this host."""
    from ..lib.signing import Keyring

    return Keyring(host.paths().state)


def trusted(host: HostApi, keys: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the trusted public keys: those given, or else the configured ones."""
    if keys:
        return tuple(map(_parsed, keys))
    return (*host.look("audit").audit.trusted_keys, *keyring(host).known())


def _parsed(text: str) -> bytes:
    found = parse_key(text)
    if found is None:
        raise UsageError(
            f"--key {text} is no public key",
            fix="give the 64 digits of caxton audit key",
        )
    return found


def of_bundle(
    path: Path, known: tuple[bytes, ...], kept: Sequence[Note] = ()
) -> tuple[Bundle | None, Verdict]:
    """Return the bundle in a file, if it is one, and its verdict."""
    from ..core.log.chain import Fault, Verdict
    from ..store.bundle_store import check_bundle, read_bundle

    with patience("verifying"):
        try:
            bundle = read_bundle(path)
        except BadBytes as exc:
            fault = Fault(kind="form", message=str(exc))
            return None, Verdict(streams=0, events=0, faults=(fault,))
        return bundle, check_bundle(bundle, known, kept)


def believe(host: HostApi, path: Path, keys: tuple[str, ...]) -> Bundle | None:
    """
    Return a bundle if a trusted key signed it; otherwise report why not.

    Nothing in it is interpreted before that.
    """
    bundle, found = of_bundle(path, trusted(host, keys))
    if bundle is None or found.verdict != "intact":
        refuse(found, bundled=True)
        return None
    return bundle


@dataclass(frozen=True, slots=True)
class Watchers:
    """The witnesses whose signatures are demanded, and how many of them."""

    keys: tuple[Verifier, ...]
    quorum: int

    def of(self, notes: Sequence[Note]) -> Witnessed | None:
        """Return the largest checkpoint that enough of them have cosigned."""
        from ..lib.signing import witnessed

        return witnessed(notes, self.keys, self.quorum)

    def refuse(self) -> None:
        """Report that there is none."""
        names = ", ".join(one.name for one in self.keys)
        complain(
            f"no checkpoint is cosigned by {self.quorum} of: {names}",
            "ask for a newer bundle, or see [audit] witnesses where the log is; a "
            "witness that refuses saw another log",
        )


def watchers(keys: tuple[str, ...], quorum: int | None) -> Watchers | None:
    """Return the witnesses that are demanded, if any are."""
    if not keys:
        if quorum is not None:
            raise UsageError("--quorum of no witnesses", fix="add --witness-key VKEY")
        return None
    found = dict.fromkeys(parsed("--witness-key", one, COSIGNATURE) for one in keys)
    if len({one.public_key for one in found}) < len(found):
        raise UsageError(
            "--witness-key names one witness twice: the same key under two names",
            fix="leave one of them out",
        )
    if quorum is not None and quorum > len(found):
        raise UsageError(
            f"--quorum is {quorum}, more than the witnesses: {len(found)}",
            fix="lower it, or name more with --witness-key",
        )
    return Watchers((*found,), quorum or len(found))


def witnessed_document(
    found: Witnessed | None, asked: Watchers | None
) -> dict[str, JSON]:
    """Return what the document of a verification says of witnesses."""
    if asked is None:
        return {}
    if found is None:
        return {"witnessed": None}
    by: list[JSON] = [{"name": name, "time": time} for name, time in found.times]
    return {"witnessed": {"size": found.checkpoint.size, "by": by}}


def say_witnessed(found: Witnessed | None) -> None:
    """Print who vouches for how much of the log."""
    if found is not None:
        by = ", ".join(
            f"{name} on {second(time * 1_000_000)} UTC" for name, time in found.times
        )
        events = counted(found.checkpoint.size, "event")
        say(f"witnessed: the first {events} of the log, by {by}")


def audit_line(found: Verdict) -> str:
    """Return the outcome of a verification in a line."""
    events = counted(found.events, "event")
    return f"{found.verdict}: {events} in {counted(found.streams, 'stream')}"


def say_signed(found: Verdict, before: Verified | None = None) -> None:
    """Print what a trusted key has signed, and what was verified before."""
    if before:
        say(
            f"before: the first {counted(found.before, 'event')} were verified on "
            f"{second(before.at)} UTC, all at once on {second(before.full_at)}; "
            "--full checks them again"
        )
    if found.erased:
        named = ", ".join(found.erased_runs[:_NAMED])
        more = len(found.erased_runs) - _NAMED
        say(
            f"erased: {counted(found.erased, 'payload')}, of which the digests are "
            f"left, of run {named}" + (f" and {more} more" if more > 0 else "")
        )
    if found.verdict != "intact" or found.checkpoint is None:
        return
    say(f"signed: the first {counted(found.checkpoint.size, 'event')} of the log")
    if found.lag:
        say(f"copy: it lags {counted(found.lag, 'event')} behind what was signed last")
    if found.behind:
        say(
            f"behind: {counted(found.behind, 'event')} after the newest checkpoint, "
            "protected only by their chain; removing them cannot be detected"
        )


def refuse(found: Verdict, *, bundled: bool) -> None:
    """Report why *found* is not intact, in a log or in a bundle."""
    if found.verdict == "broken":
        for fault in found.faults[1:]:
            note(f"also: {fault}")
        complain(
            str(found.faults[0]),
            "ask the owner of the log for a new bundle: caxton audit export"
            if bundled
            else "restore the database from a copy, and see who may write it; if it is "
            "one that was restored, docs/how-to/restore.md",
        )
        return
    if found.signer is None:
        complain(
            "there is no checkpoint of a trusted key",
            "caxton audit checkpoint signs the log as it is; or give --key",
        )
        return
    public = found.signer.public_key
    mark = fingerprint(public) if public else "unknown"
    complain(
        f"signed by a key that is not trusted, with the fingerprint {mark}",
        "ask its owner, by another way, for the public key; then give it with --key, "
        "or in [audit] trusted_keys",
    )
