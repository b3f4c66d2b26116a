"""Agents that make random calls and output every answer, with random answers."""

from __future__ import annotations

import random  # noqa: TID251 -- drawn from the seed that is printed
from typing import Any

from caxton_host.core.calls import JSON, Completed
from caxton_host.errors import ToolError
from tests.integration.evidence.guests import Telling

_NAMES = (
    *("mcp__demo__look", "mcp__demo__wrong", "mcp__demo__late", "mcp__office__a_b"),
    *("none", "b d"),
)
_FLOATS = (0.0, -0.0, 1.0, 1e16, 0.1, 2.0**53, 5e-324)
_KEYS = ("a", "10", "9", "__proto__", "é", "b")


class Told:
    """An agent, what it is given, and its tools, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.by = by = random.Random(seed)  # noqa: S311 -- to be repeated
        self.given = {
            "input": self._value(),
            "context": {"user": self._value(), "10": self._value()},
        }
        content: JSON = {"content": [], "structuredContent": self._value()}
        self.tools: dict[str, Any] = {
            "look": Completed(message="ü", data=content),
            "wrong": Completed(is_error=True, message="no", data=self._value()),
            "late": ToolError("timeout", "unknown", "no answer"),
            "a_b": self._value(),
        }
        it = Telling()
        for _ in range(by.randrange(1, 12)):
            self._step(it)
        self.module = it.module(then=f"(i32.const {3 * (by.random() < 0.1)})")

    def _step(self, it: Telling) -> None:
        by, kind = self.by, self.by.randrange(6)
        if kind == 0:
            it.random()
        elif kind == 1:
            it.log(by.randrange(5), by.randbytes(by.randrange(60)))
        elif kind == 2:
            it.batch([self._item() for _ in range(by.randrange(5))])
        elif kind == 3:
            it.tell(by.choice(("tools", "input", "program")))
        else:
            params: JSON = {"a": self._value()}
            it.call(by.choice(_NAMES), params if by.random() < 0.9 else self._value())

    def _item(self) -> JSON:
        if self.by.random() < 0.1:
            return self._value()
        return [self.by.choice(_NAMES), {"a": self._value()}]

    def _value(self, depth: int = 0) -> JSON:
        by, kind = self.by, self.by.randrange(9 if depth < 3 else 6)
        if kind < 3:
            text = "x" * by.choice((0, 31, 32, 300)) + "ü" * by.randrange(40)
            return by.choice((None, True, False, text))
        if kind == 3:
            return by.randrange(-(2**63), 2**64) >> by.randrange(64)
        if kind < 6:
            return by.choice((*_FLOATS, by.uniform(-9, 9)))
        size = by.choice((0, 1, 3, 16))
        if kind == 6:
            return [self._value(depth + 1) for _ in range(size)]
        return {by.choice(_KEYS): self._value(depth + 1) for _ in range(size)}
