"""Reader of ``[servers.NAME.confine]``; the host's own files are never granted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from ..core.text.toml_text import value_text
from ..core.tools.confinement import Confine, inside
from ..core.tools.egress import MOST, AllowList
from ..errors import ConditionError
from . import fields as f
from .fields import STRING, array, either, object_, one_of, shaped
from .model import Config
from .paths import Paths
from .source import At

#: Programs that download what they run at each start, and that start it elsewhere.
_DOWNLOADS = {"npx", "pnpx", "pnpm", "yarn", "bunx", "uvx", "uv", "pipx"}
_ELSEWHERE = {"docker", "podman", "nerdctl"}
_MORE = """or { read = ["docs"], write = ["out"], connect = ["api.example.com:443"] }"""

#: Of one path; the kernel follows as many.
_MOST_LINKS = 40
_SQLITE = "sqlite:///"


@shaped(array(STRING))
def _paths(value: object, at: At) -> tuple[str, ...]:
    return tuple(map(str, f.listed(f.path)(value, at)))


@shaped({**array(STRING), "maxItems": MOST})
def _connect(value: object, at: At) -> tuple[str, ...]:
    entries: tuple[str, ...] = f.listed(f.text)(value, at)
    try:
        AllowList.parse(entries)
    except ConditionError as exc:
        raise at.error(str(exc), fix=exc.fix) from None
    return entries


_CONFINE: f.Fields = {
    "read": ("read", _paths),
    "write": ("write", _paths),
    "connect": ("connect", _connect),
    "network": ("network", f.choice("none", "host")),
    "memory": ("memory", f.size),
    "processes": ("processes", f.some),
    "shared": ("shared", f.flag),
    "user": ("user", f.text),
}


@shaped(either(one_of(("strict", "off")), object_(_CONFINE)))
def confinement(value: object, at: At) -> Confine | None:
    """Read how a server is confined: ``strict``, ``off``, or what else it may do."""
    if isinstance(value, dict):
        found = Confine(**f.read(cast("object", value), _CONFINE, at))
        if found.connect and found.network == "host":
            raise at.key("connect").error(
                'cannot be combined with network = "host"', fix="remove one of them"
            )
        return found
    return Confine() if f.choice("strict", "off")(value, at) == "strict" else None


def guarding(config: Config, at: At, environ: Mapping[str, str]) -> Config:
    """
    Return a configuration whose confined servers know the host's own files.

    Raises:
        ConfigError: One of these files is granted to a server, or a path by a link
            that a server may have made.
    """
    paths = Paths.of(environ)
    private = [paths.state, paths.cache, paths.config, paths.data]
    if config.store_url.startswith(_SQLITE):
        database, _, _ = config.store_url.removeprefix(_SQLITE).partition("?")
        private.append(Path(database))
    held = tuple(map(os.path.realpath, private))
    files = tuple(map(os.path.realpath, config.files))
    servers = {**config.servers}
    every = [server.confine for server in servers.values() if server.confine]
    written = {os.path.realpath(path) for confine in every for path in confine.write}
    for name, server in config.servers.items():
        if confine := server.confine:
            here = at.key("servers").key(name).key("confine")
            confine = replace(
                confine,
                read=_real(confine.read, written, here.key("read")),
                write=_real(confine.write, written, here.key("write")),
            )
            _check(confine.read, held, here.key("read"))
            _check(confine.write, held + files, here.key("write"))
            guarded = replace(confine, guarded=held + files)
            servers[name] = replace(server, confine=guarded)
    return replace(config, servers=servers)


def _real(granted: tuple[str, ...], written: set[str], at: At) -> tuple[str, ...]:
    """Return the real paths; no link may be one that a server could have made."""
    for path in granted:
        for link in _links(path):
            if inside(link, written):
                raise at.error(
                    f"{path} leads through {link}, a link that a server may change",
                    fix="name the folder itself, or remove the link",
                )
    return tuple(map(os.path.realpath, granted))


def _links(path: str) -> list[str]:
    """Return where the links are that a path leads through, also those of links."""
    found: list[str] = []
    at, names = "/", path.split("/")[::-1]
    while names and len(found) < _MOST_LINKS:
        step = os.path.normpath(Path(at, names.pop()))
        if not Path(step).is_symlink():
            at = step
            continue
        found.append(step)
        target = str(Path(step).readlink())
        at = "/" if target.startswith("/") else at
        names += target.split("/")[::-1]
    return found


def _check(granted: tuple[str, ...], held: tuple[str, ...], at: At) -> None:
    for path in granted:
        own = next(
            (own for own in held if inside(own, [path]) or inside(path, [own])), ""
        )
        if own:
            raise at.error(
                f"{path} would give the server {own}, which is the host's own",
                fix="name a narrower folder, or keep the host's files elsewhere",
            )


def usual(command: Sequence[str], folder: Path) -> str:
    """
    Return the line that confines a new server, and says how to let it do more.

    It may read the folders that its arguments name, beginning at *folder*.

    >>> print(usual(["npx", "crm-server"], Path()), end="")
    confine = { network = "host" }  # npx downloads it; installed, it needs no network
    """
    program = Path(command[0]).name
    if program in _ELSEWHERE:
        return f"# Not confined: {program} starts it elsewhere.\n"
    named = (word.partition("=")[2] if word[:2] == "--" else word for word in command)
    read = [word for word in [*named][1:] if word and (folder / word).is_dir()]
    more: dict[str, object] = {"read": read} if read else {}
    why = _MORE
    if program in _DOWNLOADS:
        more["network"] = "host"
        why = f"{program} downloads it; installed, it needs no network"
    return f"confine = {value_text(more or 'strict')}  # {why}\n"
