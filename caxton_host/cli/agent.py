"""``caxton agent``: create, build, list and inspect agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit
from click.shell_completion import CompletionItem

from ..core.analysis.checking import astray
from ..core.calls import JSON
from ..core.commands import entry_of
from ..core.limits import Limits, Places
from ..errors import CaxtonError, ModuleRefused
from ..lib.codec import sha256
from ..runs.modules import Library, read_manifest, read_module
from .agent_pins import COMMANDS
from .config import without_type
from .context import HostApi, as_json, on_host, wait
from .dev import command as dev
from .output import (
    USAGE,
    awaiting,
    complain,
    counted,
    note,
    patience,
    say,
    show,
    table,
    ticker,
    to_json,
)

if TYPE_CHECKING:
    from ..core.tools.manifest import Manifest
    from ..sandbox.binary import ModuleInfo


@click.group("agent")
@click.pass_context
def command(ctx: click.Context) -> None:
    """
    Create, build, inspect and sign agents.

    \b
    Examples:
      caxton agent new hello --lang rust
      caxton agent dev report.py
      caxton agent build hello
      caxton agent sign hello.wasm --key release.key
      caxton agent inspect hello.wasm
    """
    host: HostApi = ctx.obj
    if ctx.invoked_subcommand != "list":
        host.check_local(f"caxton agent {ctx.invoked_subcommand}")


def _languages(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from ..building import languages

    del ctx, param
    return [CompletionItem(name) for name in languages() if name.startswith(incomplete)]


for one in (dev, *COMMANDS):
    command.add_command(one)


@command.command("new")
@click.argument("name")
@click.option(
    "--lang",
    default="c",
    show_default=True,
    shell_complete=_languages,
    help="The language: c, rust, ...",
)
@as_json
def new(name: str, lang: str, as_json: bool) -> None:
    """
    Create the folder NAME with a working agent.

    \b
    Examples:
      caxton agent new hello
      caxton agent new hello --lang rust
    """
    from ..building import new_agent

    folder = new_agent(name, lang, Path.cwd())
    if as_json:
        files = sorted(entry.name for entry in folder.iterdir())
        show({"$type": "caxton.agent-folder/v1", "name": name, "files": [*files]})
        return
    say(f"{name}/")
    note(f"next: caxton agent build {name}")


@on_host(command.command("build"))
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--lang",
    shell_complete=_languages,
    help="The language, if the folder has several sources.",
)
@click.option(
    "-o",
    "--into",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the module; default the current one.",
)
@click.option("--no-compile", is_flag=True, help="Leave machine code to the first run.")
def build(
    host: HostApi,
    folder: Path,
    lang: str | None,
    into: Path,
    no_compile: bool,
    as_json: bool,
) -> None:
    """
    Compile the agent in FOLDER to a module.

    The module is named like the folder. Its language is that of the source: agent.c,
    agent.rs, ... agent.toml becomes the manifest of the module. The same source and
    tools give the same bytes. The module is then compiled to machine code, which the
    first run would do otherwise.

    \b
    Exit codes: 0 built; 2 a build tool is missing, or the source does not compile, or
    an agent pins another module: it is written, and not compiled to machine code.

    \b
    Examples:
      caxton agent build hello
      caxton agent build hello --into agents
      caxton agent build weather --lang rust --json
    """
    from ..building import build_agent

    with patience(f"compiling {folder}"):
        built = build_agent(
            folder,
            lang=lang,
            into=into,
            cache=host.paths().cache / "build",
            progress=ticker(f"compiling {folder}"),
        )
    _check_pins(host, built.path)
    if not no_compile:
        _fill_cache(host, built.path)
    if as_json:
        show(
            {
                "$type": "caxton.module/v1",
                "path": str(built.path),
                "lang": built.lang,
                "size": built.size,
                "sha256": built.sha256,
            }
        )
    for problem in without_type(_untyped(built.path)):
        note(f"warning: agent.toml: {problem}")
    if as_json:
        return
    say(f"{built.path}  {built.size} bytes  sha256 {built.sha256}")
    _warn_of_strangers(host, built.path)
    note(f"next: caxton run {built.path}")


def _check_pins(host: HostApi, module: Path) -> None:
    """Refuse a module that an agent's pin does not allow, before it is compiled."""
    try:
        agents = host.load(quiet=True).executed.values()
    except CaxtonError:  # An agent is built without a configuration, too.
        return
    for agent in agents:
        if agent.pin and agent.module and agent.module.resolve() == module.resolve():
            Library().check_pin(agent)


