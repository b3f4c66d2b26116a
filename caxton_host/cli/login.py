"""``caxton server login``, ``logout``: somebody lets a server's tokens be had."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from .context import Frame, as_json, wait
from .output import note, plain, say, show

if TYPE_CHECKING:
    from ..config import Config
    from ..mcp.auth.login import Asked
    from ..mcp.auth.tokens import Login, TokenFile


class _Duration(click.ParamType[float]):
    """A time to wait, as people write it."""

    name = "duration"

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the seconds that *value* means."""
        from ..config.fields import parse_duration

        seconds = parse_duration(str(value))
        if not seconds:
            self.fail(f"{value!r} is no duration: write it like 30s or 5m", param, ctx)
        return seconds


@click.command("login")
@click.argument("name")
@click.option(
    "--wait",
    "seconds",
    type=_Duration(),
    default="5m",
    show_default=True,
    help="How long somebody has to log in.",
)
@as_json
@click.pass_obj
def login(frame: Frame, name: str, seconds: float, as_json: bool) -> None:
    """
    Get tokens of the server NAME, which somebody allows in a browser.

    Prints an address to open in a browser on this machine, and waits until the issuer
    of the tokens sends the browser back. The tokens are kept for every run, and
    replaced as they expire.

    \b
    Exit codes: 0 there are tokens; 2 nobody logs in there; 6 there are none.

    \b
    Examples:
      caxton server login crm
      caxton server login crm --wait 15m
    """
    from .server import check

    config = frame.load()
    check(config, name)
    found = wait(_log_in(config, name, _file(config, name, frame), seconds))
    if as_json:
        show(
            {
                "$type": "caxton.login/v1",
                "server": name,
                "issuer": found.issuer,
                "scope": found.scope,
                "refreshes": found.refresh_token is not None,
                "expires": _moment(found.expires_at),
            }
        )
        return
    say(f"logged in at {plain(found.issuer)}; scope {plain(found.scope) or 'not said'}")
    if found.refresh_token is None:
        note(f"the login lasts until {_moment(found.expires_at) or 'it is taken back'}")


async def _log_in(config: Config, name: str, file: TokenFile, seconds: float) -> Login:
    from ..core.text.redact import Redactor
    from ..mcp.auth.login import log_in
    from ..mcp.auth.redirect import browser
    from ..sandbox.confine import harden_host

    harden_host()
    server = config.servers[name]
    port = server.oauth.redirect_port if server.oauth else 0

    def tell(asked: Asked) -> None:
        note(f"{name} takes tokens of {plain(asked.issuer)}")
        note(f"scope: {plain(asked.scope) or 'not named'}")
        note("open this address in a browser on this machine:")
        note(plain(asked.address))

    async with browser(tell, wait=seconds, port=port) as person:
        return await log_in(
            server, person, file, redact=Redactor(config.secrets), proxy=config.proxy
        )


@click.command("logout")
@click.argument("name")
@as_json
@click.pass_obj
def logout(frame: Frame, name: str, as_json: bool) -> None:
    """
    Forget the tokens of the server NAME. Hosts that are up forget them too.

    The issuer is not told: what it gave may be good until it expires.

    \b
    Examples:
      caxton server logout crm
    """
    from .server import check

    config = frame.load()
    check(config, name)
    forgotten = wait(_file(config, name, frame).remove())
    if as_json:
        show({"$type": "caxton.logout/v1", "server": name, "forgotten": forgotten})
    else:
        say(f"{name}: {'forgotten' if forgotten else 'nobody had logged in'}")


def _file(config: Config, name: str, frame: Frame) -> TokenFile:
    from ..mcp.auth.tokens import TokenFile

    return TokenFile(frame.paths().tokens, config.servers[name])


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
