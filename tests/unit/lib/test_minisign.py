"""Keys and signatures of minisign, made from the format's description."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from caxton_host.core.pins import Pin, PublicKey, Signature
from caxton_host.errors import BadBytes, UsageError
from caxton_host.lib.minisign import SecretKey, signer_of

DATA = b"an agent"
SEED, ID = bytes(range(32)), b"keynumbr"
KEY = Ed25519PrivateKey.from_private_bytes(SEED)
RAW = KEY.public_key().public_bytes_raw()
PUBLIC = PublicKey(ID, RAW)
OTHER = SecretKey.new().public

#: Made by minisign 0.11 of this DATA: the digest is signed, and the file itself.
THEIRS = PublicKey.parse(
    "untrusted comment: minisign public key 4A09C41A6AE3F909\n"
    "RWQJ+eNqGsQJSteo9wXcLmDoQIw25HKVZJclOIn3Ac/OewtHZ6gR1x8B\n"
)
BY_MINISIGN = (
    b"""\
untrusted comment: signature from minisign secret key
RUQJ+eNqGsQJSpH4PLhJ9QQojyki77kIk186sdytkq3Z/IeEFaPaHU8dGGTf5Mbi+/SeC4GVJOeE29zgRaTIl+nZQdXMOrLinQU=
trusted comment: by minisign
cOJlnR45nCxZe+8mOd4aaAvwoaJ+TOoiTapxPjw+6ImNZ4i2WnLMkqNBeNZHcvFRh6UtMt7OfNLGeYA4K2nfAw==
""",
    b"""\
