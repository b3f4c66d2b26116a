"""WebAssembly modules, byte by byte, sound and unsound."""

from __future__ import annotations

HEADER = b"\0asm\1\0\0\0"
I32 = b"\x7f"
I64 = b"\x7e"
RETURNS_ZERO = b"\0\x41\0\x0b"


def leb(number: int) -> bytes:
    out = b""
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            return out + bytes([low])
        out += bytes([low | 0x80])


def vector(*items: bytes) -> bytes:
    return leb(len(items)) + b"".join(items)


def name(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return leb(len(raw)) + raw


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + leb(len(content)) + content


def function_type(parameters: bytes = b"", results: bytes = b"") -> bytes:
    return b"\x60" + leb(len(parameters)) + parameters + leb(len(results)) + results


def imported(module: str | bytes, field: str | bytes, kind: bytes) -> bytes:
    return name(module) + name(field) + kind


def module(  # noqa: PLR0913 -- one for each section
    *,
    types: tuple[bytes, ...] = (),
    imports: tuple[bytes, ...] = (),
    bodies: tuple[bytes, ...] = (RETURNS_ZERO,),
    tables: tuple[bytes, ...] = (),
    memories: tuple[bytes, ...] = (b"\0\1",),
    exports: tuple[bytes, ...] | None = None,
    extra: bytes = b"",
) -> bytes:
    """Build an agent; type 0 is ``() -> i32``, and every body is of it."""
    if exports is None:
        entry = sum(1 for one in imports if one[-2:-1] == b"\0")
        exports = (name("memory") + b"\2\0", name("run") + b"\0" + leb(entry))
    return (
        HEADER
        + section(1, vector(function_type(b"", I32), *types))
        + section(2, vector(*imports))
        + section(3, vector(*[b"\0"] * len(bodies)))
        + section(4, vector(*tables))
        + section(5, vector(*memories))
        + section(7, vector(*exports))
        + extra
        + section(10, vector(*[leb(len(body)) + body for body in bodies]))
    )


def locals_bomb(count: int, size: int) -> bytes:
    """Build one function whose register allocation grows with the product of both."""
    code, at = bytearray(vector(leb(count) + I32)), 0
    while len(code) < size:
        code += b"\x20" + leb(at % count) + b"\x04\x40\x41\1\x21" + leb(at * 7 % count)
        code += b"\x0b"
        at += 1
    return module(bodies=(bytes(code) + b"\x41\0\x0b",))
