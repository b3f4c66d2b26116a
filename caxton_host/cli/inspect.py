"""``caxton agent inspect``: what a module says, asks for, and would be refused for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.calls import JSON
from ..core.limits import Limits
from ..errors import ModuleRefused
from ..runs.modules import read_module
from .context import Frame, as_json, wait
from .exits import USAGE
from .output import complain, counted, note, patience, say, show, table, to_json

if TYPE_CHECKING:
    from ..core.tools.manifest import Manifest
    from ..sandbox.binary import ModuleInfo


_CORE = b"\0asm\1\0\0\0"
_MIB = 1024 * 1024
_PAGE = 65_536


@dataclass(slots=True, kw_only=True)
class _Found:
    """What could be read of a module, and the first thing that speaks against it."""

    module: bytes
    info: ModuleInfo | None = None
    manifest: Manifest | None = None
    problem: ModuleRefused | None = None

    @property
    def kind(self) -> str:
        return "core module" if self.module.startswith(_CORE) else "component"

    def to_document(self, path: Path) -> dict[str, JSON]:
        from ..lib.codec import sha256

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


@click.command("inspect")
@click.argument("file", metavar="FILE.wasm", type=click.Path(path_type=Path))
@click.option("--entry", default="run", show_default=True, help="Its entry point.")
@click.option("--compile", "compiling", is_flag=True, help="Compile it, too.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    file: Path,
    entry: str,
    compiling: bool,
    as_json: bool,
) -> None:
    """
    Show what FILE.wasm says of itself, and whether a host would take it.

    Nothing of it is executed, and a manifest grants nothing. Whether a host would
    take it is said for the default limits; compiling it is the last thing that can
    go wrong, and is only tried with --compile.

    \b
    Exit codes: 0 a host would take it; 2 it would not, and why.

    \b
    Examples:
      caxton agent inspect hello.wasm
      caxton agent inspect hello.wasm --compile --json
    """
    found = _look(read_module(file, Limits().module), entry)
    if compiling and found.problem is None:
        with patience(f"compiling {file}"):
            found.problem = wait(_compile(frame, found.module, entry))
    if as_json:
        show(found.to_document(file))
    else:
        _tell(found, file)
    if found.problem is not None:
        complain(f"{file}: {found.problem}", found.problem.fix)
        ctx.exit(USAGE)


def _look(module: bytes, entry: str) -> _Found:
    from ..runs.modules import read_manifest
    from ..sandbox.gate import check, inspect

    found = _Found(module=module)
    try:
        found.info = inspect(module)
        check(module, Limits(), entry)
    except ModuleRefused as exc:
        found.problem = exc
    try:
        found.manifest = read_manifest(module)
    except ModuleRefused as exc:
        found.problem = found.problem or exc
    return found


async def _compile(frame: Frame, module: bytes, entry: str) -> ModuleRefused | None:
    from ..app.bootstrap import open_sandbox
    from ..core.limits import Places

    async with open_sandbox(frame.paths(), Places()) as sandbox:
        try:
            await sandbox.prepare(module, Limits(), entry)
        except ModuleRefused as exc:
            return exc
    return None


def _port(port: Any) -> JSON:  # noqa: ANN401 -- an import or an export
    names = ("module", "name", "kind", "type")
    return {name: getattr(port, name) for name in names if hasattr(port, name)}


def _tell(found: _Found, path: Path) -> None:
    from ..lib.codec import sha256

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
    """Return names, those of one module after its name."""
    groups: dict[str, list[str]] = {}
    for port in ports:
        groups.setdefault(getattr(port, "module", ""), []).append(port.name)
    shown = (
        f"{module} ({', '.join(names)})" if module else ", ".join(names)
        for module, names in groups.items()
    )
    return "; ".join(shown) or "nothing"
