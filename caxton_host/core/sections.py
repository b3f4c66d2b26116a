"""
Custom sections of modules: what a module says of itself, beside its code.

Core modules and components consist of sections with the same headers, so one reader
finds them in both. What they contain is untrusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..errors import BadBytes

#: Marks a module that interprets a program. Its content is empty.
INTERPRETER = "caxton:interpreter"

_HEADER = 8
_CORE = b"\0asm\1\0\0\0"
_CUSTOM, _IMPORTS = 0, 2
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


@lru_cache(maxsize=16)  # a host asks of the same modules for each run
def is_interpreter(module: bytes) -> bool:
    r"""
    Return whether *module* says that it interprets a program.

    >>> is_interpreter(b"\0asm\1\0\0\0" + section(INTERPRETER, b""))
    True
    """
    return any(_places(module, INTERPRETER))


def imports_from(module: bytes, name: str) -> bool:
    r"""
    Return whether a core module imports from the module *name*.

    It is enough that the name is among its imports: the gate knows all that there are.

    >>> imports_from(b"\0asm\1\0\0\0" + b"\2\5\1\1a\1b", "a")
    True
    """
    encoded = name.encode()
    wanted = leb128(len(encoded)) + encoded
    return module.startswith(_CORE) and any(
        kind == _IMPORTS and wanted in module[start:end]
        for kind, start, end in _sections(module)
    )


def section(name: str, content: bytes) -> bytes:
    """Return a section with *content*, to append to a module."""
    encoded = name.encode()
    body = leb128(len(encoded)) + encoded + content
    return bytes([_CUSTOM]) + leb128(len(body)) + body


def _places(module: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Yield where the content of each section of that name begins and ends."""
    wanted = name.encode()
    for kind, start, end in _sections(module):
        if kind == _CUSTOM and end <= len(module):
            length, first = _number(module, start)
            if module[first : min(first + length, end)] == wanted:
                yield first + length, end


def _sections(module: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each section, and where its content begins and ends."""
    at = _HEADER
    for _ in range(_MAX_SECTIONS):
        if at >= len(module):
            break
        size, start = _number(module, at + 1)
        yield module[at], start, start + size
        at = start + size


def leb128(number: int) -> bytes:
    r"""
    Return an unsigned number as modules encode it.

    >>> leb128(300)
    b'\xac\x02'
    """
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
