"""Paths of a user's files, by the XDG Base Directory Specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError

CONFIG_VARIABLE = "CAXTON_CONFIG"
#: Names the state folder itself, and comes before ``XDG_STATE_HOME``.
STATE_VARIABLE = "CAXTON_STATE_DIR"

FILE_NAME = "caxton.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """
    The folders of one user, which need not exist.

    Attributes:
        config: ``caxton.toml``, if there is none in the working folder.

        data: The database, if there is no configuration file.

        state: Keys, tokens, and what servers say.

        cache: Compiled modules.
    """

    config: Path
    data: Path
    state: Path
    cache: Path

    @property
    def logs(self) -> Path:
        """The folder of the servers' log files."""
        return self.state / "servers"

    @property
    def tokens(self) -> Path:
        """The folder of OAuth tokens of servers."""
        return self.state / "tokens"

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Paths:
        """
        Return the folders that *environ* names, or the defaults.

        >>> Paths.of({"HOME": "/home/ada"}).state.as_posix()
        '/home/ada/.local/state/caxton'

        Raises:
            ConfigError: ``CAXTON_STATE_DIR`` is a relative path, or a file.
        """
        home = home_folder(environ)

        def folder(variable: str, usual: str) -> Path:
            named = Path(environ.get(variable, ""))
            # The specification: a relative path is invalid and to be ignored.
            return (named if named.is_absolute() else home / usual) / "caxton"

        return cls(
            config=folder("XDG_CONFIG_HOME", ".config"),
            data=folder("XDG_DATA_HOME", ".local/share"),
            state=_state(environ) or folder("XDG_STATE_HOME", ".local/state"),
            cache=folder("XDG_CACHE_HOME", ".cache"),
        )


def _state(environ: Mapping[str, str]) -> Path | None:
    named = environ.get(STATE_VARIABLE)
    if named and not Path(named).is_absolute():
        raise ConfigError(
            f"the variable {STATE_VARIABLE} is a relative path",
            fix=f"set it like: {STATE_VARIABLE}=/var/lib/caxton",
        )
    if named and os.path.isfile(named):  # noqa: PTH113 -- that of a path may raise
        raise ConfigError(
            f"the variable {STATE_VARIABLE} names a file",
            fix=f"set it to a folder, like: {STATE_VARIABLE}=/var/lib/caxton",
        )
    return Path(named) if named else None


def home_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder."""
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def find(named: Path | None, *, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """
    Return the configuration file to read, or ``None`` if there is none.

    In order: *named*, ``$CAXTON_CONFIG``, ``caxton.toml`` in *cwd*, and in the
    user's configuration folder.

    Raises:
        ConfigError: A file that was asked for by name is not there.
    """
    asked = named or Path(environ.get(CONFIG_VARIABLE, ""))
    if asked != Path():
        path = cwd / asked.expanduser()
        if not path.is_file():
            raise ConfigError(
                f"{asked}: is a folder"
                if path.is_dir()
                else f"{asked}: there is no such file",
                fix="name another with --config or CAXTON_CONFIG, or run: caxton init",
            )
        return path
    for folder in (cwd, Paths.of(environ).config):
        path = folder / FILE_NAME
        if path.is_file():
            return path
    return None
