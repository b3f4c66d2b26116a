"""
Keys and signatures of minisign: made, read and verified.

    untrusted comment: anything
    Base64(Ed || KDF || B2 || salt || limits || key id || secret || checksum)

The secret is the seed with the public key. With the KDF ``Sc``, key id, secret and
checksum are XORed with what scrypt makes of a password.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ..core.pins import ID, KEY, LARGEST, UNTRUSTED, PublicKey, Signature
from ..errors import BadBytes, UsageError
from .signing import private_key, verifies

_PLAIN, _SCRYPT, _BLAKE2 = b"\0\0", b"Sc", b"B2"
_SALT, _LIMIT, _SEED, _SECRET, _SUM = 32, 8, 32, 64, 32
_SIZE = 6 + _SALT + 2 * _LIMIT + ID + _SECRET + _SUM
#: Most that deriving the key of a secret key may cost: what minisign asks for.
_MOST_OPS, _MOST_MEMORY = 1 << 25, 1 << 30
_LEAST_OPS, _BLOCK = 1 << 15, 8


def signer_of(data: bytes, file: bytes, signers: Sequence[PublicKey]) -> PublicKey:
    """
    Return which of *signers* signed *data*, by the content of a signature file.

    Raises:
        BadBytes: None of them did, or *file* is no signature.
    """
    signature = Signature.parse(file)
    named = [key for key in signers if key.id == signature.key_id]
    if not named:
        raise BadBytes("is of another key")
    message = signature.message(data)
    for key in named:
        if verifies(key.raw, signature.raw, message):
            if verifies(key.raw, signature.whole, signature.vouched):
                return key
            raise BadBytes("line 4 does not sign the trusted comment in line 3")
    raise BadBytes("line 2 does not sign this file")


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key that signs."""

    id: bytes
    seed: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Return a new key."""
        return cls(secrets.token_bytes(ID), secrets.token_bytes(_SEED))

    @classmethod
    def read(cls, path: Path, password: Callable[[], str]) -> Self:
        """
        Return the key in a file.

        Args:
            path: The file, which only its owner may read.

            password: Called if it is encrypted.

        Raises:
            UsageError: It cannot be read, others may read it, it is something else, or
                the password is wrong.
        """
        try:
            with path.open("rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise UsageError(
                        f"others can read the key {path}", fix=f"chmod 600 {path}"
                    )
                return cls._parse(file.read(LARGEST), password)
        except OSError as exc:
            raise UsageError(
                f"cannot read the key {path}: {exc.strerror}",
                fix=f"name a secret key, or make one: caxton agent key {path}",
            ) from None
        except (BadBytes, ValueError) as exc:
            raise UsageError(
                f"{path} is not a secret key of minisign: {exc}",
                fix=f"name another file, or make a key: caxton agent key {path}.new",
            ) from None

    @classmethod
    def _parse(cls, data: bytes, password: Callable[[], str]) -> Self:
        lines = data.decode().splitlines()
        if len(lines) != 2:  # noqa: PLR2004 -- the comment and the key
            raise BadBytes(f"it has {len(lines)} lines, not two")
        raw = b64decode(lines[1], validate=True)
        kdf = raw[2:4]
        known = raw[:2] == KEY and raw[4:6] == _BLAKE2 and kdf in {_PLAIN, _SCRYPT}
        if len(raw) != _SIZE or not known:
            raise BadBytes("line 2 is of an unknown form")
        head = 6 + _SALT + 2 * _LIMIT
        body = raw[head:]
        if kdf == _SCRYPT:
            ops, memory = (
                int.from_bytes(raw[at : at + _LIMIT], "little")
                for at in (6 + _SALT, 6 + _SALT + _LIMIT)
            )
            stream = _derived(password(), raw[6 : 6 + _SALT], ops, memory)
            body = bytes(a ^ b for a, b in zip(body, stream, strict=True))
        named, seed = body[:ID], body[ID : ID + _SEED]
        found = cls(named, seed)
        whole = found._body()
        # Without a password, minisign leaves the checksum zero.
        allowed = [whole] if kdf == _SCRYPT else [whole, whole[:-_SUM] + bytes(_SUM)]
        if body not in allowed:
            raise BadBytes("the password is wrong, or the file is damaged")
        return found

    def _body(self) -> bytes:
        whole = self.id + self.seed + self.public.raw
        return whole + hashlib.blake2b(KEY + whole, digest_size=_SUM).digest()

    def to_bytes(self) -> bytes:
        """Return the file, which is not encrypted."""
        free = bytes(_SALT + 2 * _LIMIT)
        text = b64encode(KEY + _PLAIN + _BLAKE2 + free + self._body()).decode()
        return f"{UNTRUSTED}secret key of caxton agent key\n{text}\n".encode()

    @property
    def public(self) -> PublicKey:
        """What others verify with."""
        return PublicKey(
            self.id, private_key(self.seed).public_key().public_bytes_raw()
        )

    def sign(self, data: bytes, comment: str) -> Signature:
        """Return the signature of a file, with a trusted comment."""
        key = private_key(self.seed)
        raw = key.sign(hashlib.blake2b(data).digest())
        return Signature(
            hashed=True,
            key_id=self.id,
            raw=raw,
            comment=comment,
            whole=key.sign(raw + comment.encode()),
        )


def _derived(password: str, salt: bytes, ops: int, memory: int) -> bytes:
    """Return the key stream, with scrypt's parameters as libsodium picks them."""
    if ops > _MOST_OPS or memory > _MOST_MEMORY:
        raise BadBytes("its password takes more than 1 GiB of memory to check")
    ops = max(ops, _LEAST_OPS)
    by_ops = ops < memory // 32
    most = ops // (4 * _BLOCK) if by_ops else memory // (128 * _BLOCK)
    log_n = max(1, most.bit_length() - 1)
    parallel = 1 if by_ops else max(1, (ops // 4 >> log_n) // _BLOCK)
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=1 << log_n,
        r=_BLOCK,
        p=parallel,
        maxmem=_MOST_MEMORY + (1 << 26),
        dklen=ID + _SECRET + _SUM,
    )
