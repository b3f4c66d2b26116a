"""Load ``caxton.toml`` and the files that it imports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.names import AGENTS, exposed_name, is_server_name, nearest
from ..core.text.templates import named
from ..core.tools.contexts import BUILT_IN
from ..core.tools.servers import ServerConfig
from ..core.tools.webhooks import SERVER
from ..errors import ConfigError
from . import fields as f
from . import servers
from .agents import check_calls, check_exposed
from .clients import FOLDERS, is_host
from .confinement import guarding
from .files import parse_json, parse_toml, plain_json, read_bytes, text_of
from .key_lines import Lines
from .model import Agent, Config, Serve
from .paths import Paths, find, home_folder
from .schedules import check_schedules
from .sections import TOP, passwords, store_mistake
from .serve import from_environment
from .servers import tools_alone
from .source import At, ErrorCollector, Secrets, Source
from .source_checks import check_sources

_DATABASE = "caxton.db"
#: Comes before ``[store] url``, and after ``--db``.
STORE_VARIABLE = "CAXTON_STORE_URL"


def load(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    store_url: str | None = None,
) -> Config:
    """
    Load the configuration.

    Args:
        path: The file that was asked for, or ``None`` to look for one.

        environ: The environment, for variables and folders.

        cwd: The working folder.

        store_url: The event store, whatever the file says of it.

    Raises:
        ConfigError: A file cannot be read, or says what cannot be; the text names
            file and key.
    """
    found = find(path, environ=environ, cwd=cwd)
    if found is None:
        served = from_environment(Serve(), environ)
        return replace(_nothing(environ, store_url), serve=served)
    source = _source(found, environ, cwd)
    data = read_bytes(found, At(source=source))
    return _load(found, data, source, cwd, store_url)


def load_parts(  # noqa: PLR0913 -- as `load`, and which
    path: Path | None,
    sections: Collection[str],
    *,
    environ: Mapping[str, str],
    cwd: Path,
    store_url: str | None = None,
    guarded: bool = False,
) -> Config:
    """
    Load some sections of a configuration, and the URL of the log.

    Nothing else is resolved, so reading a log needs no credential of a tool,
    and no rule of an agent has to be right. If the store is given and no section is
    wanted, the file is not read at all.

    Args:
        path: As for `load`.

        sections: Top-level keys; or ``tools``, which means the servers, with
            what is said of their tools and nothing else.

        environ: As for `load`.

        cwd: As there.

        store_url: As there.

        guarded: Find out as many secrets of the other sections as can be, for what
            is typed now and kept from now on. What is wrong there is no matter.

    Raises:
        ConfigError: A section that is wanted is invalid, or a key at the top
            is not known.
    """
    found = find(path, environ=environ, cwd=cwd)
    if found is None:
        return _nothing(environ, store_url)
    source = _source(found, environ, cwd)
    url = _given_store(environ, store_url)
    wanted = {*sections} | (set[str]() if url else {"store"})
    config = Config(path=found, store_url=url or _beside(source))
    if wanted:
        config = _parts(config, wanted, source)
    if guarded:
        with ErrorCollector():
            _load(found, read_bytes(found, At(source=source)), source, cwd, store_url)
    return replace(config, secrets=_secrets(source, url))


def _parts(config: Config, wanted: Collection[str], source: Source) -> Config:
    assert config.path is not None  # noqa: S101 -- it was found
    data = read_bytes(config.path, At(source=source))
    tree = parse_toml(data, At(source=source))
    source = replace(source, lines=Lines(text_of(data, At(source=source))))
    at = At(source=source)
    for key in tree:
        if key not in TOP:
            at.unknown(key, TOP)
    if "agents" in wanted:
        wanted = {*wanted, "sessions"}
    said = f.read({k: v for k, v in tree.items() if k in wanted}, TOP, at)
    said["agents"] = _with_sessions(said, at)
    if "tools" in wanted:
        said["servers"] = f.mapped(tools_alone)(
            tree.get("servers", {}), at.key("servers")
        )
    said["sha256"] = hashlib.sha256(data).hexdigest()
    return replace(config, **said)


def _with_sessions(found: dict[str, Any], at: At) -> dict[str, Agent]:
    """
    Take agents and sessions out of what a file says, and return all by name.

    Raises:
        ConfigError: A name is that of an agent and of a session.
    """
    agents: dict[str, Agent] = found.pop("agents", {})
    sessions: dict[str, Agent] = found.pop("sessions", {})
    for name in sessions.keys() & agents.keys():
        raise (
            at.key("sessions")
            .key(name)
            .error("is also the name of an agent", fix="rename one of them")
        )
    return {**agents, **sessions}


def _given_store(environ: Mapping[str, str], option: str | None) -> str | None:
    """
    Return the store of ``--db`` or of the variable, which override the file.

    Raises:
        ConfigError: It is not a valid URL.
    """
    url = option or environ.get(STORE_VARIABLE) or None
    if url and (wrong := store_mistake(url)):
        place = "--db" if option else f"the variable {STORE_VARIABLE}"
        raise ConfigError(f"{place} {wrong[0]}", fix=wrong[1])
    return url


def _secrets(source: Source, store_url: str | None) -> frozenset[str]:
    """Return the secrets of a source, and those in the URL of the store."""
    source.secrets.seen |= passwords(store_url or "")
    return source.secrets.redactable


def _beside(source: Source) -> str:
    return f"sqlite:///{source.folder / _DATABASE}"


def _nothing(environ: Mapping[str, str], store_url: str | None) -> Config:
    database = Paths.of(environ).data / _DATABASE
    secrets = Secrets(environ=environ, home=home_folder(environ))
    url = _given_store(environ, store_url)
    secrets.seen |= passwords(url or "")
    return Config(
        store_url=url or f"sqlite:///{database}",
        secrets=secrets.redactable,
        short_secrets=secrets.short,
    )


def load_bytes(
    data: bytes, path: Path, *, environ: Mapping[str, str], cwd: Path
) -> Config:
    """
    Return what `load` would if *path* held *data*.

    Raises:
        ConfigError: See `load`.
    """
    return _load(path, data, _source(path, environ, cwd), cwd)


def _source(path: Path, environ: Mapping[str, str], cwd: Path) -> Source:
    return Source(
        shown=_shown(path, cwd),
        folder=(cwd / path).parent,
        secrets=Secrets(environ=environ, home=home_folder(environ)),
    )


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd) if path.is_relative_to(cwd) else path)


def _load(
    path: Path, data: bytes, source: Source, cwd: Path, store_url: str | None = None
) -> Config:
    tree = parse_toml(data, At(source=source))
    several, environ = ErrorCollector(), source.secrets.environ
    url = None
    with several:
        url = _given_store(environ, store_url)
    with several:
        Paths.of(environ)
    if store_url or environ.get(STORE_VARIABLE):
        # Its password may be known only where it is used.
        tree.pop("store", None)
    source = replace(source, lines=Lines(data.decode("utf-8-sig")))
    at = At(source=source)
    with ErrorCollector():  # What is wrong in this section is reported below.
        if not f.read({"mcp": tree.get("mcp", {})}, TOP, at)["mcp"]:
            # As `enabled = false` in each table: none is read, nor are its variables.
            tree = {key: tree[key] for key in tree if key not in {"servers", "import"}}
    found = f.collect(tree, TOP, at, several)
    own: dict[str, ServerConfig | None] = found.pop("servers", {})
    servers = {name: config for name, config in own.items() if config}
    origins: dict[str, Path] = {}
    origins.update((name, path) for name in servers)
    imports: tuple[Path, ...] = tuple(found.pop("imports", ()))
    for number, other in enumerate(imports, 1):
        with several:
            content = read_bytes(other, at.key("import").key(number))
            origin = replace(source, shown=_shown(other, cwd))
            taken = {*own, *servers}
            imported = import_servers(other, content, origin, taken, host=path)
            servers |= imported
            origins.update((name, other) for name in imported)
    with several:
        found["agents"] = _with_sessions(found, at)
    with several:
        served = found.pop("serve", Serve())
        found["serve"] = from_environment(served, environ)
    several.settle()
    secrets = _secrets(source, url)
    config = Config(
        path=path,
        servers=servers,
        origins=origins,
        store_url=url or found.pop("store_url", _beside(source)),
        secrets=secrets,
        short_secrets=source.secrets.short,
        sha256=hashlib.sha256(data).hexdigest(),
        files=(path, *imports),
        **found,
    )
    with several:
        config = guarding(config, at, environ)
    checks = check_tool_names, check_exposed, check_sources, check_calls
    for check in (*checks, check_schedules):
        with several:
            check(config, at)
    several.settle()
    if config.mcp:
        _warn_of_unknown_servers(config, at)
    else:
        at.key("mcp").key("enabled").warn("all tool servers are off")
    _warn_of_placeholders(config, at)
    return replace(config, warnings=tuple(dict.fromkeys(source.warnings)))


def _warn_of_unknown_servers(config: Config, at: At) -> None:
    """Warn of rules and names that match no server; another file may have it."""
    known = [*config.servers, *([SERVER] if config.webhooks else []), AGENTS]
    for name, one in config.agents.items():
        here = at.key("sessions" if one.session else "agents").key(name)
        for rule in (*one.grant.allow, *one.grant.deny):
            for pattern in rule.tools:
                if not any(map(pattern.covers_server, known)):
                    _warn_of_unknown_server(pattern.text, known, here.key(rule.id))
                server, callee = pattern.literal or ("", "")
                if server == AGENTS and callee not in config.agents:
                    here.key(rule.id).warn(f"there is no agent {callee}")
        for own, (server_of, tool) in one.names.items():
            if server_of not in known:
                _warn_of_unknown_server(
                    f"{server_of}/{tool}", known, here.key("names").key(own)
                )


def _warn_of_placeholders(config: Config, at: At) -> None:
    """Warn of placeholders in prompts that will not be replaced."""
    known = {*config.context, *BUILT_IN, "resources"}
    for name, one in config.agents.items():
        here = at.key("agents").key(name).key("prompt")
        for placeholder in named(one.prompt or ""):
            variable = config.context.get(placeholder)
            if variable and variable.private:
                here.warn(
                    f"{{{placeholder}}} is not replaced: that variable is private"
                )
            elif not {placeholder, placeholder.partition(".")[0]} & known:
                here.warn(
                    f"{{{placeholder}}} is not replaced: there is no such variable"
                )


def _warn_of_unknown_server(target: str, known: list[str], at: At) -> None:
    close = nearest(target.partition("/")[0], known)
    hint = f"; did you mean {close}?" if close else ""
    at.warn(f"no server matches {target}{hint}")


def import_servers(
    path: Path, data: bytes, source: Source, taken: Container[str], *, host: Path
) -> dict[str, ServerConfig]:
    """
    Return the servers in a file of another program, by valid names.

    Args:
        path: The file.

        data: What it holds.

        source: Where warnings and secrets go.

        taken: Names that ``caxton.toml`` or an earlier import gave; these win, and
            what the file says of them is not read.

        host: The configuration. The entries of its own host are left out.

    Raises:
        ConfigError: The file is broken, or a server in it cannot be.
    """
    source = replace(source, folder=workspace(path), imported=True, lines=Lines(""))
    text = plain_json(data, At(source=source))
    at = At(source=replace(source, lines=Lines(text, is_json=True)))
    tree = parse_json(data, at)
    key = "mcpServers" if "mcpServers" in tree else "servers"
    if key not in tree:
        raise at.error(
            "has neither mcpServers nor servers",
            fix="import a file of Claude Desktop, Claude Code, Cursor or VS Code",
        )
    at = at.key(key)
    found: dict[str, ServerConfig] = {}
    several = ErrorCollector()
    for original, values in f.table(tree[key], at, '{"NAME": {...}}').items():
        here = at.key(original)
        if is_host(values, host):
            continue
        with several:
            name = fitting(original, here)
            if name in taken:
                here.warn(f"ignored: another file already defines a server {name}")
            elif name in found:
                raise here.error(
                    f"two servers have the name {name}", fix="rename one of them"
                )
            elif not servers.disabled(values, here):
                found[name] = servers.server(values, here, name)
    several.settle()
    return found


def workspace(path: Path) -> Path:
    """Return where relative paths start: `.vscode` is not the project."""
    folder = path.parent
    return folder.parent if folder.name in FOLDERS else folder


def fitted_name(name: str) -> str:
    """
    Return a server name without what is not allowed in it; it may be empty.

    >>> fitted_name("my server")
    'my-server'
    """
    fitted = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return re.sub(r"_+", "_", fitted).strip("_.-")[:64].rstrip("_")


def fitting(name: str, at: At) -> str:
    """
    Return a valid server name, with a warning if it is another.

    Raises:
        ConfigError: Nothing valid is left of it.
    """
    fitted = fitted_name(name)
    if fitted in {SERVER, AGENTS} or not is_server_name(fitted):
        raise at.error("is not a valid server name", fix="rename it there")
    if fitted != name:
        at.warn(f"is named {fitted} here")
    return fitted


def check_tool_names(config: Config, at: At) -> None:
    """
    Check that no two tools have the same exposed name.

    Raises:
        ConfigError: One is invalid. It points at an ``expose_as``.
    """
    said = _said(config, at)
    granted = [one.grant.literals() for one in config.agents.values()]
    unsaid = {*said, *(target for targets in granted for target in targets)}
    unsaid -= {target for target, (name, _) in said.items() if name}
    taken = {exposed_name(*target): target for target in unsaid}
    for target, (name, where) in said.items():
        if name and taken.setdefault(name, target) != target:
            raise where.error(
                f"is also the name of {'/'.join(taken[name])}",
                fix="write another name",
            )


def _said(config: Config, at: At) -> dict[tuple[str, str], tuple[str | None, At]]:
    """Return the configured name of each tool with a table, and its place."""
    found: dict[tuple[str, str], tuple[str | None, At]] = {}
    for server, one in config.servers.items():
        here = at.key("servers").key(server).key("tools")
        for tool, options in one.tools.items():
            place = here.key(tool).key("expose_as")
            found[server, tool] = options.expose_as, place
    for name, hook in config.webhooks.items():
        place = at.key("webhooks").key(name).key("expose_as")
        found[SERVER, name] = hook.expose_as, place
    return found
