"""
A checkpoint: size and root of the log as a signed note.

    origin
    size, in decimals
    root of the tree, in Base64

    — name Base64(key id || signature)

The text above the empty line is signed, its last line break included. The name of a
key is the origin of its log. The format is that of
https://c2sp.org/tlog-checkpoint and https://c2sp.org/signed-note.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ...errors import BadBytes
from ..calls import JSON

MAX_NOTE = 16_384
MAX_SIGNATURES = 16

#: Kinds of signatures: of a log, and of a witness.
ED25519, COSIGNATURE = b"\x01", b"\x04"

_KEY_ID = 4
_DASH = "— "
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_KEY = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[^\s+]{1,255}")
_MAX_LINES = 64


@dataclass(frozen=True, slots=True)
class Verifier:
    """
    A named public key, as https://c2sp.org/signed-note writes it: a *vkey*.

    Attributes:
        name: Of a log, its origin; of a witness, what it calls itself.

        kind: `ED25519` or `COSIGNATURE`.
    """

    name: str
    public_key: bytes
    kind: bytes = ED25519

    def text(self) -> str:
        """
        Return it as text.

        >>> Verifier("log", bytes(32)).text()
        'log+5d68977d+AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
        """
        mark = key_id(self.name, self.public_key, self.kind).hex()
        return f"{self.name}+{mark}+{b64encode(self.kind + self.public_key).decode()}"

    @classmethod
    def parse(cls, text: str, kind: bytes) -> Verifier:
        """
        Parse `text`.

        Raises:
            BadBytes: It is not a key of that kind.
        """
        name, _, rest = text.partition("+")
        mark, _, data = rest.partition("+")
        raw = parse_base64(data)
        found = cls(name, raw[1:], raw[:1])
        if not _NAME.fullmatch(name) or len(raw) != 1 + sha256().digest_size:
            raise BadBytes("not NAME+ID+KEY with an Ed25519 key")
        if found.kind != kind:
            raise BadBytes("a key for another kind of signature")
        if mark != key_id(name, found.public_key, kind).hex():
            raise BadBytes("its id is not that of its name and key: it was mistyped")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """
    The size and the root of a log.

    Attributes:
        origin: The name of the log.

        size: The number of events.

        root: The root of the tree over their hashes.
    """

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        r"""
        Return the signed text.

        >>> Checkpoint(origin="log", size=1, root=bytes(32)).text()
        'log\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n'
        """
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """
    A signature line of a note.

    Attributes:
        name: The name of the key.

        key_id: 4 bytes that identify the key of that name.

        raw: The signature; of an Ed25519 key, 64 bytes.
    """

    name: str
    key_id: bytes
    raw: bytes

    def line(self) -> str:
        """Return the line, without a line break."""
        return f"{_DASH}{self.name} {b64encode(self.key_id + self.raw).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """
    A checkpoint and its signatures, not verified yet.

    Attributes:
        signed: The signed bytes.
    """

    checkpoint: Checkpoint
    signed: bytes
    signatures: tuple[Signature, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, signatures: Sequence[Signature]) -> Note:
        """Return the note of a checkpoint with its signatures."""
        return cls(
            checkpoint=checkpoint,
            signed=checkpoint.text().encode(),
            signatures=tuple(signatures),
        )

    def text(self) -> str:
        """Return the note."""
        lines = "".join(f"{signature.line()}\n" for signature in self.signatures)
        return f"{self.signed.decode()}\n{lines}"

    def by(self, public_key: bytes) -> list[Signature]:
        """Return the signatures with the id of that key of the log."""
        return self.of_key(Verifier(self.checkpoint.origin, public_key))

    def of_key(self, key: Verifier) -> list[Signature]:
        """Return the signatures with the name and id of a key."""
        expected = key_id(key.name, key.public_key, key.kind)
        return [
            signature
            for signature in self.signatures
            if signature.name == key.name and signature.key_id == expected
        ]


def origin_of(first: bytes) -> str:
    """
    Return the origin of the log whose first event has that hash.

    Salts are random, so the first hashes of logs differ.

    >>> origin_of(bytes(32))
    'caxton-host/log/00000000000000000000000000000000'
    """
    return f"caxton-host/log/{first[:16].hex()}"


def key_id(name: str, public_key: bytes, kind: bytes = ED25519) -> bytes:
    """Return the id of an Ed25519 key in signatures of a kind."""
    return sha256(name.encode() + b"\n" + kind + public_key).digest()[:_KEY_ID]


def fingerprint(public_key: bytes) -> str:
    """
    Return the fingerprint of a key, for people to compare.

    >>> fingerprint(bytes(32))
    '66687aadf862bd776c8fc18b8e9f8e20'
    """
    return sha256(public_key).hexdigest()[:32]


def parse_key(text: str) -> bytes | None:
    """
    Parse a public key of 64 hex digits, or return ``None``.

    >>> parse_key("00" * 32) == bytes(32), parse_key("00")
    (True, None)
    """
    return bytes.fromhex(text) if _KEY.fullmatch(text) else None


def parse_note(data: bytes) -> Note:
    """
    Parse a note.

    Raises:
        BadBytes: It is longer than 16 KiB, or not a signed checkpoint.
    """
    if len(data) > MAX_NOTE:
        raise BadBytes(f"a checkpoint of {len(data)} bytes, of {MAX_NOTE} allowed")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadBytes("a checkpoint that is not text") from None
    body, _, rest = text.partition("\n\n")
    if not rest.endswith("\n") or not _is_printable(text):
        raise BadBytes("not a signed checkpoint")
    lines = rest[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise BadBytes(f"{len(lines)} signatures, of {MAX_SIGNATURES} allowed")
    return Note(
        checkpoint=_checkpoint(body.split("\n")),
        signed=f"{body}\n".encode(),
        signatures=tuple(map(_signature, lines)),
    )


def parse_notes(data: bytes) -> list[Note]:
    """
    Parse consecutive notes, as in the file of an anchor.

    Empty lines between them are ignored.

    Raises:
        BadBytes: There is no note, or one is invalid.
    """
    found: list[Note] = []
    rest = data.lstrip(b"\n")
    while rest:
        cut = _DASH.encode()
        start = rest.find(b"\n\n" + cut)
        end = start + 2
        while start >= 0 and rest.startswith(cut, end):
            end = rest.find(b"\n", end) + 1 or len(rest)
        note, rest = (rest, b"") if start < 0 else (rest[:end], rest[end:])
        found.append(parse_note(note))
        rest = rest.lstrip(b"\n")
    if not found:
        raise BadBytes("there is no checkpoint")
    return found


def _is_printable(text: str) -> bool:
    return all(char == "\n" or char >= " " for char in text)


def _checkpoint(lines: Sequence[str]) -> Checkpoint:
    if not 3 <= len(lines) <= _MAX_LINES or not all(lines):  # noqa: PLR2004 -- origin, size, root
        raise BadBytes("a checkpoint has at least three lines, none of them empty")
    origin, size, root = lines[:3]
    if not _SIZE.fullmatch(size):
        raise BadBytes("the size of a checkpoint is a number")
    digest = parse_base64(root)
    if len(digest) != sha256().digest_size:
        raise BadBytes("the root of a checkpoint has 32 bytes")
    return Checkpoint(origin=origin, size=int(size), root=digest)


def _signature(line: str) -> Signature:
    if not line.startswith(_DASH):
        raise BadBytes("a signature begins with an em dash")
    name, _, text = line.removeprefix(_DASH).partition(" ")
    if not _NAME.fullmatch(name):
        raise BadBytes("a signature without the name of a key")
    raw = parse_base64(text)
    if len(raw) <= _KEY_ID:
        raise BadBytes("a signature of no bytes")
    return Signature(name=name, key_id=raw[:_KEY_ID], raw=raw[_KEY_ID:])


def parse_base64(text: str) -> bytes:
    """
    Decode canonical Base64.

    Raises:
        BadBytes: It is something else.
    """
    try:
        data = b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise BadBytes("not Base64") from None
    if b64encode(data).decode() != text:
        raise BadBytes("not Base64 as it is written")
    return data


def checkpoint_document(checkpoint: Checkpoint, note: str) -> dict[str, JSON]:
    """Return the ``caxton.checkpoint/v1`` document of a signed *note*."""
    return {
        "$type": "caxton.checkpoint/v1",
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "note": note,
    }
