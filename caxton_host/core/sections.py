"""
Custom sections of modules: what a module says of itself, beside its code.

Core modules and components consist of sections with the same headers, so one reader
finds them in both. What they contain is untrusted.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import BadBytes

#: Marks a module that interprets a program. Its content is empty.
INTERPRETER = "caxton:interpreter"

_HEADER = 8
_CUSTOM = 0
#: A module of 32 MiB could have 16 million sections.
_MAX_SECTIONS = 10_000


def find(module: bytes, name: str, limit: int) -> bytes | None:
    """
    Return the content of the custom section *name* of *module*, or ``None``.

    Args:
        module: A core module or a component. Where it is cut off or damaged, the search
            ends: the gate reports such modules.

        name: Of the section.

        limit: Most bytes of its content.

    Raises:
        BadBytes: There are several, or one is larger than *limit*.
    """
    found = [*_places(module, name)]
    if not found:
        return None
    if len(found) > 1:
        raise BadBytes("there are two of it")
    start, end = found[0]
    if end - start > limit:
        raise BadBytes(f"it is larger than {limit:,} bytes")
    return module[start:end]


def is_interpreter(module: bytes) -> bool:
    r"""
    Return whether *module* says that it interprets a program.

    >>> is_interpreter(b"\0asm\1\0\0\0" + section(INTERPRETER, b""))
    True
    """
    return any(_places(module, INTERPRETER))


def section(name: str, content: bytes) -> bytes:
    """Return a section with *content*, to append to a module."""
    encoded = name.encode()
    body = _leb128(len(encoded)) + encoded + content
    return bytes([_CUSTOM]) + _leb128(len(body)) + body


def _places(module: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Yield where the content of each section of that name begins and ends."""
    wanted = name.encode()
    at = _HEADER
    for _ in range(_MAX_SECTIONS):
        if at >= len(module):
            break
        size, start = _number(module, at + 1)
        end = start + size
        if module[at] == _CUSTOM and end <= len(module):
            length, first = _number(module, start)
            if module[first : min(first + length, end)] == wanted:
                yield first + length, end
        at = end


def _leb128(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 -- seven bits a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _number(module: bytes, at: int) -> tuple[int, int]:
    """Return the LEB128 number at *at*, and its end."""
    value = 0
    for index in range(5):
        byte = module[at + index] if at + index < len(module) else 0
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004 -- the continuation bit
            return value, at + index + 1
    return len(module), len(module)
