"""Clients that are agents, and how a session describes its client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from .calls import JSON
from .text.toml_text import key_text

#: `RunStarted.abi` of a session: nothing is executed, and a client makes the calls.
ABI = "client/1"

#: Why a session ended that its client, or time, has ended.
CLOSED, IDLE, FULL, RESET = "closed", "idle", "full", "reset"
#: Why a stream of a session ended whose client was to see other tools.
CHANGED = "changed"

_LONGEST = 128


def table_of(name: str, *, session: bool = False) -> str:
    """
    Return the table of a configuration that describes an agent, or a session.

    >>> table_of("weather"), table_of("dev", session=True)
    ('agents.weather', 'sessions.dev')
    """
    return f"{'sessions' if session else 'agents'}.{key_text(name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """
    What a client says of itself. Nothing of it is checked.

    Attributes:
        name: Its name.

        version: Its version.

        protocol: The revision of the protocol that it speaks.

    >>> Client(name="dev tools", version="2.1").module
    b'{"$type": "caxton.client/v1", "name": "dev tools", "version": "2.1"}'
    """

    name: str = ""
    version: str = ""
    protocol: str = ""

    @classmethod
    def said(cls, name: str, version: str, protocol: str) -> Self:
        """Return a client whose texts are bounded and can be shown."""
        return cls(
            name=_bounded(name), version=_bounded(version), protocol=_bounded(protocol)
        )

    @property
    def module(self) -> bytes:
        """What stands for the module of an agent: it tells clients apart."""
        return json.dumps(
            {"$type": "caxton.client/v1", "name": self.name, "version": self.version}
        ).encode()

    @property
    def input(self) -> dict[str, JSON]:
        """What stands for the input of a run."""
        return {
            "client": {"name": self.name, "version": self.version},
            "protocol": self.protocol,
        }


def _bounded(text: str) -> str:
    return "".join(char for char in text[:_LONGEST] if char.isprintable())
