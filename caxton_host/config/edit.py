"""
Editor of ``caxton.toml`` that leaves all other lines unchanged.

A server is added as text at the end, and removed line by line. The result is
loaded before it replaces the file, in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TypedDict, Unpack

from ..core.names import nearest
from ..core.text.toml_text import key_text, quoted, value_text
from ..errors import ConfigError, NotFoundError
from ..lib.files import replace_file
from .confinement import usual
from .fields import PLAIN_HEADERS, table
from .files import parse_toml, read_bytes
from .key_lines import Lines
from .load import load_bytes
from .paths import home_folder
from .sections import passwords
from .source import At, Secrets, Source, is_reference, sounds_secret

_NEW_FILE = "version = 1\n"
_SPOKEN = frozenset({"transport", "type"})
_PLACE = frozenset({"command", "args", "url"}) | _SPOKEN
_OF_COMMAND = frozenset({"env", "cwd", "confine"})
_OF_URL = frozenset({"headers", "oauth"})


class Keys(TypedDict, total=False):
    """
    The keys by which a server is reached.

    Attributes:
        command: Program and arguments; or else *url*.

        url: Its address.

        transport: Its transport, if not the default.

        env: Variables of its process, as written into the file.

        headers: Headers of its requests, as written into the file.
    """

    command: Sequence[str]
    url: str | None
    transport: str | None
    env: Mapping[str, str]
    headers: Mapping[str, str]


def add_server(
    path: Path,
    name: str,
    *,
    environ: Mapping[str, str],
    confines: bool = True,
    **reached: Unpack[Keys],
) -> None:
    """
    Add a server to *path*, which is created if necessary. A process is confined.

    Args:
        path: The file.

        name: The name of the server.

        environ: The environment, for variables of the result.

        confines: Whether this machine can confine servers.

        reached: Its keys.

    Raises:
        ConfigError: The result would not load; the file is unchanged.
    """
    keys = _keys(reached)
    command = reached.get("command", ())
    text = f"\n[servers.{key_text(name)}]\n{_lines(keys)}"
    text += usual(command, path.parent) if command and confines else ""
    append_servers(path, [name], text, environ=environ)


def change_server(
    path: Path, name: str, *, environ: Mapping[str, str], **reached: Unpack[Keys]
) -> None:
    """
    Change how a server in *path* is reached; keys not given are kept.

    A command replaces an address with its keys, and an address a command.

    Raises:
        NotFoundError: The file describes no such server.

        ConfigError: It is not a table of its own, or the result would not load;
            the file is unchanged.
    """
    text = _read(path, environ)
    described = _servers(text, path, environ)
    _check_there(path, name, described)
    keys, command = _keys(reached), reached.get("command")
    stale = {key for key in ("env", "headers") if reached.get(key) is not None}
    if command or reached.get("url") is not None:
        stale |= _PLACE | (_OF_URL if command else _OF_COMMAND)
    elif reached.get("transport") is not None:
        stale |= _SPOKEN
    before = table(described[name], _at(path, environ))
    expected = {k: v for k, v in before.items() if k not in stale} | keys
    where = ("servers", name)
    text = _without(text, *((*where, key) for key in stale))
    text = _with(text, where, _lines(keys))
    if _servers(text, path, environ) != {**described, name: expected}:
        raise _entangled(path, name)
    _replace(path, text, environ)


def check_references(
    url: str | None, env: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> None:
    """
    Refuse literal secrets in keys of a server: only references are allowed.

    Raises:
        ConfigError: A name suggests a secret; its value is not shown.
    """
    held = [
        *((f"env.{k}", v) for k, v in (env or {}).items() if sounds_secret(k)),
        *(
            (f"headers.{k}", v)
            for k, v in (headers or {}).items()
            if k.lower() not in PLAIN_HEADERS
        ),
        *(("url", value) for value in sorted(passwords(url or ""))),
    ]
    for where, value in held:
        if not is_reference(value):
            raise ConfigError(
                f"{where} may contain a secret; secrets are not sent over the network",
                fix="write ${env:NAME} or ${file:PATH}, and set it on the host",
            )


def _keys(reached: Keys) -> dict[str, object]:
    found: dict[str, object] = {}
    command = reached.get("command", ())
    if command:
        found["command"] = command[0]
    if command[1:]:
        found["args"] = [*command[1:]]
    found |= {"url": reached.get("url"), "transport": reached.get("transport")}
    found["env"] = {**(reached.get("env") or {})}
    found["headers"] = {**(reached.get("headers") or {})}
    return {key: value for key, value in found.items() if value not in (None, {})}


def _lines(keys: Mapping[str, object]) -> str:
    return "".join(f"{key} = {value_text(value)}\n" for key, value in keys.items())


def append_servers(
    path: Path, names: Sequence[str], tables: str, *, environ: Mapping[str, str]
) -> None:
    """
    Add tables of servers to *path*, which is created if necessary.

    Args:
        path: The file.

        names: The names of the servers.

        tables: TOML.

        environ: The environment, for variables of the result.

    Raises:
        ConfigError: One is there already, or the result would not load; the file is
            unchanged.
    """
    _replace(path, appended(path, names, tables, environ=environ), environ)


def appended(
    path: Path, names: Sequence[str], tables: str, *, environ: Mapping[str, str]
) -> str:
    """
    Return the content of a file with tables of servers added, which is not checked.

    Raises:
        ConfigError: One is there already, or the file is broken.
    """
    text = _read(path, environ) if path.exists() else _NEW_FILE
    described = _servers(text, path, environ)
    for name in names:
        if name in described:
            raise ConfigError(
                f"{path.name}: servers.{name} already exists",
                fix=f"remove it first: caxton server remove {name}",
            )
    before = text if text.endswith("\n") or not text else f"{text}\n"
    return before + tables


def described_servers(path: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """
    Return the tables of servers that a file itself has, as they are written.

    Raises:
        ConfigError: It cannot be read, or is broken.
    """
    return _servers(_read(path, environ), path, environ)


def remove_server(path: Path, name: str, *, environ: Mapping[str, str]) -> None:
    """
    Remove a server from *path*, and the options of its tools.

    Raises:
        NotFoundError: The file describes no such server.

        ConfigError: It is not a table of its own, or what is left would not load;
            the file is unchanged.
    """
    text = _read(path, environ)
    described = _servers(text, path, environ)
    _check_there(path, name, described)
    left = _without(text, ("servers", name))
    expected = {key: value for key, value in described.items() if key != name}
    if _servers(left, path, environ) != expected:
        raise _entangled(path, name)
    _replace(path, left, environ)


def pin_agent(
    path: Path, name: str, digests: Sequence[str], *, environ: Mapping[str, str]
) -> None:
    """
    Pin an agent in *path* to files with these digests.

    Raises:
        ConfigError: It is not a table of its own in this file, or the result would not
            load; the file is unchanged.
    """
    text, where = _read(path, environ), ("agents", name)
    described = _tables(text, path, environ, "agents")
    said = [*digests] if digests[1:] else digests[0]
    line = f"sha256 = {value_text(said)}\n"
    text = _with(_without(text, (*where, "sha256")), where, line)
    before = table(described.get(name, {}), _at(path, environ))
    expected = {**described, name: {**before, "sha256": said}}
    if _tables(text, path, environ, "agents") != expected:
        raise ConfigError(
            f"{path.name}: agents.{name} is not a table of its own",
            fix=f"write it with an editor: {line.strip()}",
        )
    _replace(path, text, environ)


def _check_there(path: Path, name: str, described: Mapping[str, object]) -> None:
    if name not in described:
        close = nearest(name, list(described))
        raise NotFoundError(
            f"{path.name}: there is no server {name}",
            fix=f"name {close}"
            if close
            else "see: caxton server list; remove an imported server from the "
            "imported file",
        )


def _entangled(path: Path, name: str) -> ConfigError:
    return ConfigError(
        f"{path.name}: servers.{name} is not a table of its own",
        fix="change it with an editor",
    )


def _without(text: str, *paths: tuple[str, ...]) -> str:
    """Return *text* without some keys and tables, and the tables' comments."""
    dropped: set[int] = set()
    last, inside = 0, False
    for one in Lines(text).statements:
        gone = any(one.path[: len(path)] == path for path in paths)
        # Comments before a table are about that table.
        if inside and (gone or not one.is_table):
            dropped.update(range(last + 1, one.first))
        if gone:
            dropped.update(range(one.first, one.last + 1))
        last = one.last
        inside = gone if one.is_table else inside
    lines = enumerate(StringIO(text), 1)
    return "".join(line for number, line in lines if number not in dropped)


