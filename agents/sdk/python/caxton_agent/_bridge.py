"""The host's functions, and the object that implements them: a run or a test."""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Host", "Level", "NoHostError", "decode", "encode", "host", "use"]

Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class NoHostError(RuntimeError):
    """A host function was called outside a run and outside a test."""


class Host(Protocol):
    """The host's functions, with JSON text as values: see the WIT caxton:agent."""

    def mcp_call(self, name: str, params: str) -> str: ...
    def mcp_call_many(self, batch: str) -> str: ...
    def tools(self) -> str: ...
    def context(self, key: str) -> str | None: ...
    def input(self) -> str: ...
    def output(self, value: str) -> None: ...
    def now(self) -> int: ...
    def random(self) -> int: ...
    def log(self, level: Level, text: str) -> None: ...
    def program(self) -> str: ...


_host: Host | None = None
_nobody = (
    "no host is available: call this in an agent that `caxton run` runs, or in a test "
    "with caxton_agent.testing.FakeHost"
)


def host() -> Host:
    """
    Return the current host.

    Raises:
        NoHostError: No host is set.
    """
    if _host is None:
        raise NoHostError(_nobody)
    return _host


def use(new: Host | None, *, nobody: str | None = None) -> Host | None:
    """
    Set the current host, and return the previous one.

    Args:
        new: None for no host.

        nobody: The message of `NoHostError` while no host is set.
    """
    global _host, _nobody  # noqa: PLW0603 -- one host per process
    before, _host = _host, new
    _nobody = nobody or _nobody
    return before


def encode(value: object, what: str) -> str:
    """
    Return *value* as JSON text.

    Raises:
        TypeError: It holds a value that JSON does not have.

        ValueError: It holds a NaN, an infinity, a lone surrogate, or itself.
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        text.encode()
    except TypeError as exc:
        raise TypeError(f"{what}: {exc}") from None
    except ValueError as exc:
        raise ValueError(f"{what}: {exc}") from None
    return text


def decode(text: str) -> Any:  # noqa: ANN401 -- whatever JSON holds
    """Return the value of JSON *text*."""
    return json.loads(text)
