"""Build an agent: find its language, compile it, and add the manifest."""

from __future__ import annotations

import hashlib
import json
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from ..core.names import nearest
from ..core.tools.manifest import KEYS, LIMIT, is_agent_name, section
from ..errors import BadBytes, ConfigError, UsageError
from ..lib.files import replace_file
from ..runs.modules import parse_manifest
from . import c, javascript, python, rust
from .tools import Progress, listening

FILE = "agent.toml"
_FIX = "correct it; docs/reference/manifest.md has every key"


class Language(Protocol):
    """
    A language that agents can be built from; see the module of each.

    Attributes:
        SOURCES: Names of the file that an agent of this language begins with. A file
            named like the agent's folder, with the suffix of the first, is one too.
    """

    SOURCES: tuple[str, ...]

    def compile(self, source: Path, module: Path, scratch: Path) -> None:
        """
        Compile *source* to *module*.

        The same source and tools give the same bytes, in every folder.

        Args:
            source: An absolute path.

            module: An absolute path, where no file exists.

            scratch: An empty folder. Its folder ``cache`` may be kept for the next
                build.

        Raises:
            UsageError: A tool is missing (the fix names the command that installs
                it), or refused the source.
        """


_LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {"c": c, "javascript": javascript, "python": python, "rust": rust}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """
    A module that was built.

    Attributes:
        path: Its file.

        lang: The language that it was written in.

        size: In bytes.

        sha256: Digest of its bytes, in hex: what ``RunStarted`` names it by.
    """

    path: Path
    lang: str
    size: int
    sha256: str


def build_agent(
    folder: Path,
    *,
    lang: str | None = None,
    into: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Built:
    """
    Compile the agent in *folder* to a module named after the folder.

    The same source, SDK and compiler give the same bytes. A failed build keeps an
    earlier module.

    Args:
        folder: Holds ``agent.c`` or the like, or such a file named like the folder,
            and ``agent.toml``, which becomes the manifest of the module.

        lang: The language, if the folder has sources in several.

        into: The folder of the module; *folder* by default.

        cache: The folder of the compiler's cache; by default nothing is kept.

        progress: Called while a tool takes long.

    Raises:
        UsageError: There is no source or no compiler, or the source does not compile,
            or ``agent.toml`` is not a manifest.
    """
    lang, source = source_of(folder, lang)
    described = described_by(folder.resolve())
    target = (into or folder) / f"{folder.resolve().name}.wasm"
    with tempfile.TemporaryDirectory(prefix="caxton-build-") as made:
        scratch = Path(made, "scratch")
        scratch.mkdir()
        if cache:
            cache.mkdir(parents=True, exist_ok=True)
            (scratch / "cache").symlink_to(cache.resolve())
        module = Path(made, "out.wasm")
        with listening(progress):
            _LANGUAGES[lang].compile(source, module, scratch)
        data = module.read_bytes() + section(described)
    try:
        replace_file(target, data)
    except OSError as exc:
        raise UsageError(
            f"{target} cannot be written: {exc.strerror}",
            fix="go to a folder that you may write to",
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    return Built(path=target, lang=lang, size=len(data), sha256=digest)


def source_of(folder: Path, wanted: str | None = None) -> tuple[str, Path]:
    """
    Return the language of an agent, and its source file.

    Raises:
        UsageError: There is no source, or there are several.
    """
    if wanted is not None and wanted not in _LANGUAGES:
        raise UsageError(
            f"agents cannot be built from the language {wanted!r}",
            fix=f"use one of: {', '.join(_LANGUAGES)}",
        )
    languages = [wanted] if wanted else [*_LANGUAGES]
    names = {lang: _names(lang, folder.resolve().name) for lang in languages}
    found = [
        (lang, folder.resolve() / name)
        for lang in languages
        for name in names[lang]
        if (folder / name).is_file()
    ]
    if not found:
        sought = ", ".join(name for lang in languages for name in names[lang])
        raise UsageError(
            f"{folder} has no agent source; looked for {sought}",
            fix="name the folder that caxton agent new made",
        )
    if len({lang for lang, _ in found}) > 1:
        there = " and ".join(source.name for _, source in found)
        raise UsageError(
            f"{folder} holds agents in several languages: {there}",
            fix=f"say which, for example --lang {found[0][0]}",
        )
    return found[0]


def _names(lang: str, folder: str) -> tuple[str, ...]:
    sources = _LANGUAGES[lang].SOURCES
    return (*sources, folder + Path(sources[0]).suffix)


# -- the manifest --------------------------------------------------------------


def described_by(folder: Path) -> bytes:
    """
    Return the manifest of the agent in *folder*, as the module holds it.

    Without ``agent.toml`` it has only the name: that of the folder, if it is a valid
    name of an agent.

    Raises:
        ConfigError: The file is not TOML, or not a manifest.
    """
    path = folder / FILE
    try:
        content = _encoded(_table(path), folder.name)
        parse_manifest(content)
    except (ValueError, TypeError, OSError, RecursionError, BadBytes) as exc:
        raise ConfigError(f"{path.name}: {exc}", fix=_FIX) from None
    return content


def _table(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    table = tomllib.loads(path.read_text("utf-8"))
    _check_keys(table, KEYS, "")
    tools = table.get("tools")
    if isinstance(tools, list):
        for at, tool in enumerate(cast("list[object]", tools)):
            _check_keys(tool, ("name", "reason"), f"tools[{at}].")
    return table


def _check_keys(table: object, known: tuple[str, ...], where: str) -> None:
    for key in cast("dict[str, object]", table) if isinstance(table, dict) else ():
        if key not in known:
            meant = nearest(key, [*known])
            hint = f"; did you mean {meant}?" if meant else ""
            raise BadBytes(f"unknown key {where}{key}{hint}")


def _encoded(table: dict[str, Any], folder: str) -> bytes:
    described = {"name": folder if is_agent_name(folder) else "agent", **table}
    text = json.dumps(
        described,
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    content = text.encode()
    if len(content) > LIMIT:
        raise BadBytes(f"{len(content):,} bytes as JSON, of {LIMIT:,} allowed")
    return content
