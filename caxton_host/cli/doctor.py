"""``caxton doctor``: what this machine lacks."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version

import click

from .context import Frame, as_json
from .exits import FAILED
from .output import complain, say, show


@click.command("doctor")
@as_json
@click.pass_obj
@click.pass_context
def command(ctx: click.Context, frame: Frame, as_json: bool) -> None:
    """
    Say which guards of the sandbox this machine has, and what is missing.

    \b
    Exit codes: 0 every guard is there; 1 one is missing.

    \b
    Examples:
      caxton doctor
      caxton doctor --json
    """
    from ..sandbox.confine import guards

    found = guards()
    paths = frame.paths()
    missing = [guard.name for guard in found if not guard.available]
    if as_json:
        show(
            {
                "$type": "caxton.doctor/v1",
                "platform": f"{platform.system()} {platform.release()}",
                "python": platform.python_version(),
                "wasmtime": version("wasmtime"),
                "mcp": version("mcp"),
                "guards": [
                    {"name": g.name, "available": g.available, "why": g.why}
                    for g in found
                ],
                "missing": [*missing],
            }
        )
    else:
        say(f"platform  {platform.system()} {platform.release()}")
        say(f"python    {platform.python_version()}  {sys.executable}")
        say(f"wasmtime  {version('wasmtime')}, mcp {version('mcp')}")
        say(f"keys      {paths.state}")
        say(f"cache     {paths.cache}")
        for guard in found:
            sign = "ok" if guard.available else "missing"
            say(f"guard     {guard.name:<14} {sign}  {guard.why}".rstrip())
    if missing:
        complain(
            f"this machine lacks {', '.join(missing)}: workers are confined less",
            "use what stands beside each; agents that you trust run as they are",
        )
        ctx.exit(FAILED)
