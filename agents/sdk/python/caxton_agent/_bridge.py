"""The host's functions, and who stands behind them: a run, a test, or nobody."""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Host", "Level", "NoHostError", "decode", "encode", "host", "use"]

Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class NoHostError(RuntimeError):
    """A function of the host was called where there is none."""


class Host(Protocol):
    """What an agent can ask for, as it crosses: see the WIT package caxton:agent."""

    def mcp_call(self, name: str, params: str) -> str: ...
    def mcp_call_many(self, batch: str) -> str: ...
    def tools(self) -> str: ...
    def context(self, key: str) -> str | None: ...
    def input(self) -> str: ...
    def output(self, value: str) -> None: ...
    def now(self) -> int: ...
    def random(self) -> int: ...
    def log(self, level: Level, text: str) -> None: ...


_host: Host | None = None
_nobody = (
    "there is no host here: this works in an agent that `caxton run` runs, and in a "
    "test with caxton_agent.testing.FakeHost"
)


def host() -> Host:
    """
    Return who answers.

    Raises:
        NoHostError: Nobody does.
    """
    if _host is None:
        raise NoHostError(_nobody)
    return _host


def use(new: Host | None, *, nobody: str | None = None) -> Host | None:
    """
    Have *new* answer from now on, and return who did before.

    Args:
        new: None for nobody.

        nobody: What is said when nobody answers.
    """
    global _host, _nobody  # noqa: PLW0603 -- there is one host, as there is one run
    before, _host = _host, new
    _nobody = nobody or _nobody
    return before


def encode(value: object, what: str) -> str:
    """
    Return *value* as JSON text.

    Raises:
        TypeError: It holds something that JSON cannot say.

        ValueError: It holds a NaN, an infinity, half a surrogate pair, or itself.
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