def _fill_cache(host: HostApi, path: Path) -> None:
    """Compile a module, so that its first run need not."""
    module = path.read_bytes()
    with awaiting(f"compiling {path} for this machine"):
        try:
            refused = wait(_compile(host, module, "run"))
        except CaxtonError as exc:  # A machine that builds need not run.
            refused = exc
    if refused is not None:
        note(f"warning: {path}: {refused}")


def _warn_of_strangers(host: HostApi, module: Path) -> None:
    """Warn about tools in a manifest that the configured servers do not have."""
    from .server_probe import known

    manifest = read_manifest(module.read_bytes())
    wanted = [tool.name for tool in manifest.tools] if manifest else []
    targets = [name.split("/") for name in wanted if name.count("/") == 1]
    if not targets:
        return
    with suppress(CaxtonError):  # An agent is built without a configuration, too.
        offered = known(host.load(), start=False)
        for server, tool in targets:
            if lost := astray(tool, (server, tool), offered):
                note(f"warning: agent.toml asks for {server}/{tool}: {lost}")


def _untyped(module: Path) -> Sequence[str]:
    from ..core.tools.schemas import untyped

    manifest = read_manifest(module.read_bytes())
    return untyped(manifest.input_schema) if manifest else ()


@on_host(command.command("list"))
def list_(host: HostApi, as_json: bool) -> None:
    """
    List the configured agents.

    \b
    Examples:
      caxton agent list
    """
    agents = host.agents()
    if as_json:
        show([{**agent} for agent in agents])
        return
    table(
        ("agent", "module", "pinned by", "may call"),
        (
            (
                agent["name"],
                agent["module"],
                _pinned_by(agent["pin"]),
                ", ".join(
                    tool for rule in agent["grants"]["allow"] for tool in rule["tools"]
                ),
            )
            for agent in agents
        ),
    )
    if not agents:
        note("no agent is configured; `caxton init` writes a configuration with one")


def _pinned_by(pin: Mapping[str, Any] | None) -> str:
    """
    Return what a pin demands.

    >>> _pinned_by({"sha256": ["ab"], "signers": ["RWQ"]}), _pinned_by(None)
    ('sha256, signers', '')
    """
    return ", ".join(key for key, given in (pin or {}).items() if given)


_CORE = b"\0asm\1\0\0\0"
_MIB = 1024 * 1024
_PAGE = 65_536


@dataclass(slots=True, kw_only=True)
class _Found:
    """What a module contains, and the first reason to refuse it."""

    module: bytes
    info: ModuleInfo | None = None
    manifest: Manifest | None = None
    problem: CaxtonError | None = None

    @property
    def kind(self) -> str:
        return "core module" if self.module.startswith(_CORE) else "component"

    def to_document(self, path: Path) -> dict[str, JSON]:

        info, problem, manifest = self.info, self.problem, self.manifest
        why: JSON = {"message": str(problem), "fix": problem.fix} if problem else None
        return {
            "$type": "caxton.inspection/v1",
            "path": str(path),
            "size": len(self.module),
            "sha256": sha256(self.module),
            "accepted": problem is None,
            "problem": why,
            "manifest": manifest.to_payload() if manifest else None,
            "kind": self.kind if info else None,
            "imports": [_port(port) for port in info.imports] if info else [],
            "exports": [_port(port) for port in info.exports] if info else [],
            "memory": sum(one.minimum for one in info.memories) * _PAGE if info else 0,
            "functions": info.functions if info else 0,
        }


