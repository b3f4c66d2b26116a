"""
What is shipped beside the code.

It lies in the wheel as `caxton_host/_agents` and `_migrations`, and in a checkout as
`agents` and `migrations` beside the package.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import NotFoundError


def find_shared(path: str) -> Path:
    """
    Return the file or folder that is shipped as *path*.

    Args:
        path: Starts with ``agents/`` or ``migrations/``, or is one of the two.

    Raises:
        NotFoundError: This installation does not hold it.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / f"_{path}", package.parent / path):
        if candidate.exists():
            return candidate
    raise NotFoundError(
        f"this installation has no {path}", fix="install caxton-host again"
    )


def languages() -> list[str]:
    """Return the languages that there is a template for."""
    return sorted(entry.name for entry in find_shared("agents/templates").iterdir())
