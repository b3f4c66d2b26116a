"""What somebody asks a host that serves to run."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.calls import JSON
from ..lib import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """
    What somebody asks to be run.

    Attributes:
        agent: Its name.

        input: What it is given.

        variables: Of the run; see ``[context]``.

        key: Made up by who asks: asked again with the same key, it is the same run.

        trigger: What began it: ``api`` or ``mcp``.

        trace: The W3C trace context of who asks; see `RunRequest`.

        ahead: Whoever asks waits for the end, so that nobody waits until the start
            is durable.
    """

    agent: str
    input: JSON = None
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    key: str | None = None
    trigger: str = "api"
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    ahead: bool = False

    @property
    def slot(self) -> str:
        """What is kept of its key, which may say something of whoever made it up."""
        return codec.sha256(self._key)

    @property
    def digest(self) -> str:
        """
        What is the same if the same is asked again with the same key.

        The key is not kept, so nobody can find out by trying what was asked.
        """
        asked: dict[str, JSON] = {
            "agent": self.agent,
            "input": self.input,
            "vars": {**self.variables},
        }
        return hmac.digest(self._key, codec.canonical(asked), "sha256").hex()

    @property
    def _key(self) -> bytes:
        return (self.key or "").encode()
