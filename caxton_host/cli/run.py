"""``caxton run``: run an agent or a module to its end."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import cast

import click

from ..core.calls import JSON
from ..core.log.runs import summarise
from ..core.programs import LANGUAGES, Language
from ..errors import BadBytes, UsageError
from .context import HostApi, StartOptions, as_json
from .options import input_option, overrides, variable_option
from .output import FAILED
from .overrides import Overrides

_MAX_INPUT = 64 * 1024 * 1024


@click.command("run")
@click.argument("target", metavar="AGENT|FILE|-")
@input_option
@variable_option
@overrides
@click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    help="The language of the program; default by its suffix.",
)
@click.option("--entry", help="The exported function to call; default run.")
@click.option("--fail-on-denied", is_flag=True, help="Exit 1 if a call was denied.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the output.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    host: HostApi,
    target: str,
    input_: str | None,
    variables: tuple[str, ...],
    given: Overrides,
    language: str | None,
    entry: str | None,
    fail_on_denied: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """
    Run an agent, a program or a module to its end.

    A program is a file in Python (.py), JavaScript (.js) or TypeScript (.ts), or - for
    stdin. The output goes to stdout, the report to stderr. A file that is not a
    configured agent gets only the grants of --allow.

    \b
    Exit codes: 0 the agent returned 0; 1 it failed; 2 usage or configuration;
    3 the run is suspended; 6 a required server is unavailable.

    \b
    Examples:
      caxton run weather -i '{"location": "Seattle"}'
      caxton run report.py --allow 'crm/lookup_*'
      caxton run - --language javascript
      caxton run hello.wasm --server time="python -m mcp_server_time" \\
          --allow time/get_current_time
      caxton run report -i @input.json --var customer_id=42 --json
      caxton run weather --wire-log=wire.log
    """
    code, recording = host.start(
        StartOptions(
            given=given,
            variables=variables,
            quiet=quiet,
            as_json=as_json,
            target=target,
            language=cast("Language | None", language),
            input=partial(input_of, input_, taken=target == "-"),
            entry=entry,
        )
    )
    calls = summarise(recording.run_id, recording.own).calls
    if code == 0 and fail_on_denied and calls["denied"]:
        code = FAILED
    ctx.exit(code)


def input_of(text: str | None, *, taken: bool) -> JSON:
    """
    Return the value of ``--input``.

    Args:
        text: As typed.

        taken: Stdin is the program.

    Raises:
        UsageError: It cannot be read, or is not JSON.
    """
    from ..lib.codec import load_json

    if text is None:
        return None
    if text == "-" and taken:
        raise UsageError(
            "stdin cannot be both the program and the input",
            fix="write the input to a file: --input @input.json",
        )
    try:
        if text == "-":
            raw = sys.stdin.buffer.read(_MAX_INPUT + 1)
        elif text.startswith("@"):
            with Path(text[1:]).open("rb") as file:
                raw = file.read(_MAX_INPUT + 1)
        else:
            raw = os.fsencode(text)
        return load_json(raw, limit=_MAX_INPUT)
    except OSError as exc:
        raise UsageError(
            f"cannot read the input {text[1:]}: {exc.strerror}",
            fix="name a file that exists, after @",
        ) from None
    except BadBytes as exc:
        raise UsageError(
            f"--input: {exc}", fix='pass JSON, for example \'{"location": "Seattle"}\''
        ) from None
