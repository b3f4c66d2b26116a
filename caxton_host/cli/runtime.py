"""``caxton runtime``: the runtimes that execute programs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..core.calls import JSON
from ..core.programs import RUNTIMES, Runtime
from ..errors import UsageError
from .context import HostApi, on_host
from .output import note, patience, say, show, table, ticker

if TYPE_CHECKING:
    from ..building.runtimes import Installed, RuntimeFolder

_runtime = click.argument(
    "runtime", metavar="|".join(RUNTIMES), type=click.Choice(RUNTIMES)
)


@click.group("runtime")
def command() -> None:
    """
    List, install, export and import runtimes.

    A runtime executes programs in one language. It is built once a machine, from
    packages that are installed already; that of JavaScript by this command only.

    \b
    Examples:
      caxton runtime list
      caxton runtime install python
    """


def folder_of(host: HostApi) -> RuntimeFolder:
    """Return the runtimes of this machine."""
    from ..building.runtimes import RuntimeFolder

    return RuntimeFolder(host.paths().cache / "runtimes")


def installed(host: HostApi, runtime: Runtime, *, quiet: bool = False) -> Path:
    """
    Return the file of a runtime, which is built if it is not there.

    Raises:
        UsageError: It cannot be built, or is only built by command.
    """
    folder = folder_of(host)
    if found := folder.find(runtime):
        return found
    if folder.fetches(runtime):
        return folder.installed(runtime)
    return _build(folder, runtime, quiet=quiet)


def _build(
    folder: RuntimeFolder, runtime: Runtime, *, quiet: bool, typescript: bool = False
) -> Path:
    doing = f"building the {runtime} runtime, once on this machine"
    if not quiet and not sys.stderr.isatty():
        note(doing)
    progress = None if quiet else ticker(f"building the {runtime} runtime")
    with patience(doing, quiet=quiet) as shown:
        return folder.build(
            runtime,
            progress,
            typescript=typescript,
            waiting=partial(
                shown.part, f"waiting: another process builds the {runtime} runtime"
            ),
        )


@on_host(command.command("list"))
def list_(host: HostApi, as_json: bool) -> None:
    """
    List the runtimes on this machine.

    \b
    Examples:
      caxton runtime list
      caxton runtime list --json
    """
    found = folder_of(host).list()
    if as_json:
        show([_document(one) for one in found])
        return
    if not found:
        note("no runtime is installed; caxton run FILE.py installs one")
        return
    table(
        ("runtime", "file", "origin", "bytes", "sha256", "used"),
        [
            (
                one.runtime,
                one.path.stem,
                one.origin,
                f"{one.size:,}",
                one.sha256[:12],
                "yes" if one.used else "",
            )
            for one in found
        ],
    )


@on_host(command.command("install"))
@_runtime
@click.option("--typescript", is_flag=True, help="Include what erases types, from npm.")
def install(host: HostApi, runtime: str, typescript: bool, as_json: bool) -> None:
    """
    Build a runtime, unless it is installed.

    That of JavaScript is compiled from a source that pip downloads.

    \b
    Exit codes: 0 installed; 2 a build tool is missing.

    \b
    Examples:
      caxton runtime install python
      caxton runtime install javascript --typescript
    """
    name = cast("Runtime", runtime)
    if typescript and name != "javascript":
        raise UsageError(
            f"--typescript does not apply to {name}",
            fix="caxton runtime install javascript --typescript",
        )
    folder = folder_of(host)
    found = None if typescript else folder.find(name)
    path = found or _build(folder, name, quiet=False, typescript=typescript)
    _tell(host, path, as_json=as_json)


@on_host(command.command("export"))
@_runtime
@click.argument("file", metavar="FILE.wasm", type=click.Path(path_type=Path))
def export(host: HostApi, runtime: str, file: Path, as_json: bool) -> None:
    """
    Write a runtime to a file, for machines without build tools.

    The file holds the runtime itself, never compiled code.

    \b
    Examples:
      caxton runtime export python python.wasm
    """
    path = folder_of(host).installed(cast("Runtime", runtime))
    try:
        file.write_bytes(path.read_bytes())
    except OSError as exc:
        raise UsageError(
            f"cannot write {file}: {exc.strerror}",
            fix="name a file in a folder that you may write to",
        ) from None
    _tell(host, path, as_json=as_json, to=file)


@on_host(command.command("import"))
@_runtime
@click.argument("file", metavar="FILE.wasm", type=click.Path(path_type=Path))
def import_(host: HostApi, runtime: str, file: Path, as_json: bool) -> None:
    """
    Install a runtime from a file that was exported.

    It is used if this machine has not built one. It runs confined like any agent.

    \b
    Examples:
      caxton runtime import python python.wasm
    """
    _tell(host, folder_of(host).take(cast("Runtime", runtime), file), as_json=as_json)


def _tell(host: HostApi, path: Path, *, as_json: bool, to: Path | None = None) -> None:
    one = next(each for each in folder_of(host).list() if each.path == path)
    if as_json:
        show(_document(one))
    else:
        say(f"{to or one.runtime}  {one.size:,} bytes  sha256 {one.sha256}")


def _document(one: Installed) -> dict[str, JSON]:
    return {
        "$type": "caxton.runtime/v1",
        "runtime": one.runtime,
        "path": str(one.path),
        "bytes": one.size,
        "sha256": one.sha256,
        "origin": one.origin,
        "used": one.used,
    }
