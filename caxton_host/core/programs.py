"""Programs: source text that a runtime executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePath
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from ..errors import UsageError
from .calls import JSON
from .names import nearest

Language: TypeAlias = Literal["python", "javascript", "typescript"]
#: What executes programs.
Runtime: TypeAlias = Literal["python", "javascript"]

RUNTIMES: tuple[Runtime, ...] = ("python", "javascript")
LANGUAGES: tuple[Language, ...] = ("python", "javascript", "typescript")
_RUNTIME_OF: Mapping[Language, Runtime] = MappingProxyType(
    {"python": "python", "javascript": "javascript", "typescript": "javascript"}
)
_BY_SUFFIX: Mapping[str, Language] = MappingProxyType(
    {".py": "python", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript"}
)
SUFFIXES = tuple(_BY_SUFFIX)

#: Bytes of a program. Its text goes through the sandbox as one value.
LARGEST = 1024 * 1024
#: Bytes of a program that a caller sends.
LARGEST_OF_CALLERS = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """
    Source text, and what it imports.

    Attributes:
        name: Of its file, for tracebacks.

        language: What it is written in.

        source: UTF-8.

        packages: The locked dependencies as the runtime takes them; see
            docs/reference/programs.md. Empty without any.

        locked: Of each dependency ``name``, ``version`` and ``sha256`` of its wheel.
    """

    name: str
    language: Language
    source: bytes = field(repr=False)
    packages: bytes = field(default=b"", repr=False)
    locked: tuple[Mapping[str, JSON], ...] = ()

    @property
    def runtime(self) -> Runtime:
        """What executes it."""
        return _RUNTIME_OF[self.language]

    @property
    def blobs(self) -> dict[str, bytes]:
        """What is stored of it, by digest."""
        parts = [self.source, self.packages] if self.packages else [self.source]
        return {sha256(part).hexdigest(): part for part in parts}

    def to_payload(self) -> dict[str, JSON]:
        """Return ``RunStarted.program``, which names the blobs."""
        payload: dict[str, JSON] = {
            "language": self.language,
            "name": self.name,
            "sha256": sha256(self.source).hexdigest(),
        }
        if self.packages:
            payload["packages"] = {
                "sha256": sha256(self.packages).hexdigest(),
                "locked": [dict(one) for one in self.locked],
            }
        return payload

    @classmethod
    def from_payload(
        cls, payload: Mapping[str, JSON], blobs: Mapping[str, bytes]
    ) -> Program:
        """Return the program that `to_payload` described."""
        packages = cast("Mapping[str, JSON]", payload.get("packages") or {})
        locked = cast("list[Mapping[str, JSON]]", packages.get("locked", []))
        return cls(
            name=str(payload["name"]),
            language=cast("Language", payload["language"]),
            source=blobs[str(payload["sha256"])],
            packages=blobs[str(packages["sha256"])] if packages else b"",
            locked=tuple(locked),
        )

    def to_guest(self) -> dict[str, JSON]:
        """Return what the host function ``program`` gives the runtime."""
        return {
            "name": self.name,
            "language": self.language,
            "source": self.source.decode(),
            "packages": self.packages.decode() or None,
        }


def digests_of(payload: Mapping[str, JSON] | None) -> list[str]:
    """
    Return the digests of the blobs that a ``RunStarted.program`` names.

    >>> digests_of({"sha256": "ab", "packages": {"sha256": "cd"}}), digests_of(None)
    (['ab', 'cd'], [])
    """
    if payload is None:
        return []
    packages = payload.get("packages")
    more = [str(packages["sha256"])] if isinstance(packages, dict) else []
    return [str(payload["sha256"]), *more]


def language_of(name: str) -> Language | None:
    """
    Return the language of a file by its suffix, or ``None``.

    >>> language_of("report.py"), language_of("a.mjs"), language_of("a.wasm")
    ('python', 'javascript', None)
    """
    return _BY_SUFFIX.get(PurePath(name).suffix)


def runtime_of(language: Language) -> Runtime:
    """
    Return what executes programs in *language*.

    >>> runtime_of("typescript")
    'javascript'
    """
    return _RUNTIME_OF[language]


def program_of(
    name: str, source: bytes, *, language: Language, most: int = LARGEST
) -> Program:
    """
    Return the program with that source.

    Raises:
        UsageError: It is empty, too large, or not text in UTF-8.
    """
    if len(source) > most:
        raise UsageError(
            f"the program {name} has more than the {most:,} bytes allowed",
            fix="move data out of it: pass it as input, or read it with a tool",
        )
    try:
        text = source.decode()
    except UnicodeDecodeError as exc:
        line = source.count(b"\n", 0, exc.start) + 1
        raise UsageError(
            f"the program {name} is not UTF-8: byte {source[exc.start]:#04x} in line "
            f"{line}",
            fix="save it as UTF-8",
        ) from None
    if not text.strip():
        raise UsageError(f"the program {name} is empty", fix="write a statement in it")
    return Program(name=name, language=language, source=source.removeprefix(_BOM))


#: Editors of some systems begin a file with it; interpreters refuse it in a text.
_BOM = b"\xef\xbb\xbf"

#: What a caller passes to an agent with ``program = "caller"``.
CODE_SCHEMA: Mapping[str, JSON] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "code": {
                "type": "string",
                "description": "The program, at most 256 KiB.",
            },
            "input": {"description": "The input of the program; null by default."},
            "narrow": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 100,
                "description": "The only tools that the program may call, of those "
                "that it has, as SERVER/TOOL; * stands for any characters.",
            },
        },
        "required": ["code"],
        "additionalProperties": False,
    }
)

_TAKEN = ("code", "input", "narrow")


def called_with(value: JSON, language: Language) -> tuple[Program, JSON, JSON]:
    """
    Return the program that a caller passed, its input, and its only tools, if named.

    Args:
        value: As `CODE_SCHEMA` says.

        language: What the agent takes.

    Raises:
        UsageError: It is something else, or `program_of` refuses it.
    """
    given = value if isinstance(value, dict) else {}
    code = given.get("code")
    if not isinstance(code, str):
        raise UsageError(
            "the agent takes an object with a text under code",
            fix='pass for example {"code": "print(1)"}',
        )
    for key in given:
        if key not in _TAKEN:
            meant = nearest(key, [*_TAKEN])
            raise UsageError(
                f"the agent takes {', '.join(_TAKEN)}, and no {key!r}",
                fix=f"did you mean {meant}?" if meant else f"leave out {key}",
            )
    try:
        source = code.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the code holds half a character", fix="pass text that is valid UTF-8"
        ) from None
    suffix = next(suffix for suffix, one in _BY_SUFFIX.items() if one == language)
    most = LARGEST_OF_CALLERS
    program = program_of(f"code{suffix}", source, language=language, most=most)
    return program, given.get("input"), given.get("narrow")
