"""
The keys of a host, and the only owner of `cryptography`.

    signing.key     32 bytes, 0600: the seed of the Ed25519 key that signs now
    signing.former  0600: the public keys that signed before it, one a line, in hex

Both lie in the state folder, outside of every database. The file is read again for
each signature, so a host that runs signs with a new key as soon as there is one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from ..core.log.checkpoint import (
    COSIGNATURE,
    Checkpoint,
    Note,
    Signature,
    Verifier,
    key_id,
)
from ..core.log.witnesses import Witnessed, cosignature, cosignatures, cosigned_text
from ..errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_SIZE = 32
_NONCE = 12
_PRIVATE = 0o600

#: Whose a note is: a trusted key's, no trusted key's, or falsely a trusted key's.
Judged: TypeAlias = Literal["trusted", "unknown", "forged"]


def secret(path: Path) -> bytes:
    """
    Return the 32 bytes in a file of mode 0600; random ones at first.

    Raises:
        ConfigError: It holds something else.
    """
    if not path.exists():
        # Written whole under another name first: a second host never reads half.
        with (
            contextlib.suppress(FileExistsError),
            _draft(path, secrets.token_bytes(_SIZE)) as draft,
        ):
            os.link(draft, path)
    key = path.read_bytes()
    if len(key) != _SIZE:
        raise ConfigError(
            f"{path.name} in {path.parent} is not a key of {_SIZE} bytes",
            fix="move the file away; a new key is made",
        )
    return key


@contextlib.contextmanager
def _draft(path: Path, data: bytes) -> Generator[Path]:
    """Write a file beside *path* that nobody else can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    try:
        os.write(handle, data)
        os.fsync(handle)
        yield draft
    finally:
        os.close(handle)
        draft.unlink(missing_ok=True)


def jwt_algorithm(pem: str) -> str | None:
    """Return the algorithm with which a private key signs JWTs, or ``None``."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 -- 30 ms
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    try:
        key = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= 2048:  # noqa: PLR2004 -- bits
        return "RS256"
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        return "ES256"
    return "EdDSA" if isinstance(key, ed25519.Ed25519PrivateKey) else None


class Signer(Protocol):
    """Signs checkpoints: a `Keyring`, or a `Rotation`."""

    def public_key(self) -> bytes:
        """Return the Ed25519 key that others verify with."""
        ...

    def sign(self, checkpoint: Checkpoint) -> Note:
        """Return the note of *checkpoint*."""
        ...


class Keyring:
    """The signing keys in a state folder."""

    def __init__(self, folder: Path) -> None:
        self._current = folder / "signing.key"
        self._former = folder / "signing.former"

    def public_key(self) -> bytes:
        """
        Return the public key of the host, made on first use.

        Raises:
            ConfigError: Its file holds something else.
        """
        return _public(private_key(secret(self._current)))

    def known(self) -> tuple[bytes, ...]:
        """Return the public keys, the current one first; none is made."""
        current = (self.public_key(),) if self._current.exists() else ()
        return (*current, *self.former())

    def former(self) -> tuple[bytes, ...]:
        """
        Return the public keys that were rotated out, the newest first.

        Raises:
            ConfigError: Their file holds something else.
        """
        try:
            lines = self._former.read_text("ascii").split()
            return tuple(bytes.fromhex(line) for line in reversed(lines))
        except FileNotFoundError:
            return ()
        except ValueError:
            raise ConfigError(
                f"{self._former.name} in {self._former.parent} is not a list of keys",
                fix="take it from a copy; without it, old checkpoints need --key",
            ) from None

    def sign(self, checkpoint: Checkpoint) -> Note:
        """Return the note of *checkpoint*, signed by the current key."""
        return _signed(checkpoint, [private_key(secret(self._current))])

    @contextlib.contextmanager
    def rotating(self) -> Generator[Rotation]:
        """
        Give a new key, and make it the current one at the end of the block.

        The old secret is deleted; its public half stays known. If the block
        raises, nothing has changed.
        """
        self._former.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._former, os.O_RDWR | os.O_APPEND | os.O_CREAT, _PRIVATE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            old, seed = secret(self._current), secrets.token_bytes(_SIZE)
            rotation = Rotation(old=old, new=seed)
            with _draft(self._current, seed) as draft:
                yield rotation
                os.write(handle, f"{rotation.former.hex()}\n".encode())
                os.fsync(handle)
                draft.replace(self._current)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rotation:
    """
    One key in the place of another. Meanwhile, both sign.

    Attributes:
        old: The seed of the key that goes.

        new: The seed of the key that comes.
    """

    old: bytes
    new: bytes

    @property
    def former(self) -> bytes:
        """The public key that goes."""
        return _public(private_key(self.old))

    def public_key(self) -> bytes:
        """Return the public key that comes."""
        return _public(private_key(self.new))

    def sign(self, checkpoint: Checkpoint) -> Note:
        """Return the note of *checkpoint*: the old key vouches for the new one."""
        return _signed(checkpoint, [private_key(self.old), private_key(self.new)])


def judge(note: Note, trusted: Iterable[bytes]) -> Judged:
    """Return whose *note* is. One sound signature of a *trusted* key is enough."""
    signed: Judged = "unknown"
    for public_key in trusted:
        for signature in note.by(public_key):
            if not verifies(public_key, signature.raw, note.signed):
                return "forged"
            signed = "trusted"
    return signed


def sealed(key: bytes, data: bytes, use: bytes) -> bytes:
    """
    Return *data* so that only `opened` with that key and *use* reads it.

    Args:
        key: Of 32 bytes.

        data: What is hidden.

        use: What it is good for: a box for one thing is not taken for another.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 -- 40 ms

    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, data, use)


