"""``caxton tool stubs``: the types of tools as a file for editors."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.grants.visible_tools import typed_tools
from ..core.tools.stubs import python_stub, typescript_stub
from ..errors import UsageError
from . import completion
from .context import HostApi, check_known, on_host
from .options import variable_option
from .output import counted, note, pour, show

_PRINTERS = {"python": python_stub, "typescript": typescript_stub}
_SUFFIXES = {".pyi": "python", ".d.ts": "typescript"}


@on_host(click.command("stubs"))
@click.argument("server", required=False, shell_complete=completion.servers)
@click.option(
    "--agent",
    shell_complete=completion.agents,
    help="Only what this agent may call, by its names.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file: tools.pyi or tools.d.ts; default stdout.",
)
@click.option(
    "--lang",
    type=click.Choice([*_PRINTERS]),
    help="The language; default that of the file, or python.",
)
@variable_option
def command(
    host: HostApi,
    server: str | None,
    agent: str | None,
    output: Path | None,
    lang: str | None,
    variables: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Print the types of tools for an editor.

    The signatures are made from the schemas of the tools of SERVER, or of all servers.

    \b
    Exit codes: 0 written; 2 no such server or agent; 6 the server is unavailable.

    \b
    Examples:
      caxton tool stubs --agent report -o tools.pyi
      caxton tool stubs time -o tools.d.ts
      caxton tool stubs time
    """
    lang = lang or _language(output)
    about = None
    if agent is not None:
        agents = {str(one["name"]): one for one in host.agents()}
        check_known(agent, agents, f"there is no agent {agent!r}", "caxton agent list")
        about = agents[agent]
    found = typed_tools(host.tools(server, variables), about)
    text = _PRINTERS[lang](found)
    if output is not None:
        _write(output, text)
    if as_json:
        show(
            {
                "$type": "caxton.stubs/v1",
                "lang": lang,
                "path": None if output is None else str(output),
                "tools": [tool.exposed for tool in found],
                "text": text,
            }
        )
    elif output is None:
        pour(text.rstrip("\n"))
    else:
        note(f"{output}: {counted(len(found), 'tool')}")


def _language(output: Path | None) -> str:
    if output is None:
        return "python"
    for suffix, lang in _SUFFIXES.items():
        if output.name.endswith(suffix):
            return lang
    raise UsageError(
        f"{output}: the name tells no language of stubs",
        fix="name it tools.pyi or tools.d.ts, or add --lang",
    )


def _write(output: Path, text: str) -> None:
    try:
        output.write_text(text, "utf-8")
    except OSError as exc:
        raise UsageError(
            f"{output} cannot be written: {exc.strerror}",
            fix="name a file in a folder that you may write to",
        ) from None
