"""``caxton program``: lock the dependencies of programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ..core.calls import JSON
from .context import HostApi, on_host, wait
from .output import Doing, counted, note, patience, say, show, table
from .runtime import installed

if TYPE_CHECKING:
    from ..building.locking import Locked


@click.group("program")
def command() -> None:
    """
    Lock the dependencies of programs.

    \b
    Examples:
      caxton program lock report.py
    """


def _programs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    del ctx, param
    folder = Path(incomplete).parent
    found = [*folder.glob("*.py"), *(one for one in folder.glob("*/") if one.is_dir())]
    names = sorted(f"{one}/" if one.is_dir() else str(one) for one in found)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@on_host(command.command("lock"))
@click.argument(
    "program",
    metavar="FILE.py",
    type=click.Path(path_type=Path),
    shell_complete=_programs,
)
def lock(host: HostApi, program: Path, as_json: bool) -> None:
    """
    Resolve, compile and lock the dependencies of FILE.py.

    The dependencies are those of its inline metadata (PEP 723). pip resolves them to
    wheels without parts in C, and the sandbox compiles these. FILE.py.lock and
    FILE.py.packages are written beside the program; a run needs both and installs
    nothing.

    \b
    Exit codes: 0 locked; 2 it names no dependencies, or they cannot be locked.

    \b
    Examples:
      caxton program lock report.py
      caxton program lock report.py --json
    """
    from ..building.locking import metadata_in

    metadata_in(program)  # Before a runtime is built.
    runtime = installed(host, "python", quiet=False)
    with patience(f"locking {program}") as doing:
        made = wait(_lock(host, program, runtime.read_bytes(), doing))
    if as_json:
        show(_document(made))
        return
    table(
        ("package", "version", "sha256 of its wheel"),
        ((one["name"], one["version"], one["sha256"]) for one in made.lock.packages),
    )
    for file in made.left_out:
        note(f"warning: {file} is not valid Python {made.lock.python}; left out")
    say(f"{made.path}  {counted(made.modules, 'module')}, {made.size:,} bytes")


async def _lock(host: HostApi, program: Path, runtime: bytes, doing: Doing) -> Locked:
    from ..app.bootstrap import open_sandbox
    from ..building.locking import Compiler
    from ..building.locking import lock as lock_program
    from ..core.limits import Places

    def begins(step: str) -> None:
        doing.tell = lambda: step

    compiling = partial(
        doing.part, "compiling the python runtime, once on this machine"
    )
    async with open_sandbox(host.paths(), Places(), compiling=compiling) as sandbox:
        compiler = await Compiler.of(sandbox, runtime)
        return await lock_program(program, compiler, begins)


def _document(made: Locked) -> dict[str, JSON]:
    return {
        "$type": "caxton.lock/v1",
        "path": str(made.path),
        "python": made.lock.python,
        "packages": [{**one} for one in made.lock.packages],
        "modules": made.modules,
        "left_out": [*made.left_out],
        "size": made.size,
        "sha256": made.lock.sha256,
    }
