"""Components in WebAssembly text: a whole agent of the WIT world, by its body."""

from __future__ import annotations

import functools

import wasmtime

from caxton_host.sandbox.interface import INTERFACE

#: Each host function: its type in a component, and its type in a core module.
FUNCTIONS = {
    "mcp-call": (
        '(param "name" string) (param "params" string) (result string)',
        "(param i32 i32 i32 i32 i32)",
    ),
    "mcp-call-many": ('(param "batch" string) (result string)', "(param i32 i32 i32)"),
    "tools": ("(result string)", "(param i32)"),
    "context": (
        '(param "key" string) (result (option string))',
        "(param i32 i32 i32)",
    ),
    "input": ("(result string)", "(param i32)"),
    "output": ('(param "value" string)', "(param i32 i32)"),
    "now": ("(result s64)", "(result i64)"),
    "random": ("(result u64)", "(result i64)"),
    "log": ('(param "level" $level) (param "text" string)', "(param i32 i32 i32)"),
    "program": ("(result string)", "(param i32)"),
}
LEVELS = '"debug" "info" "warning" "error"'
ENTRY = "(result (result (error string)))"

#: What `run` returns: the address of a `result`. Eight zeros are a good one.
GOOD = "(i32.const 0)"
#: Where text may go that a test writes itself, and where a reply is told of.
TEXT, REPLY = 64, 16

#: Sets the text of the last reply as the run's output.
SHOW = "(call $output (i32.load (i32.const 16)) (i32.load (i32.const 20)))"
LOOP = "(loop $for_ever (br $for_ever)) (unreachable)"


def text(at: int, value: str) -> str:
    """Return a data segment with *value*."""
    encoded = "".join(f"\\{byte:02x}" for byte in value.encode())
    return f'(data (i32.const {at}) "{encoded}")'


def place(at: int, value: str) -> str:
    """Return address and length of *value*, as arguments."""
    return f"(i32.const {at}) (i32.const {len(value.encode())})"


def call(name: str, params: str) -> tuple[str, str]:
    """Return the data for one tool call, and the call."""
    at = TEXT + len(name.encode())
    data = text(TEXT, name) + text(at, params)
    where = f"{place(TEXT, name)} {place(at, params)} (i32.const {REPLY})"
    return data, f"(call $mcp-call {where})"


def component(  # noqa: PLR0913 -- by name
    run: str,
    *,
    before: str = "",
    memory: str = "1",
    entry: str = ENTRY,
    interface: str = INTERFACE,
    imports: dict[str, str] | None = None,
    around: str = "",
    result: str = "i32",
    levels: str = LEVELS,
) -> bytes:
    """
    Return a component.

    Args:
        run: The body of its entry point, up to what it returns.

        before: What else its module declares.

        memory: The size of its memory.

        entry: The type of its entry point.

        interface: The name of what it imports.

        imports: Types of functions that are other than they should be, or new.

        around: What else the component declares.

        result: What the entry point returns to that, or nothing.

        levels: The cases of a log line's level.
    """
    return _assembled(
        _text(
            run, before, memory, entry, interface, imports or {}, around, result, levels
        )
    )


@functools.cache
def _assembled(source: str) -> bytes:
    return bytes(wasmtime.wat2wasm(source))


def _text(  # noqa: PLR0913, PLR0917 -- as above
    run: str,
    before: str,
    memory: str,
    entry: str,
    interface: str,
    imports: dict[str, str],
    around: str,
    result: str,
    levels: str,
) -> str:
    types = {name: one for name, (one, _) in FUNCTIONS.items()} | imports
    declared = "\n".join(
        f'(export "{name}" (func {one}))' for name, one in types.items()
    )
    lowered = "\n".join(
        f'(core func ${name} (canon lower (func $host "{name}")'
        " (memory $memory) (realloc (core func $realloc))))"
        for name in FUNCTIONS
        if name not in imports
    )
    given = "\n".join(
        f'(export "{name}" (func ${name}))' for name in FUNCTIONS if name not in imports
    )
    taken = "\n".join(
        f'(import "caxton" "{name}" (func ${name} {core}))'
        for name, (_, core) in FUNCTIONS.items()
        if name not in imports
    )
    returns, good = (f"(result {result})", GOOD) if result else ("", "")
    return f"""(component
      (import "{interface}" (instance $host
        (type $names (enum {levels}))
        (export "level" (type $level (eq $names)))
        {declared}))
      (core module $libc
        (memory (export "memory") {memory})
        (global $next (mut i32) (i32.const 4096))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
          (local $at i32)
          (local.set $at (global.get $next))
          (global.set $next (i32.add (local.get $at) (local.get 3)))
          (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
            (then (if (i32.lt_s
              (memory.grow (i32.add (i32.shr_u (local.get 3) (i32.const 16))
                (i32.const 1)))
              (i32.const 0)) (then (unreachable)))))
          (local.get $at)))
      (core instance $libc (instantiate $libc))
      (alias core export $libc "memory" (core memory $memory))
      (alias core export $libc "realloc" (core func $realloc))
      {lowered}
      {around}
      (core module $agent
        {taken}
        (import "libc" "memory" (memory 1))
        {before}
        (func (export "run") {returns} (local $i i32) {run} {good}))
      (core instance $agent (instantiate $agent
        (with "caxton" (instance {given}))
        (with "libc" (instance $libc))))
      (func $run {entry}
        (canon lift (core func $agent "run") (memory $memory)))
      (export "run" (func $run)))"""
