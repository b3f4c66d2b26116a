"""
Witnesses: others who vouch that a log has only grown since they saw it last.

A witness keeps one checkpoint of each log, and cosigns a newer one only with the proof
that its log begins with what was there. So a host cannot show two logs to two people,
and cannot take back what it has shown. The protocol is that of
https://c2sp.org/tlog-witness, its signatures are https://c2sp.org/tlog-cosignature:

    POST add-checkpoint: old SIZE, a proof, an empty line, a checkpoint -> signatures
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...errors import BadBytes
from .checkpoint import (
    COSIGNATURE,
    MAX_NOTE,
    Checkpoint,
    Note,
    Signature,
    Verifier,
    key_id,
    parse_base64,
    parse_note,
)
from .tree import is_consistent

#: Witnesses of one log: their signatures have to fit in one note.
MAX_WITNESSES = 8
#: Hashes of a proof, and bytes of a submission.
MAX_PROOF = 63
MAX_SUBMISSION = MAX_NOTE + 4096
#: What the answer to a submission with another old size holds.
SIZE_TYPE = "text/x.tlog.size"

#: Why a witness does not cosign, as statuses of HTTP.
Refusal: TypeAlias = Literal[400, 409, 422]

_SIZE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_HASH = 32
_TIMED = struct.Struct(">Q64s")
_LATEST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """
    A checkpoint that a witness is asked to cosign.

    Attributes:
        old: The size of the log as the witness knows it; 0: it knows none.

        proof: That the log of the checkpoint begins with that one.
    """

    old: int
    proof: tuple[bytes, ...]
    note: Note

    def to_bytes(self) -> bytes:
        """Return the body of the request."""
        proof = "".join(f"{b64encode(one).decode()}\n" for one in self.proof)
        return f"old {self.old}\n{proof}\n{self.note.text()}".encode()


def parse_submission(data: bytes) -> Submission:
    """
    Parse the body of a request.

    Raises:
        BadBytes: It is too long, or not a submission.
    """
    if len(data) > MAX_SUBMISSION:
        raise BadBytes(f"{len(data)} bytes, of {MAX_SUBMISSION} allowed")
    head, _, rest = data.partition(b"\n\n")
    try:
        first, *lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise BadBytes("a proof that is not text") from None
    word, _, size = first.partition(" ")
    if word != "old" or not _SIZE.fullmatch(size):
        raise BadBytes("the first line is not the old size")
    proof = tuple(map(parse_base64, lines))
    if len(proof) > MAX_PROOF or any(len(one) != _HASH for one in proof):
        raise BadBytes(f"a proof has at most {MAX_PROOF} hashes of {_HASH} bytes")
    return Submission(old=int(size), proof=proof, note=parse_note(rest))


def refusal(known: Checkpoint | None, asked: Submission) -> Refusal | None:
    """
    Return why a witness must not cosign, or ``None``.

    Args:
        known: What it cosigned last of that log.

        asked: Signed by the log, which is checked before.
    """
    new, seen = asked.note.checkpoint, known.size if known else 0
    if asked.old > new.size:
        return 400
    if asked.old != seen:
        return 409
    if known is None or seen == 0:
        return 422 if asked.proof else None
    if seen == new.size and known.root != new.root:
        return 409
    grew = is_consistent(seen, known.root, new.size, new.root, asked.proof)
    return None if grew else 422


def cosigned_text(time: int, signed: bytes) -> bytes:
    r"""
    Return what a witness signs.

    Args:
        time: In seconds since 1970.

        signed: The text of the note that the log signs.

    >>> cosigned_text(7, b"log\n1\n...\n")
    b'cosignature/v1\ntime 7\nlog\n1\n...\n'
    """
    return b"cosignature/v1\ntime %d\n%b" % (time, signed)


def cosignature(witness: Verifier, time: int, raw: bytes) -> Signature:
    """Return the line of a witness with its raw signature of `cosigned_text`."""
    mark = key_id(witness.name, witness.public_key, COSIGNATURE)
    return Signature(name=witness.name, key_id=mark, raw=_TIMED.pack(time, raw))


def cosignatures(note: Note, witness: Verifier) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield time, raw signature and signed text of each line of a witness."""
    for one in note.of_key(witness):
        if len(one.raw) == _TIMED.size:
            time, raw = _TIMED.unpack(one.raw)
            if time <= _LATEST:
                yield time, raw, cosigned_text(time, note.signed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """
    A checkpoint that enough witnesses have cosigned.

    Attributes:
        times: When, in seconds since 1970, by the name of the witness.
    """

    checkpoint: Checkpoint
    times: tuple[tuple[str, int], ...]