@on_host(command.command("inspect"))
@click.argument("file", metavar="FILE.wasm", type=click.Path(path_type=Path))
@click.option(
    "--entry", default="run", show_default=True, help="The exported function to call."
)
@click.option("--compile", "compiling", is_flag=True, help="Also compile it.")
def inspect(
    host: HostApi,
    file: Path,
    entry: str,
    compiling: bool,
    as_json: bool,
) -> None:
    """
    Show the manifest of FILE.wasm, and whether hosts accept it.

    The module is not executed, and a manifest grants nothing. The default limits
    decide whether a host accepts it. The last check is to compile it, with --compile.

    \b
    Exit codes: 0 hosts accept it; 2 they refuse it.

    \b
    Examples:
      caxton agent inspect hello.wasm
      caxton agent inspect hello.wasm --compile --json
    """
    found = _look(read_module(file, Limits().module), entry)
    if compiling and found.problem is None:
        with patience(f"compiling {file}"):
            found.problem = wait(_compile(host, found.module, entry))
    if as_json:
        show(found.to_document(file))
    else:
        _tell(found, file)
    if found.problem is not None:
        complain(f"{file}: {found.problem}", found.problem.fix)
        raise Exit(USAGE)


def _look(module: bytes, entry: str) -> _Found:
    from ..sandbox.gate import check
    from ..sandbox.gate import inspect as inspect_module

    found = _Found(module=module)
    try:
        found.info = inspect_module(module)
        check(module, Limits().of(module), entry_of(module, entry))
    except ModuleRefused as exc:
        found.problem = exc
    try:
        found.manifest = read_manifest(module)
    except ModuleRefused as exc:
        found.problem = found.problem or exc
    return found


async def _compile(host: HostApi, module: bytes, entry: str) -> CaxtonError | None:
    from ..app.bootstrap import open_sandbox

    async with open_sandbox(host.paths(), Places()) as sandbox:
        try:
            await sandbox.prepare(module, Limits(), entry_of(module, entry))
        except ModuleRefused as exc:
            return exc
    return None


def _port(port: Any) -> JSON:  # noqa: ANN401 -- an import or an export
    names = ("module", "name", "kind", "type")
    return {name: getattr(port, name) for name in names if hasattr(port, name)}


def _tell(found: _Found, path: Path) -> None:

    rows: list[tuple[str, str]] = []
    if manifest := found.manifest:
        rows.append(("name", f"{manifest.name} {manifest.version}".rstrip()))
        rows += [("says", line) for line in [manifest.description] if line]
    rows += [
        ("size", f"{len(found.module):,} bytes"),
        ("sha256", sha256(found.module)),
    ]
    if info := found.info:
        memory = sum(one.minimum for one in info.memories) * _PAGE / _MIB
        rows += [
            ("kind", f"{found.kind}, {counted(info.functions, 'function')}"),
            ("memory", f"{memory:.1f} MiB to begin with"),
            ("imports", _ports(info.imports)),
            ("exports", _ports(info.exports)),
        ]
    if manifest:
        rows += [(f"wants {tool.name}", tool.reason) for tool in manifest.tools]
        for key in ("input_schema", "output_schema"):
            schema = getattr(manifest, key)
            rows += [(key, to_json(schema))] if schema is not None else []
    table(("of it", "is"), rows)
    if found.problem is None:
        say("a host would take it")
        if manifest and manifest.tools:
            note(f"next: caxton grant suggest --manifest {path}")


def _ports(ports: tuple[Any, ...]) -> str:
    """Return names, grouped by module."""
    groups: dict[str, list[str]] = {}
    for port in ports:
        groups.setdefault(getattr(port, "module", ""), []).append(port.name)
    shown = (
        f"{module} ({', '.join(names)})" if module else ", ".join(names)
        for module, names in groups.items()
    )
    return "; ".join(shown) or "nothing"