def opened(key: bytes, box: bytes, use: bytes) -> bytes | None:
    """Return what was `sealed`, or ``None`` if nothing was with that key and use."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 -- 40 ms
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 -- 40 ms

    try:
        return AESGCM(key).decrypt(box[:_NONCE], box[_NONCE:], use)
    except (InvalidTag, ValueError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessKey:
    """
    The key of a witness.

    Attributes:
        name: What it calls itself.

        seed: 32 bytes that nobody else knows.
    """

    name: str
    seed: bytes = field(repr=False)

    def verifier(self) -> Verifier:
        """Return what others verify with."""
        return Verifier(self.name, _public(private_key(self.seed)), COSIGNATURE)

    def cosign(self, note: Note, time: int) -> Signature:
        """Return the cosignature of *note* at a time in seconds since 1970."""
        raw = private_key(self.seed).sign(cosigned_text(time, note.signed))
        return cosignature(self.verifier(), time, raw)


def cosigned_at(note: Note, witness: Verifier) -> int | None:
    """Return when a witness cosigned *note*, in seconds; ``None``: it did not."""
    return max(
        (
            time
            for time, raw, text in cosignatures(note, witness)
            if verifies(witness.public_key, raw, text)
        ),
        default=None,
    )


def witnessed(
    notes: Iterable[Note], witnesses: Sequence[Verifier], quorum: int
) -> Witnessed | None:
    """Return the largest of *notes* that so many witnesses have cosigned."""
    for note in sorted(notes, key=lambda one: one.checkpoint.size, reverse=True):
        times = [(one.name, cosigned_at(note, one)) for one in witnesses]
        found = tuple((name, time) for name, time in times if time is not None)
        if len(found) >= quorum:
            return Witnessed(checkpoint=note.checkpoint, times=found)
    return None


def verifies(public_key: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether the owner of that Ed25519 key signed *data*."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 -- 40 ms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 -- 40 ms
        Ed25519PublicKey,
    )

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed(checkpoint: Checkpoint, keys: Sequence[Ed25519PrivateKey]) -> Note:
    name, text = checkpoint.origin, checkpoint.text().encode()
    return Note.of(
        checkpoint,
        [
            Signature(name=name, key_id=key_id(name, _public(key)), raw=key.sign(text))
            for key in keys
        ],
    )


def private_key(seed: bytes) -> Ed25519PrivateKey:
    """Return the key that 32 bytes are the seed of."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 -- 40 ms
        Ed25519PrivateKey,
    )

    return Ed25519PrivateKey.from_private_bytes(seed)


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