def _with(text: str, table: tuple[str, ...], added: str) -> str:
    """Return *text* with lines inserted below the header of a table."""
    lines = text.split("\n")
    for one in Lines(text).statements:
        if one.is_table and one.path == table:
            lines[one.last : one.last] = added.splitlines()
    return "\n".join(lines)


def _read(path: Path, environ: Mapping[str, str]) -> str:
    return read_bytes(path, _at(path, environ)).decode("utf-8-sig", "replace")


def _servers(text: str, path: Path, environ: Mapping[str, str]) -> dict[str, object]:
    return _tables(text, path, environ, "servers")


def _tables(
    text: str, path: Path, environ: Mapping[str, str], section: str
) -> dict[str, object]:
    at = _at(path, environ)
    return table(parse_toml(text.encode(), at).get(section, {}), at.key(section))


def _at(path: Path, environ: Mapping[str, str]) -> At:
    secrets = Secrets(environ=environ, home=home_folder(environ))
    return At(source=Source(shown=path.name, folder=path.parent, secrets=secrets))


def _replace(path: Path, text: str, environ: Mapping[str, str]) -> None:
    data = text.encode()
    target = path.resolve()
    load_bytes(data, target, environ=environ, cwd=target.parent)
    replace_file(target, data)


def init_text(*, imports: Sequence[str] = (), confines: bool = True) -> str:
    """Return a starter ``caxton.toml``, which loads unchanged. See `add_server`."""
    listed = ", ".join(map(quoted, imports))
    imported = f"import = [{listed}]" if imports else '# import = [".mcp.json"]'
    confine = usual(["python"], Path()) if confines else ""
    text = _STARTER.replace("@IMPORT@", imported)
    return text.replace("@CONFINE@\n", confine)


