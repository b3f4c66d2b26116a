"""A checkpoint is a signed note of C2SP, to the byte, or it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.log.checkpoint import (
    Checkpoint,
    Note,
    Signature,
    fingerprint,
    key_id,
    origin_of,
    parse_note,
    parse_notes,
)
from caxton_host.errors import BadBytes

#: As printed in https://c2sp.org/tlog-checkpoint.
PRINTED = """\
example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
"""  # noqa: E501 -- as it is printed there
BODY, LINE = PRINTED.split("\n\n")

notes = st.builds(
    Note.of,
    st.builds(
        Checkpoint,
        origin=st.text(st.characters(min_codepoint=33, codec="utf-8"), min_size=1),
        size=st.integers(0, 10**18),
        root=st.binary(min_size=32, max_size=32),
    ),
    st.lists(
        st.builds(
            Signature,
            name=st.from_regex(r"[a-z./]{1,20}", fullmatch=True),
            key_id=st.binary(min_size=4, max_size=4),
            raw=st.binary(min_size=1, max_size=80),
        ),
        min_size=1,
        max_size=3,
    ),
)


def test_the_example_of_the_specification() -> None:
    note = parse_note(PRINTED.encode())
    assert note.checkpoint.origin == "example.com/behind-the-sofa"
    assert note.checkpoint.size == 20852163
    assert note.signed.decode() == note.checkpoint.text() == f"{BODY}\n"
    assert [len(one.raw) for one in note.signatures] == [64]
    assert note.text() == PRINTED


@given(st.lists(notes, min_size=1, max_size=4), st.integers(0, 3))
def test_what_is_written_is_read(written: list[Note], empty: int) -> None:
    for note in written:
        assert parse_note(note.text().encode()) == note
    file = ("\n" * empty).join(note.text() for note in written)
    assert parse_notes(file.encode()) == written


def test_lines_below_the_root_are_signed_too() -> None:
    note = parse_note(f"{BODY}\nmore\n\n{LINE}".encode())
    assert note.signed.decode() == f"{BODY}\nmore\n"
    assert note.text() == f"{BODY}\nmore\n\n{LINE}"


def test_a_signature_names_its_key() -> None:
    key = bytes(range(32))
    checkpoint = Checkpoint(origin="log", size=1, root=bytes(32))
    mine = Signature(name="log", key_id=key_id("log", key), raw=bytes(64))
    other = Signature(name="log", key_id=key_id("log", bytes(32)), raw=bytes(64))
    elsewhere = Signature(name="lag", key_id=key_id("lag", key), raw=bytes(64))
    assert Note.of(checkpoint, [other, elsewhere, mine]).by(key) == [mine]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        BODY,
        PRINTED[:-1],
        PRINTED.replace("\n\n", "\n"),
        PRINTED.replace("20852163", "020852163"),
        PRINTED.replace("20852163", "-1"),
        PRINTED.replace("20852163", "9" * 20),
        PRINTED.replace("q2I=", "q2J="),  # the same bytes, written otherwise
        PRINTED.replace("q2I=", "q2I"),
        PRINTED.replace("q2I=", "q2I*"),
        PRINTED.replace("CsUY", ""),
        PRINTED.replace("\n20852163", "\n\n20852163"),
        PRINTED.replace("\n20852163", ""),
        PRINTED.replace("—", "-"),
        PRINTED.replace("— example", "—  example"),
        PRINTED.replace("sofa Az3", "so+a Az3"),
        PRINTED.replace("sofa\n", "sofa\r\n"),
        f"{BODY}\n\n— name AAAAAA==\n",
        f"{BODY}\n\n" + LINE * 17,
        BODY + "\nx" * 80 + f"\n\n{LINE}",
        PRINTED + "x" * 16_384,
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(BadBytes):
        parse_note(text.encode())
    with pytest.raises(BadBytes):
        parse_notes(text.encode())


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(BadBytes, match="not text"):
        parse_note(PRINTED.encode("utf-16"))


def test_logs_and_keys_have_short_names() -> None:
    assert origin_of(b"\xab" * 32) == f"caxton-host/log/{'ab' * 16}"
    assert len(fingerprint(bytes(32))) == 32
    assert fingerprint(bytes(32)) != fingerprint(bytes(31) + b"x")