untrusted comment: signature from minisign secret key
RWQJ+eNqGsQJSmzY+iEEvYTW4jV/EebF9cKYXiytGqol4KzVi7F6DjmrZ/+8qm/fg8SUScghS8a5gcNHOK3kEU5XsEaefp5LTgY=
trusted comment: by minisign
d3qfO2Cebh5U4ygzjCAyVMOo/2X5DJTeyJhuZvHGrUqQKCd4fSO6SOfzaHsCPqPJeMuN3OBiMD9jXHdC2pW5DA==
""",
)


def line(*parts: bytes) -> bytes:
    return b64encode(b"".join(parts))


def signed(
    data: bytes = DATA, comment: str = "by hand", algorithm: bytes = b"ED"
) -> bytes:
    message = hashlib.blake2b(data).digest() if algorithm == b"ED" else data
    raw = KEY.sign(message)
    return b"\n".join(
        (
            b"untrusted comment: whatever",
            line(algorithm, ID, raw),
            b"trusted comment: " + comment.encode(),
            line(KEY.sign(raw + comment.encode())),
        )
    )


@pytest.mark.parametrize("algorithm", [b"ED", b"Ed"])
def test_a_file_is_verified_by_the_key_that_signed_it(algorithm: bytes) -> None:
    file = signed(algorithm=algorithm)
    assert signer_of(DATA, file, [OTHER, PUBLIC]) == PUBLIC
    assert Signature.parse(file).comment == "by hand"
    assert signer_of(DATA, file.replace(b"\n", b"\r\n"), [PUBLIC]) == PUBLIC


@pytest.mark.parametrize("file", BY_MINISIGN)
def test_signatures_of_the_program_minisign_are_verified(file: bytes) -> None:
    assert signer_of(DATA, file, [THEIRS]) == THEIRS


def test_what_is_signed_here_is_read_here_and_written_the_same() -> None:
    made = SecretKey.new()
    file = made.sign(DATA, "timestamp:1\tfile:a.wasm").to_bytes()
    assert signer_of(DATA, file, [made.public]) == made.public
    assert Signature.parse(file).to_bytes() == file
    assert PublicKey.parse(str(made.public)) == made.public
    legacy = Signature.parse(signed(algorithm=b"Ed"))
    assert Signature.parse(legacy.to_bytes()) == legacy


def test_each_changed_byte_of_a_file_or_a_signature_is_found() -> None:  # law 9
    file = signed()
    for at in range(len(DATA)):
        with pytest.raises(BadBytes, match="line 2 does not sign this file"):
            signer_of(
                DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :], file, [PUBLIC]
            )
    lines = file.split(b"\n")
    for number in (1, 3):
        raw = b64decode(lines[number])
        for at in range(len(raw)):
            bad = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
            changed = b"\n".join([*lines[:number], line(bad), *lines[number + 1 :]])
            with pytest.raises(BadBytes):
                signer_of(DATA, changed, [PUBLIC])


def test_the_trusted_comment_is_signed_and_the_other_one_is_not() -> None:
    changed = signed().replace(b"by hand", b"by paws")
    with pytest.raises(BadBytes, match="line 4 does not sign the trusted comment"):
        signer_of(DATA, changed, [PUBLIC])
    assert signer_of(DATA, signed().replace(b"whatever", b""), [PUBLIC]) == PUBLIC


def test_of_several_keys_with_one_id_the_one_that_signed_is_found() -> None:
    twin = PublicKey(ID, OTHER.raw)
    assert signer_of(DATA, signed(), [twin, PUBLIC]) == PUBLIC
    with pytest.raises(BadBytes, match="does not sign this file"):
        signer_of(DATA, signed(), [twin])
    with pytest.raises(BadBytes, match="is of another key"):
        signer_of(DATA, signed(), [OTHER])


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (b"", "has 0 lines, of 4"),
        (b"x" * 16_385, "more than 16,384 bytes"),
        (b"untrusted comment: a\nRW\xff\n", "line 2 is not UTF-8"),
        (signed() + b"\nmore", "has 5 lines"),
        (signed().replace(b"untrusted c", b"c"), "line 1 does not begin"),
        (signed().replace(b"\ntrusted c", b"\nc"), "line 3 does not begin"),
        (signed(comment="\x1b[2J"), "line 3 has control characters"),
        (signed(comment="a\u2028b"), "has 5 lines"),
        (signed().replace(b"UV", b"U!", 1) + b"=", "is not Base64"),
        (signed(algorithm=b"XX"), "line 2 names an unknown algorithm"),
        (signed().rsplit(b"\n", 1)[0] + b"\nAAAA", "line 4 has 3 bytes, of 64"),
        (signed().replace(line(b"ED", ID)[:8], b"", 1), "line 2 has 68 bytes, of 74"),
    ],
)
def test_a_hostile_signature_file_is_refused_by_its_line(  # law 9
    file: bytes, problem: str
) -> None:
    with pytest.raises(BadBytes, match=problem) as caught:
        signer_of(DATA, file, [PUBLIC])
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "RW",
        "RWQ\u2028",
        str(PUBLIC) + "\n" + str(PUBLIC),
        line(b"ED", ID, RAW).decode(),
        "é" * 56,
    ],
)
def test_a_text_that_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(BadBytes):
        PublicKey.parse(text)


def test_a_pin_that_demands_nothing_is_shown_as_none() -> None:
    assert Pin().to_document() is None
    pin = Pin(sha256=("ab",), signers=(PUBLIC,))
    assert pin.to_document() == {"sha256": ["ab"], "signers": [str(PUBLIC)]}


# -- secret keys ---------------------------------------------------------------


def secret(
    path: Path, *, typed: str = "", ops: int = 1 << 15, memory: int = 1 << 24
) -> Path:
    """Write a secret key as the format is described."""
    body = ID + SEED + RAW
    body += hashlib.blake2b(b"Ed" + body, digest_size=32).digest()
    salt = bytes(range(100, 132))
    if typed:
        # libsodium's parameters for few operations: N = ops / 32, r = 8, p = 1
        stream = hashlib.scrypt(
            typed.encode(), salt=salt, n=ops // 32, r=8, p=1, dklen=104
        )
        body = bytes(a ^ b for a, b in zip(body, stream, strict=True))
    kdf = b"Sc" if typed else b"\0\0"
    costs = ops.to_bytes(8, "little") + memory.to_bytes(8, "little")
    head = b"Ed" + kdf + b"B2" + salt + costs
    path.write_bytes(b"untrusted comment: mine\n" + line(head, body) + b"\n")
    path.chmod(0o600)
    return path


def test_a_secret_key_without_a_password_is_read(tmp_path: Path) -> None:
    def asked() -> str:
        raise AssertionError("no password is needed")

    assert SecretKey.read(secret(tmp_path / "a"), asked).public == PUBLIC
    made = SecretKey.new()
    (tmp_path / "b").write_bytes(made.to_bytes())
    (tmp_path / "b").chmod(0o600)
    assert SecretKey.read(tmp_path / "b", asked) == made
    assert made.seed.hex() not in repr(made)
    assert repr(made.seed) not in repr(made)


def test_a_key_of_minisign_without_a_password_has_no_checksum(tmp_path: Path) -> None:
    path = secret(tmp_path / "a")
    comment, text = path.read_bytes().split()[:3], path.read_bytes().split()[-1]
    raw = b64decode(text)[:-32] + bytes(32)
    path.write_bytes(b" ".join(comment) + b"\n" + line(raw))
    assert SecretKey.read(path, str).public == PUBLIC


def test_an_encrypted_key_is_read_with_its_password(tmp_path: Path) -> None:
    path = secret(tmp_path / "a", typed="open sesame")
    assert SecretKey.read(path, lambda: "open sesame").public == PUBLIC
    with pytest.raises(UsageError, match="the password is wrong") as caught:
        SecretKey.read(path, lambda: "open says me")
    assert "says" not in str(caught.value)


def test_the_memory_of_a_key_bounds_its_parameters(tmp_path: Path) -> None:
    # libsodium with memory for N = 2^6 only: p makes up for it.
    salt = bytes(range(100, 132))
    stream = hashlib.scrypt(b"pw", salt=salt, n=64, r=8, p=16, dklen=104)
    body = ID + SEED + RAW
    body += hashlib.blake2b(b"Ed" + body, digest_size=32).digest()
    body = bytes(a ^ b for a, b in zip(body, stream, strict=True))
    costs = (1 << 15).to_bytes(8, "little") + (1 << 16).to_bytes(8, "little")
    path = secret(tmp_path / "a")
    path.write_bytes(
        b"untrusted comment: mine\n" + line(b"EdScB2", salt, costs, body) + b"\n"
    )
    assert SecretKey.read(path, lambda: "pw").public == PUBLIC


@pytest.mark.parametrize("costs", [{"ops": 1 << 26}, {"memory": 1 << 31}])
def test_a_key_cannot_take_all_memory(tmp_path: Path, costs: dict[str, int]) -> None:
    # law 9
    path = secret(tmp_path / "a")
    raw = bytearray(b64decode(path.read_bytes().split()[-1]))
    for key, value in costs.items():
        at = 38 if key == "ops" else 46
        raw[at : at + 8] = value.to_bytes(8, "little")
    raw[2:4] = b"Sc"
    path.write_bytes(b"untrusted comment: mine\n" + line(bytes(raw)))
    with pytest.raises(UsageError, match="more than 1 GiB of memory"):
        SecretKey.read(path, lambda: "pw")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"a\nb", b"a\n" + line(b"EdXXB2"), b"a\n" + line(bytes(158))],
)
def test_a_file_that_is_no_secret_key_is_refused(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="is not a secret key of minisign"):
        SecretKey.read(path, str)


def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:  # law 8
    path = secret(tmp_path / "a")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="others can read") as caught:
        SecretKey.read(path, str)
    assert caught.value.fix == f"chmod 600 {path}"
    with pytest.raises(UsageError, match="cannot read the key"):
        SecretKey.read(tmp_path / "none", str)
