"""``caxton server logs``: what a tool server writes for people."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress

import click

from ..errors import NotFoundError
from . import completion
from .context import Frame, as_json
from .output import say, show

#: Seconds between two looks at a file that is followed.
_PAUSE = 0.2


@click.command("logs")
@click.argument("name", shell_complete=completion.servers)
@click.option(
    "-n",
    "--lines",
    "number",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="So many of the last.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@as_json
@click.pass_obj
def logs(frame: Frame, name: str, number: int, follow: bool, as_json: bool) -> None:
    """
    Show what the server NAME wrote on its standard error, without secrets.

    Every host of this user writes to the same file, also caxton server test. Lines
    that begin with -- are the host's own.

    \b
    Examples:
      caxton server logs demo
      caxton server logs demo -n 20 --follow
    """
    from ..core.text.redact import Redactor
    from ..mcp.transport.serverlog import LogFile, Tail
    from .server import check

    config = frame.load()
    check(config, name)
    if config.servers[name].url is not None:
        raise NotFoundError(
            f"{name} is reached by its url, so what it writes is elsewhere",
            fix=f"look where it runs; caxton server test {name} shows if it answers",
        )
    file = LogFile(frame.paths().logs, name)
    if not follow and not any(path.exists() for path in file.paths):
        raise NotFoundError(
            f"nothing of {name} is kept: it was not started yet",
            fix=f"caxton server test {name} starts it",
        )
    # A value may have become a secret since it was written.
    redact = Redactor(config.secrets)

    def tell(lines: Iterable[str]) -> None:
        shown = [redact.text(line) for line in lines]
        if as_json:
            show({"$type": "caxton.server-logs/v1", "server": name, "lines": [*shown]})
        elif shown:
            say("\n".join(shown))

    with closing(Tail(file)) as tail:
        tell(deque(tail.more(), maxlen=number))
        # Whoever follows stops it this way; nothing is left undone.
        with suppress(KeyboardInterrupt):
            while follow:
                time.sleep(_PAUSE)
                if lines := [*tail.more()]:
                    tell(lines)
