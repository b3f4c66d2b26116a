"""Authorities for tests, and the certificates that they give."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """
    Signs certificates.

    Attributes:
        file: Its own, in PEM: what has to be trusted.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        own = _built(self._name, self._name, self._key.public_key(), is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def give(self, name: str, *others: str, file: str = "") -> tuple[Path, Path]:
        """Return the files of a certificate with these names, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _built(_named(name), self._name, key.public_key())
        names = [*map(_general, (name, *others))]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        chain = self._folder / f"{file or name}.crt"
        chain.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        private = chain.with_suffix(".key")
        private.touch(mode=0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return chain, private


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _built(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    is_authority: bool = False,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251 -- of the certificate
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=None), critical=True
        )
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
