"""``caxton run``: run an agent or a module to its end."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from click.exceptions import Exit

from ..core.log.projection import summarise
from ..core.programs import LANGUAGES
from .context import HostApi, StartOptions, on_host
from .options import narrow_option, overrides, variable_option
from .output import FAILED
from .run_input import RunInput, run_input


@on_host(click.command("run"))
@click.argument("target", metavar="AGENT|FILE|-")
@run_input
@variable_option
@overrides
@narrow_option
@click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    help="The language of the program; default by its suffix.",
)
@click.option("--entry", help="The exported function to call; default run.")
@click.option("--fail-on-denied", is_flag=True, help="Exit 1 if a call was denied.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the output.")
def command(
    host: HostApi,
    target: str,
    input_: RunInput,
    fail_on_denied: bool,
    **more: Any,  # noqa: ANN401 -- the other fields of StartOptions
) -> None:
    """
    Run an agent, a program or a module to its end.

    A program is a file in Python (.py), JavaScript (.js) or TypeScript (.ts), or - for
    stdin. The output goes to stdout, the report to stderr. A file that is not a
    configured agent gets only the grants of --allow.

    --narrow gives the run less than the grant: each call needs the permission of both.
    A value is a tool pattern, a rule as an inline table, or a file with [[allow]] and
    [[deny]] tables. Several are rules of one narrowing.

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
      caxton run report.py --input-text @sales.csv
      caxton run support --narrow 'crm/lookup_*' --narrow less.toml
      caxton run payer --narrow '{tools=["bank/pay"], calls=2, params.sum={max=9}}'
      caxton run weather --wire-log=wire.log
    """
    read = partial(input_.read, taken=target == "-")
    code, recording = host.start(StartOptions(target=target, input=read, **more))
    calls = summarise(recording.run_id, recording.own).calls
    if code == 0 and fail_on_denied and calls["denied"]:
        code = FAILED
    raise Exit(code)
