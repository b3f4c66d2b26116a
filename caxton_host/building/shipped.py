"""
Files shipped beside the code, and new agents made from their templates.

They are in the wheel as `caxton_host/_agents` and `_migrations`, and in a checkout as
`agents` and `migrations` beside the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from ..core.tools.manifest import is_agent_name
from ..errors import NotFoundError, UsageError

#: Replaced by the name of the agent, in every file of a template.
_PLACE = "{{name}}"


def find_shared(path: str) -> Path:
    """
    Return the file or folder that is shipped as *path*.

    Args:
        path: Starts with ``agents/`` or ``migrations/``, or is one of the two.

    Raises:
        NotFoundError: This installation does not have it.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / f"_{path}", package.parent / path):
        if candidate.exists():
            return candidate
    raise NotFoundError(
        f"this installation has no {path}", fix="install caxton-host again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """
    What decides the bytes of a build.

    Attributes:
        shared: What of ``agents/`` goes into it.

        made_by: The files of this package that make it.

        tools: The packages whose versions count.
    """

    shared: tuple[str, ...]
    made_by: tuple[str, ...]
    tools: tuple[str, ...]


@cache
def digest_of(inputs: Inputs) -> str:
    """
    Return twelve hex digits that change with any of *inputs*.

    Raises:
        PackageNotFoundError: A tool is not installed.
    """
    parts = [f"{tool} {version(tool)}".encode() for tool in inputs.tools]
    files = [Path(__file__).with_name(name) for name in inputs.made_by]
    for part in inputs.shared:
        files += sorted(find_shared(f"agents/{part}").rglob("*"))
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            parts += file.name.encode(), file.read_bytes()
    return sha256(b"\0".join(parts)).hexdigest()[:12]


def languages() -> list[str]:
    """Return the languages that have a template."""
    return sorted(entry.name for entry in find_shared("agents/templates").iterdir())


def new_agent(name: str, lang: str, folder: Path) -> Path:
    """
    Create an agent from a template, and return its folder.

    Args:
        name: The name of the agent and of its folder.

        lang: One of `languages`.

        folder: The parent of the new folder.

    Raises:
        UsageError: The name is invalid or taken, or the language is unknown.
    """
    if not is_agent_name(name):
        raise UsageError(
            f"{name!r} is not a name for an agent",
            fix="use lower case letters, digits, - and _, a letter first, at most 63",
        )
    if lang not in languages():
        raise UsageError(
            f"no template for the language {lang!r}",
            fix=f"use one of: {', '.join(languages())}",
        )
    target = folder / name
    try:
        target.mkdir(parents=True)
        for source in _files(lang):
            text = source.read_text("utf-8").replace(_PLACE, name)
            (target / source.name).write_text(text, "utf-8")
    except FileExistsError:
        raise UsageError(
            f"{target} already exists", fix="choose another name, or remove it"
        ) from None
    except OSError as exc:
        raise UsageError(
            f"{target} cannot be made: {exc.strerror}",
            fix="go to a folder that you may write to",
        ) from None
    return target


def _files(lang: str) -> list[Path]:
    """Return the files of a template, and the type declarations of its SDK."""
    template, sdk = find_shared(f"agents/templates/{lang}"), f"agents/sdk/{lang}"
    found = [*template.iterdir(), *find_shared(sdk).glob("*.d.ts")]
    return sorted(one for one in found if one.is_file())  # pip leaves a __pycache__
