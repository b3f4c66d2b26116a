"""
Pins in force: an agent executes the files that its pin names, and no others.

The bytes that are checked are those that are executed. A file is signed by the file
beside it, whose name ends with ``.minisig``; what waits in a queue, by what the event
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import cast

from ..config import Agent
from ..core.calls import JSON
from ..core.pins import LARGEST, PublicKey
from ..errors import BadBytes, UsageError
from ..lib.codec import sha256
from ..lib.files import opened
from ..lib.minisign import signer_of


def signature_of(path: Path) -> Path:
    """Return the file with the signature of a file."""
    return path.with_name(f"{path.name}.minisig")


def read_signature(path: Path) -> bytes:
    """
    Return the signature of a file, unread.

    Raises:
        UsageError: There is none.
    """
    beside = signature_of(path)
    try:
        with opened(beside) as file:
            return file.read(LARGEST + 1)
    except OSError as exc:
        raise UsageError(
            f"cannot read the signature {beside}: {exc.strerror}",
            fix=f"caxton agent sign {path} --key SECRET",
        ) from None


def check_files(agent: Agent, files: Mapping[Path, bytes]) -> tuple[JSON, ...]:
    """
    Check files that an agent is to execute, and return their signatures as events do.

    Raises:
        UsageError: Its pin does not allow one, or a signature cannot be read.
    """
    named = {str(path): data for path, data in files.items()}
    return _checked(agent, named, lambda name: read_signature(Path(name)))


def check_blobs(
    agent: Agent, blobs: Mapping[str, bytes], recorded: Sequence[JSON]
) -> None:
    """
    Check what an agent is to execute, as an event and the log hold it.

    Args:
        agent: As it is configured now.

        blobs: By digest.

        recorded: See `RunStarted.signatures`.

    Raises:
        UsageError: Its pin does not allow one.
    """
    rows = cast("Sequence[Mapping[str, JSON]]", recorded)
    known = {str(row["sha256"]): str(row["signature"]).encode() for row in rows}
    _checked(agent, blobs, lambda digest: known.get(digest, b""))


def _checked(
    agent: Agent, files: Mapping[str, bytes], signature: Callable[[str], bytes]
) -> tuple[JSON, ...]:
    pin, found = agent.pin, list[JSON]()
    for name, data in files.items() if pin else ():
        digest = _digest(data)
        if pin.sha256 and digest not in pin.sha256:
            raise UsageError(
                f"{name} has the SHA-256 {digest}, which [agents.{agent.name}] does "
                "not pin",
                fix="restore the file; or, if you trust it: "
                f"caxton agent pin {agent.name}",
            )
        if not pin.signers:
            continue
        text = signature(name)
        try:
            signer = _signer(data, text, pin.signers)
        except BadBytes as exc:
            raise UsageError(
                f"{name} is not signed by a signer of [agents.{agent.name}]: "
                f"{signature_of(Path(name)).name} {exc}",
                fix=f"restore the files; or, if you trust them: caxton agent sign "
                f"{name} --key SECRET",
            ) from None
        row = {"sha256": digest, "signer": str(signer), "signature": text.decode()}
        found.append(cast("JSON", row))
    return tuple(found)


# A served agent is checked at each run, and its module is read when it changes.
@lru_cache(maxsize=16)
def _digest(data: bytes) -> str:
    return sha256(data)


@lru_cache(maxsize=16)
def _signer(data: bytes, text: bytes, signers: tuple[PublicKey, ...]) -> PublicKey:
    return signer_of(data, text, signers)
