"""
The certificate of a host, renewed while it serves, and those of its clients.

Connections that are open keep what they began with. New ones get what the files held
when they were last whole: a chain without its key, as between two writes of a renewal,
is not taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Self

from ...errors import UsageError
from ...lib.files import file_states

logger = logging.getLogger("caxton_host")

#: Seconds between two looks at the files, and for a renewal to write all of them.
_EVERY, _WHOLE = 1.0, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """
    The TLS certificate of a host.

    Attributes:
        chain: A PEM file: its certificate, and those above it.

        key: A PEM file: the key of that.

        client_ca: A PEM file of authorities, by one of which the certificate of each
            client has to be signed; ``None``: clients need none.
    """

    chain: str
    key: str | None = None
    client_ca: str | None = None

    @classmethod
    def of(cls, chain: str | None, key: str | None) -> Self | None:
        """
        Return the certificate that two options name, if they name one.

        Raises:
            UsageError: Only its key is there.
        """
        if key and not chain:
            raise UsageError(
                "--tls-key without a certificate: nothing would be encrypted",
                fix="add --tls-cert FILE",
            )
        return cls(chain=chain, key=key) if chain else None

    @property
    def files(self) -> tuple[str, ...]:
        """All of its files."""
        return tuple(filter(None, (self.chain, self.key, self.client_ca)))

    def load(self) -> ssl.SSLContext:
        """
        Read the files.

        Raises:
            UsageError: They cannot be used, or do not belong together.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.chain, self.key)
        except (OSError, ssl.SSLError) as exc:
            raise UsageError(
                f"the certificate {self.chain} cannot be used: {exc.strerror or exc}",
                fix="give a PEM file with --tls-cert, and its key with --tls-key",
            ) from None
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as exc:
                raise UsageError(
                    f"the authorities in {self.client_ca} cannot be used: "
                    f"{exc.strerror or exc}",
                    fix="have client_ca in [serve] name a PEM file of certificates",
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
            # A session that is resumed is not verified again, whatever was changed.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
        return context


class LiveCertificate:
    """
    The certificate that new connections get.

    Attributes:
        context: For the listener: has each handshake choose the newest.
    """

    def __init__(self, files: Certificate) -> None:
        self._files = files
        self._states = file_states(files.files)
        self._newest = files.load()
        self.context = files.load()
        self.context.sni_callback = self._choose

    def for_listener(self, *_: object) -> ssl.SSLContext:
        """Return the context of the listener, which asks with its own configuration."""
        return self.context

    def _choose(
        self, tls: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        tls.context = self._newest

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Take what is written to the files during the block."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if await asyncio.to_thread(file_states, self._files.files) != self._states:
                await asyncio.sleep(_WHOLE)
                self._states = file_states(self._files.files)
                self._renew()

    def _renew(self) -> None:
        try:
            self._newest = self._files.load()
        except UsageError as exc:
            logger.error(  # noqa: TRY400 -- without a traceback
                "the certificate stays as it was: %s. To fix: %s", exc, exc.fix
            )
        else:
            logger.info("the certificate %s is renewed", self._files.chain)
