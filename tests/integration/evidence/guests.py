"""Agents whose output is everything that they were told."""

from __future__ import annotations

from collections.abc import Sequence

from caxton_host.core.calls import JSON
from caxton_host.lib import codec
from tests.integration.sandbox.support import wasm

#: Where the output begins, behind what the agent sends.
_OUTPUT = 1 << 20


class Telling:
    """Instructions that append what a host function tells to the output."""

    def __init__(self) -> None:
        self.data, self.code, self.items, self._end = "", "", 0, 4096

    def put(self, value: bytes) -> str:
        """Return a place in memory that holds *value*, as two arguments."""
        at, self._end = self._end, self._end + len(value)
        text = "".join(f"\\{byte:02x}" for byte in value)
        self.data += f'(data (i32.const {at}) "{text}")\n'
        return f"(i32.const {at}) (i32.const {len(value)})"

    def tell(self, function: str, *given: str) -> None:
        """Append the reply of a function."""
        self.items += 1
        self.code += f"""(local.set $i (i32.add (local.get $i) (i32.wrap_i64
          (call ${function} {" ".join(given)} (local.get $i) (i32.const 1000000)))))
        """

    def number(self, given: str) -> None:
        """Append an i64."""
        self.items += 1
        self.code += f"""(i32.store8 (local.get $i) (i32.const 0xcf))
          (i64.store (i32.add (local.get $i) (i32.const 1)) {given})
          (local.set $i (i32.add (local.get $i) (i32.const 9)))
        """

    def random(self) -> None:
        """Append eight random bytes."""
        self.code += "(call $random (i32.const 0) (i32.const 8))"
        self.number("(i64.load (i32.const 0))")

    def call(self, name: str, params: JSON) -> None:
        """Append the reply of a tool, and the time after it."""
        self.tell("mcp_call", self.put(name.encode()), self.put(codec.encode(params)))
        self.number("(call $now)")

    def batch(self, items: Sequence[JSON]) -> None:
        """Append the replies of several tools."""
        self.tell("mcp_call_many", self.put(codec.encode([*items])))

    def log(self, level: int, text: bytes) -> None:
        self.code += f"(call $log (i32.const {level}) {self.put(text)})"

    def module(self, before: str = "", then: str = "(i32.const 0)") -> bytes:
        """Return the agent."""
        head = codec.encode([None] * self.items)[: -self.items or None]
        first = "".join(f"\\{byte:02x}" for byte in head)
        code = f"""(local.set $i (i32.const {_OUTPUT + len(head)})) {self.code}
          (call $output (i32.const {_OUTPUT})
            (i32.sub (local.get $i) (i32.const {_OUTPUT}))) {then}"""
        data = f'{self.data}(data (i32.const {_OUTPUT}) "{first}"){before}'
        return wasm(code, before=data, memory="64")
