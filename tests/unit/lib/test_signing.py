"""Keys are private, made once, and replaced without forgetting what they signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from caxton_host.core.log.checkpoint import Checkpoint
from caxton_host.errors import ConfigError
from caxton_host.lib.signing import (
    Keyring,
    judge,
    jwt_algorithm,
    opened,
    sealed,
    secret,
    verifies,
)

CHECKPOINT = Checkpoint(origin="log", size=3, root=bytes(32))


def test_a_key_is_made_on_first_use_and_for_its_owner_alone(tmp_path: Path) -> None:
    keys = Keyring(tmp_path / "state")
    assert keys.known() == ()
    assert not (tmp_path / "state").exists()
    key = keys.public_key()
    assert keys.public_key() == key
    assert keys.known() == (key,)
    file = tmp_path / "state" / "signing.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["signing.key"]
    assert judge(keys.sign(CHECKPOINT), [key]) == "trusted"


def test_a_key_that_another_host_made_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "signing.key"
    path.write_bytes(b"k" * 32)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert secret(path) == b"k" * 32
    assert [one.name for one in tmp_path.iterdir()] == ["signing.key"]


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "signing.key").write_bytes(b"short")
    (tmp_path / "signing.former").write_text("no key")
    with pytest.raises(ConfigError, match=r"signing\.key"):
        Keyring(tmp_path).public_key()
    with pytest.raises(ConfigError, match=r"signing\.former"):
        Keyring(tmp_path).former()


def test_a_new_key_is_vouched_for_by_the_old_one(tmp_path: Path) -> None:
    keys = Keyring(tmp_path)
    seen = [keys.public_key()]
    for _ in range(2):
        with keys.rotating() as rotation:
            note = rotation.sign(CHECKPOINT)
            assert rotation.former == seen[-1] == keys.public_key()
        assert keys.public_key() == rotation.public_key()
        assert judge(note, [seen[-1]]) == judge(note, [keys.public_key()]) == "trusted"
        seen.append(keys.public_key())
    assert keys.known() == tuple(reversed(seen))
    assert len(set(seen)) == 3
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"signing.key": 0o600, "signing.former": 0o600}


def test_a_rotation_that_fails_changes_nothing(tmp_path: Path) -> None:
    keys = Keyring(tmp_path)
    key = keys.public_key()
    with pytest.raises(OSError, match="full"), keys.rotating():
        raise OSError("full")
    assert keys.known() == (key,)


def test_what_is_no_key_or_no_signature_verifies_nothing(tmp_path: Path) -> None:
    note = Keyring(tmp_path).sign(CHECKPOINT)
    key, (signature,) = Keyring(tmp_path).public_key(), note.signatures
    assert verifies(key, signature.raw, note.signed)
    assert not verifies(key, signature.raw[:-1], note.signed)
    assert not verifies(key[:-1], signature.raw, note.signed)
    assert not verifies(key, signature.raw, note.signed + b" ")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    with Keyring(tmp_path).rotating() as rotation:
        assert rotation.old.hex() not in repr(rotation)
        assert repr(rotation.new) not in repr(rotation)


def pem(key: Any, *, locked: bool = False) -> str:  # noqa: ANN401 -- of any kind
    made = serialization
    lock = made.BestAvailableEncryption(b"x") if locked else made.NoEncryption()
    form = made.Encoding.PEM, made.PrivateFormat.PKCS8
    return str(key.private_bytes(*form, lock).decode())


def test_a_private_key_says_how_it_signs_and_weak_or_locked_ones_do_not() -> None:
    edwards = ed25519.Ed25519PrivateKey.generate()
    assert jwt_algorithm(pem(edwards)) == "EdDSA"
    assert jwt_algorithm(pem(ec.generate_private_key(ec.SECP256R1()))) == "ES256"
    assert jwt_algorithm(pem(rsa.generate_private_key(65537, 2048))) == "RS256"
    for text in (
        "",
        "no key",
        pem(edwards, locked=True),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(rsa.generate_private_key(65537, 1024)),  # noqa: S505 -- refused
    ):
        assert jwt_algorithm(text) is None


def test_what_is_sealed_for_one_use_is_nothing_to_another() -> None:
    key = b"k" * 32
    box = sealed(key, b"said", b"visit")

    assert opened(key, box, b"visit") == b"said"
    assert opened(key, box, b"sign-in") is None
    assert opened(b"x" * 32, box, b"visit") is None
    assert opened(key, b"", b"visit") is None
