"""
Pins: which files an agent may be made of, by digest and by signature.

Keys and signatures are those of minisign, https://jedisct1.github.io/minisign/:

    untrusted comment: anything
    Base64(algorithm || key id || signature of the file)
    trusted comment: what the signer says
    Base64(signature of the signature of the file || the trusted comment)

``ED`` signs the BLAKE2b-512 of the file, ``Ed`` the file itself.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from ..errors import BadBytes
from .calls import JSON

#: Most bytes of a file with a key or a signature.
LARGEST = 16_384

KEY, HASHED = b"Ed", b"ED"
ALGORITHMS = (KEY, HASHED)
ID = 8
UNTRUSTED, TRUSTED = "untrusted comment: ", "trusted comment: "
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_LINES = 4


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 key, as minisign writes it: ``RW...``."""

    id: bytes
    raw: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Return the key in a line, or in a file with a comment above it.

        Raises:
            BadBytes: There is none.
        """
        lines = text.splitlines()
        at = 1 + (len(lines) > 1 and lines[0].startswith(UNTRUSTED))
        if len(lines) != at:
            raise BadBytes("is not one line that begins with RW")
        algorithm, key = _parts(lines, at, _KEY_BYTES)
        if algorithm != KEY:
            raise BadBytes(f"line {at} is not a public key of Ed25519")
        return cls(key[:ID], key[ID:])

    def __str__(self) -> str:
        """Return the line."""
        return b64encode(KEY + self.id + self.raw).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """
    A detached signature of a file.

    Attributes:
        hashed: The digest of the file is signed, not the file.

        key_id: Of the key that made it.

        raw: The signature of the file.

        comment: What the signer says.

        whole: The signature of *raw* and *comment*.
    """

    hashed: bool
    key_id: bytes
    raw: bytes
    comment: str
    whole: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """
        Return the signature that is in a file.

        Raises:
            BadBytes: It is something else. The message names the line.
        """
        if len(data) > LARGEST:
            raise BadBytes(f"has more than {LARGEST:,} bytes")
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError as exc:
            line = 1 + data.count(b"\n", 0, exc.start)
            raise BadBytes(f"line {line} is not UTF-8") from None
        if len(lines) != _LINES:
            raise BadBytes(f"has {len(lines)} lines, of {_LINES} that a signature has")
        for at, begins in ((1, UNTRUSTED), (3, TRUSTED)):
            if not lines[at - 1].startswith(begins):
                raise BadBytes(f"line {at} does not begin with {begins!r}")
        comment = lines[2].removeprefix(TRUSTED)
        if not comment.replace("\t", "").isprintable():
            raise BadBytes("line 3 has control characters")
        algorithm, signed = _parts(lines, 2, _SIGNATURE_BYTES)
        return cls(
            hashed=algorithm == HASHED,
            key_id=signed[:ID],
            raw=signed[ID:],
            comment=comment,
            whole=_decoded(lines, 4, _SIGNATURE_BYTES),
        )

    def to_bytes(self) -> bytes:
        """Return the file."""
        signed = b64encode((HASHED if self.hashed else KEY) + self.key_id + self.raw)
        return (
            f"{UNTRUSTED}signature of caxton agent sign\n{signed.decode()}\n"
            f"{TRUSTED}{self.comment}\n{b64encode(self.whole).decode()}\n"
        ).encode()

    def message(self, data: bytes) -> bytes:
        """Return what *raw* signs of a file."""
        return blake2b(data).digest() if self.hashed else data

    @property
    def vouched(self) -> bytes:
        """What *whole* signs."""
        return self.raw + self.comment.encode()


@dataclass(frozen=True, slots=True)
class Pin:
    """
    Which files an agent may be made of.

    Attributes:
        sha256: Each file has one of these digests; empty: any.

        signers: Each file is signed by one of these keys; empty: by none.
    """

    sha256: tuple[str, ...] = ()
    signers: tuple[PublicKey, ...] = ()

    def __bool__(self) -> bool:
        """Return whether it demands anything."""
        return bool(self.sha256 or self.signers)

    def to_document(self) -> JSON:
        """Return it as documents show it; ``None``: it demands nothing."""
        if not self:
            return None
        return {"sha256": [*self.sha256], "signers": [*map(str, self.signers)]}


def _parts(lines: list[str], at: int, size: int) -> tuple[bytes, bytes]:
    """Return the algorithm of a line, and its key id with what follows."""
    found = _decoded(lines, at, 2 + ID + size)
    if found[:2] not in ALGORITHMS:
        raise BadBytes(f"line {at} names an unknown algorithm")
    return found[:2], found[2:]


def _decoded(lines: list[str], at: int, size: int) -> bytes:
    try:
        found = b64decode(lines[at - 1], validate=True)
    except (binascii.Error, ValueError):
        raise BadBytes(f"line {at} is not Base64") from None
    if len(found) != size:
        raise BadBytes(f"line {at} has {len(found)} bytes, of {size} wanted")
    return found
