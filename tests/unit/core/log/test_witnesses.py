"""A witness cosigns what grew, and nothing else; and says so in the published form."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.log.checkpoint import (
    COSIGNATURE,
    ED25519,
    Checkpoint,
    Note,
    Signature,
    Verifier,
    parse_note,
)
from caxton_host.core.log.tree import part_root
from caxton_host.core.log.witnesses import (
    MAX_PROOF,
    MAX_SUBMISSION,
    Submission,
    cosignatures,
    parse_submission,
    refusal,
)
from caxton_host.errors import BadBytes
from caxton_host.lib.signing import WitnessKey, cosigned_at, witnessed
from tests.unit.evidence.logs import consistency

HASHES = [sha256(bytes([n])).digest() for n in range(40)]
OTHER = [*HASHES[:3], bytes(32), *HASHES[4:]]
SIGNED = Signature(name="log", key_id=b"abcd", raw=bytes(64))
KEY = WitnessKey(name="witness.example.com/w1", seed=b"w" * 32)


def note(size: int, hashes: list[bytes] = HASHES) -> Note:
    root = part_root(hashes[:size])
    return Note.of(Checkpoint(origin="log", size=size, root=root), [SIGNED])


def submission(
    old: int, size: int, hashes: list[bytes] = HASHES, proof: list[bytes] | None = None
) -> Submission:
    if proof is None:
        proof = consistency(hashes[:size], old) if 0 < old < size else []
    return Submission(old=old, proof=tuple(proof), note=note(size, hashes))


@given(st.integers(0, 40), st.data())
def test_a_submission_is_read_as_it_was_written(size: int, data: st.DataObject) -> None:
    asked = submission(data.draw(st.integers(0, size)), size)

    assert parse_submission(asked.to_bytes()) == asked


def test_a_submission_has_the_published_form() -> None:
    root, (one,) = b64encode(part_root(HASHES[:2])).decode(), consistency(HASHES[:2], 1)
    raw = b64encode(b"abcd" + bytes(64)).decode()

    assert submission(1, 2).to_bytes().decode() == (
        f"old 1\n{b64encode(one).decode()}\n\nlog\n2\n{root}\n\n— log {raw}\n"
    )


WHOLE = submission(1, 2).to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"old 1\n",
        WHOLE.replace(b"old 1", b"old 01"),
        WHOLE.replace(b"old 1", b"old -1"),
        WHOLE.replace(b"old 1", b"new 1"),
        WHOLE.replace(b"old 1", b"old 1 "),
        WHOLE.replace(b"old 1\n", b"old 1\n\xff\n"),
        WHOLE.replace(b"old 1\n", b"old 1\nAAAA\n"),
        WHOLE.replace(b"old 1\n", b"old 1\n" + b64encode(bytes(32)) + b"\n" * 1 * 2),
        WHOLE[:-1],
        Submission(
            old=1, proof=(bytes(32),) * (MAX_PROOF + 1), note=note(2)
        ).to_bytes(),
        b"old 1\n\n" + b"x" * MAX_SUBMISSION,
    ],
)
def test_what_is_no_submission_is_refused(data: bytes) -> None:
    with pytest.raises(BadBytes):
        parse_submission(data)


def test_a_submission_is_parsed_only_up_to_its_largest_size() -> None:  # law 9
    with pytest.raises(BadBytes, match="the first line"):
        parse_submission(b"x" * MAX_SUBMISSION)
    with pytest.raises(BadBytes, match="allowed"):
        parse_submission(b"x" * (MAX_SUBMISSION + 1))


def test_a_proof_has_at_most_63_hashes() -> None:
    proof = (bytes(32),) * 63
    most = Submission(old=1, proof=proof, note=note(2))

    assert parse_submission(most.to_bytes()).proof == proof


@given(st.binary(max_size=200))
def test_any_bytes_are_a_submission_or_refused(data: bytes) -> None:
    for text in (data, b"old 1\n\n" + data, WHOLE + data):
        try:
            parse_submission(text)
        except BadBytes:
            continue


@given(st.integers(1, 20), st.data())
def test_a_log_that_grew_is_cosigned(old: int, data: st.DataObject) -> None:
    new = data.draw(st.integers(old, 40))

    assert refusal(note(old).checkpoint, submission(old, new)) is None
    assert refusal(None, submission(0, new)) is None


@pytest.mark.parametrize(
    ("known", "asked", "status"),
    [
        (None, submission(0, 5, proof=[bytes(32)]), 422),
        (None, submission(3, 5), 409),
        (note(5), submission(0, 7), 409),
        (note(5), submission(4, 7), 409),
        # It was set back.
        (note(5), submission(3, 3), 409),
        (note(5), submission(5, 3), 400),
        # Another log of the same name.
        (note(5), submission(5, 5, OTHER), 409),
        (note(5), submission(5, 7, OTHER), 422),
        (note(5), submission(5, 7, proof=[]), 422),
        (note(5), submission(5, 5, proof=[bytes(32)]), 422),
        # One without events, which proves nothing.
        (note(0), submission(0, 4), None),
    ],
)
def test_what_is_not_proven_to_have_grown_is_refused(
    known: Note | None, asked: Submission, status: int | None
) -> None:
    assert refusal(known.checkpoint if known else None, asked) == status


def test_a_cosignature_has_the_published_form() -> None:
    line = KEY.cosign(note(7), 1_679_315_147)
    public = KEY.verifier().public_key
    mark = sha256(b"witness.example.com/w1\n\x04" + public).digest()[:4]

    assert line.line().startswith("— witness.example.com/w1 ")
    assert (line.name, line.key_id) == ("witness.example.com/w1", mark)
    assert line.raw[:8] == (1_679_315_147).to_bytes(8, "big")
    text = f"cosignature/v1\ntime 1679315147\nlog\n7\n{note(7).text().split()[2]}\n"
    # Raises if it is another signature.
    Ed25519PublicKey.from_public_bytes(public).verify(line.raw[8:], text.encode())


def cosigned(size: int, *keys: WitnessKey, time: int = 7) -> Note:
    plain = note(size)
    lines = [SIGNED, *(key.cosign(plain, time) for key in keys)]
    return Note.of(plain.checkpoint, lines)


SECOND = WitnessKey(name="w2", seed=b"x" * 32)


def test_the_largest_checkpoint_of_a_quorum_counts() -> None:
    notes = [cosigned(3, KEY, SECOND), cosigned(9), cosigned(5, KEY, time=8)]
    both = [KEY.verifier(), SECOND.verifier()]

    found = witnessed(notes, both, 1)
    assert found is not None
    assert (found.checkpoint.size, found.times) == (5, ((KEY.name, 8),))
    found = witnessed(notes, both, 2)
    assert found is not None
    assert found.checkpoint.size == 3
    assert witnessed(notes[1:], both, 2) is None


@pytest.mark.parametrize(("time", "count"), [(2**63 - 1, 1), (2**63, 0)])
def test_a_cosignature_has_a_time_that_fits_a_signed_number(
    time: int, count: int
) -> None:
    found = cosignatures(cosigned(5, KEY, time=time), KEY.verifier())

    assert len([*found]) == count


def test_a_cosignature_of_something_else_is_none() -> None:
    (line,) = cosigned(5, KEY).signatures[1:]
    other = Note.of(note(6).checkpoint, [line])
    late = Note.of(
        note(5).checkpoint,
        [Signature(name=line.name, key_id=line.key_id, raw=b"\xff" * 8 + line.raw[8:])],
    )
    short = Note.of(
        note(5).checkpoint,
        [Signature(name=line.name, key_id=line.key_id, raw=line.raw[8:])],
    )

    assert cosigned_at(other, KEY.verifier()) is None
    assert [*cosignatures(late, KEY.verifier())] == []
    assert [*cosignatures(short, KEY.verifier())] == []
    assert cosigned_at(cosigned(5, SECOND), KEY.verifier()) is None
    assert parse_note(cosigned(5, KEY).text().encode()) == cosigned(5, KEY)


@pytest.mark.parametrize("kind", [ED25519, COSIGNATURE])
def test_a_key_is_read_as_it_was_written(kind: bytes) -> None:
    key = Verifier("a/b", b"k" * 32, kind)

    assert Verifier.parse(key.text(), kind) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w",
        "w+00000000+AAAA",
        KEY.verifier().text().replace("w1+", "w2+"),
        KEY.verifier().text()[:-4],
        Verifier("a b", bytes(32), COSIGNATURE).text(),
        Verifier("w", bytes(31), COSIGNATURE).text(),
        Verifier("w", bytes(32), ED25519).text(),
    ],
)
def test_what_is_no_key_of_a_witness_is_refused(text: str) -> None:
    with pytest.raises(BadBytes):
        Verifier.parse(text, COSIGNATURE)
