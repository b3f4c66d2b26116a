"""
The messages between host and servers, as they were, for whoever looks for a fault.

Messages are told whole, before anything judges them, so that a secret in one is
found in whatever form it has. Of HTTP only the bodies and the status are told: never
a header, never an address.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

from ...core.text.redact import Redactor, plain
from ...core.tools.servers import ServerConfig
from ...ports import Clock
from .wire import Tap

logger = logging.getLogger(__name__)

#: The name of the file that means standard error.
STDERR = "-"

_LONGEST = 64 * 1024


class WireTap(Tap):
    """
    Writes a line for each message of one server.

    Args:
        server: What the operator calls it.

        path: The file to append to, or `STDERR`.

        redact: Takes the secrets out of a message.

        clock: For the time of a line.
    """

    def __init__(self, server: str, path: str, redact: Redactor, clock: Clock) -> None:
        self._server = server
        self._path = path
        self._redact = redact
        self._clock = clock
        self._failed = False

    def sent(self, data: bytes) -> None:
        """Tell of a message to the server."""
        self._tell("POST", data)

    def answered(self, data: bytes) -> None:
        """Tell of what came as an answer."""
        self._tell("RESP", data)

    def heard(self, data: bytes) -> None:
        """Tell of what came: an answer, or something nobody asked for."""
        self._tell("RESP" if _answers(data) else "RECV", data)

    def _tell(self, way: str, data: bytes) -> None:
        said = data.decode(errors="replace").strip()
        then = datetime.fromtimestamp(self._clock.now() / 1e6, UTC)
        stamp = f"{then:%Y-%m-%dT%H:%M:%S}.{then.microsecond // 1000:03}Z"
        text = plain(said, self._redact, _LONGEST)
        self._write(f"{stamp} MCP {way} {self._server} {text}\n")

    def _write(self, line: str) -> None:
        if self._path == STDERR:
            sys.stderr.write(line)
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags, 0o600)
            try:
                # In one piece, so that the lines of several servers do not mix.
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError as exc:
            # A file that cannot be written costs no call anything.
            if not self._failed:
                said = (
                    "MCP: cannot write %s: %s. To fix: have its disk take writes, and "
                )
                said += "free space on it"
                logger.warning(said, self._path, exc.strerror)
            self._failed = True


def tap_of(config: ServerConfig, redact: Redactor, clock: Clock) -> Tap:
    """Return what listens to the messages of a server, if anything is to."""
    if config.wire_log is None:
        return Tap()
    return WireTap(config.name, config.wire_log, redact, clock)


def _answers(data: bytes) -> bool:
    try:
        message: Any = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "method" not in message and "id" in message
