"""
Changes of ``caxton.toml`` that leave every other line as it was.

A server is added as text at the end, and removed line by line. The result is
loaded before it replaces the file, in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.names import nearest
from ..core.toml_text import key_text, quoted, value_text
from ..errors import ConfigError, NotFoundError
from .fields import table
from .files import replace_file
from .headers import header
from .load import load_bytes
from .paths import home_folder
from .secrets import Secrets
from .source import At, Source, parse_toml, read_bytes

__all__ = ["add_server", "append_servers", "init_text", "remove_server"]

_NEW_FILE = "version = 1\n"


def add_server(  # noqa: PLR0913 -- each is a part of what is written
    path: Path,
    name: str,
    *,
    command: Sequence[str] = (),
    url: str | None = None,
    transport: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    environ: Mapping[str, str],
) -> None:
    """
    Add a server to *path*, which is made if it is not there.

    Args:
        path: The file.

        name: What the server is to be called.

        command: Program and arguments; or else *url*.

        url: Its address.

        transport: How it is spoken to, where that does not go without saying.

        env: Variables of its process, as they are to stand in the file.

        headers: Headers of its requests, as they are to stand in the file.

        environ: Where variables of the result are looked up.

    Raises:
        ConfigError: The result would not load; the file is as it was.
    """
    lines = ["", f"[servers.{key_text(name)}]"]
    if command:
        lines.append(f"command = {quoted(command[0])}")
    if command[1:]:
        lines.append(f"args = {value_text([*command[1:]])}")
    if url is not None:
        lines.append(f"url = {quoted(url)}")
    if transport is not None:
        lines.append(f"transport = {quoted(transport)}")
    for key, values in (("env", env), ("headers", headers)):
        if values:
            lines.append(f"{key} = {value_text({**values})}")
    append_servers(path, [name], "\n".join(lines) + "\n", environ=environ)


def append_servers(
    path: Path, names: Sequence[str], tables: str, *, environ: Mapping[str, str]
) -> None:
    """
    Add tables of servers to *path*, which is made if it is not there.

    Args:
        path: The file.

        names: What the servers are called.

        tables: TOML.

        environ: Where variables of the result are looked up.

    Raises:
        ConfigError: One is there already, or the result would not load; the file is
            as it was.
    """
    text = _read(path, environ) if path.exists() else _NEW_FILE
    described = _servers(text, path, environ)
    for name in names:
        if name in described:
            raise ConfigError(
                f"{path.name}: servers.{name} is there already",
                fix=f"remove it first: caxton server remove {name}",
            )
    before = text if text.endswith("\n") or not text else f"{text}\n"
    _replace(path, before + tables, environ)


def remove_server(path: Path, name: str, *, environ: Mapping[str, str]) -> None:
    """
    Remove a server from *path*, and the options of its tools.

    Raises:
        NotFoundError: The file describes no such server.

        ConfigError: It is not a table of its own, or what is left would not load;
            the file is as it was.
    """
    text = _read(path, environ)
    described = _servers(text, path, environ)
    if name not in described:
        close = nearest(name, list(described))
        raise NotFoundError(
            f"{path.name}: there is no server {name}",
            fix=f"name {close}"
            if close
            else "see: caxton server list; an imported "
            "server is removed where it was written",
        )
    left = _without(text, ("servers", name))
    expected = {key: value for key, value in described.items() if key != name}
    if _servers(left, path, environ) != expected:
        raise ConfigError(
            f"{path.name}: servers.{name} is not a table of its own",
            fix="remove it with an editor",
        )
    _replace(path, left, environ)


def _without(text: str, keys: tuple[str, ...]) -> str:
    """Return *text* without the tables below *keys*, comments above others kept."""
    kept: list[str] = []
    waiting: list[str] = []
    removing = False
    for line in text.splitlines(keepends=True):
        found = header(line)
        if found is not None:
            removing = found[: len(keys)] == keys
            # Blank lines and comments before a table are about that table.
            if not removing:
                kept += waiting
            waiting = []
        if not removing:
            kept.append(line)
        elif not line.strip() or line.lstrip().startswith("#"):
            waiting.append(line)
        else:
            waiting = []
    return "".join(kept + waiting)


def _read(path: Path, environ: Mapping[str, str]) -> str:
    return read_bytes(path, _at(path, environ)).decode("utf-8-sig", "replace")


def _servers(text: str, path: Path, environ: Mapping[str, str]) -> dict[str, object]:
    at = _at(path, environ)
    return table(parse_toml(text.encode(), at).get("servers", {}), at.key("servers"))


def _at(path: Path, environ: Mapping[str, str]) -> At:
    secrets = Secrets(environ=environ, home=home_folder(environ))
    return At(source=Source(shown=path.name, folder=path.parent, secrets=secrets))


def _replace(path: Path, text: str, environ: Mapping[str, str]) -> None:
    data = text.encode()
    target = path.resolve()
    load_bytes(data, target, environ=environ, cwd=target.parent)
    replace_file(target, data)


def init_text(*, imports: Sequence[str] = ()) -> str:
    """Return a ``caxton.toml`` to start from; it loads as it is."""
    listed = ", ".join(map(quoted, imports))
    imported = f"import = [{listed}]" if imports else '# import = [".mcp.json"]'
    return _STARTER.replace("@IMPORT@", imported)


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