_STARTER = """\
# Configuration of caxton. See it as it is read: caxton config show
version = 1

# Servers out of files of Claude Desktop, Claude Code, Cursor or VS Code.
# Importing grants nothing.
@IMPORT@

[store]
url = "sqlite:///caxton.db"

# A tool server over stdio: caxton server add NAME -- COMMAND ARGUMENTS
# This one comes with caxton.
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
@CONFINE@
timeout = "10s"

# A tool server over HTTP. Secrets stay in the environment or in files.
# [servers.crm]
# url = "https://crm.example.com/mcp"
# headers = { Authorization = "Bearer ${env:CRM_TOKEN}" }

# A plain HTTP request as the tool webhook/forecast.
# [webhooks.forecast]
# method = "GET"
# url = "https://weather.example.com/v1/forecast/{city}?days={days}"
# description = "The weather of the next days"
# effect = "read"

# Variables that an agent can read: caxton run weather --var user_name=Ada
[context]
user_name = { default = "there" }

# An agent may do what its rules allow, and nothing else.
[agents.weather]
module = "agents/weather.wasm"
names = { weather = "demo/get_weather" }   # what it calls the tool; grants nothing
limits = { total_calls = 20, wall = "60s" }
[[agents.weather.allow]]
tools = ["demo/get_weather"]
calls = "5/run"
[[agents.weather.deny]]
tools = ["demo/fail*"]
"""
