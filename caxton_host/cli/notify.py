"""``caxton notify``: notices of what needs a person."""

from __future__ import annotations

import click

from ..errors import CaxtonError, UsageError
from .context import HostApi, check_known, on_host, wait
from .output import FAILED, complain, say, show


@click.group("notify")
def command() -> None:
    """
    Test where notices are sent.

    caxton serve sends notices of what needs a person to the webhooks of [notify].

    \b
    Examples:
      caxton notify test
      caxton notify test oncall
    """


@on_host(command.command("test"))
@click.argument("name", required=False)
def test(host: HostApi, name: str | None, as_json: bool) -> int:
    """
    Send a signed notice, as a test, to NAME or to all.

    It is sent once, and not recorded.

    \b
    Exit codes: 0 all were taken; 1 one was not; 2 there is none.

    \b
    Examples:
      caxton notify test
      caxton notify test oncall --json
    """
    from ..app.notifying import send_test

    config = host.look("notify", "serve", "http")
    known = config.notify
    if name is not None:
        check_known(name, known, f"there is no [notify.{name}]", "caxton config show")
    if not known:
        raise UsageError(
            "no notices are configured", fix="write [notify.NAME] with url and secret"
        )
    failed = 0
    for to in [known[name]] if name else known.values():
        try:
            sent: str | None = wait(send_test(to, config))
        except CaxtonError as exc:
            sent, failed = None, FAILED
            complain(
                f"{to.name} did not take the notice: {exc}",
                exc.fix or f"see what listens at url of [notify.{to.name}]",
            )
        if as_json:
            show({"$type": "caxton.notify-test/v1", "name": to.name, "id": sent})
        elif sent:
            say(f"{to.name} took the notice {sent}")
    return failed
