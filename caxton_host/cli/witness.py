"""``caxton witness``: vouch for the logs of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.log.checkpoint import COSIGNATURE, ED25519, Verifier
from ..errors import BadBytes, UsageError
from ..lib.logs import Style
from .context import HostApi, as_json, on_host, wait
from .output import counted, logged, note, say, show

if TYPE_CHECKING:
    from ..lib.signing import WitnessKey


@click.group("witness")
def command() -> None:
    """
    Vouch for the logs of others, and they for yours.

    A witness cosigns the checkpoints of a log only while the log grows. Two companies
    that each run one for the other need nobody else.

    \b
    Examples:
      caxton witness key --name witness.example.com
      caxton witness serve --name witness.example.com --log ORIGIN+5b9a...+AQ...
    """


_name = click.option("--name", required=True, help="What the witness calls itself.")
_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Its folder; default witness in the state folder of this machine.",
)


@on_host(command.command("key"))
@_name
@_folder
def key(host: HostApi, name: str, folder: Path | None, as_json: bool) -> None:
    """
    Show the key of the witness, which is made on first use.

    Give it to those whose logs are watched: it goes into [audit] witnesses, and behind
    caxton audit verify --witness-key.

    \b
    Examples:
      caxton witness key --name witness.example.com
    """
    text = _key(host, folder, name).verifier().text()
    if as_json:
        show({"$type": "caxton.witness-key/v1", "name": name, "key": text})
    else:
        say(text)


@command.command("serve")
@_name
@click.option(
    "--log",
    "logs",
    multiple=True,
    required=True,
    metavar="VKEY",
    help="A log to watch, as caxton audit key shows it there. Repeatable.",
)
@_folder
@click.option("--address", default="127.0.0.1", show_default=True, help="To listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8090,
    show_default=True,
    help="The port. 0 chooses a free one.",
)
@click.option("--tls-cert", metavar="FILE", help="The certificate for HTTPS, in PEM.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, in PEM.")
@as_json
@click.pass_context
def serve(
    ctx: click.Context,
    name: str,
    logs: tuple[str, ...],
    folder: Path | None,
    address: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
    as_json: bool,
) -> None:
    """
    Cosign checkpoints of the logs that are named, until Ctrl-C.

    POST /add-checkpoint is that of https://c2sp.org/tlog-witness; GET
    /checkpoint/ORIGIN shows what was cosigned last. Everybody may ask: a checkpoint
    speaks for itself. Never restore the folder from a copy: a witness that forgets
    lets a log be set back.

    \b
    Exit codes: 0 ended; 2 usage.

    \b
    Examples:
      caxton witness serve --name witness.example.com --log ORIGIN+5b9a...+AQ...
    """
    from ..lib.machine import SystemClock
    from ..web.edge.tls import Certificate
    from ..web.witness import Witness, logs_of, serve_witness

    said = ctx.find_root().params
    style: Style = said["log_format"] or "text"
    ctx.with_resource(logged(style, said["log_level"] or "info"))
    host: HostApi = ctx.obj
    host.check_local()
    witness = Witness(
        folder=_place(host, folder),
        key=_key(host, folder, name),
        logs=logs_of(parsed("--log", text, ED25519) for text in logs),
        now=SystemClock().now,
    )

    def told(url: str) -> None:
        if as_json:
            text = witness.key.verifier().text()
            show({"$type": "caxton.witness/v1", "url": url, "key": text})
        else:
            note(f"{name} watches {counted(len(witness.logs), 'log')} on {url}")
            note(f"its key: {witness.key.verifier().text()}")

    wait(
        serve_witness(
            witness,
            address=address,
            port=port,
            certificate=Certificate.of(tls_cert, tls_key),
            told=told,
            stops=lambda: note("stopping; once more ends at once"),
        )
    )


def parsed(option: str, text: str, kind: bytes) -> Verifier:
    """
    Return the key that an option names.

    Raises:
        UsageError: It is none.
    """
    try:
        return Verifier.parse(text, kind)
    except BadBytes as exc:
        where = "caxton witness key" if kind == COSIGNATURE else "caxton audit key"
        raise UsageError(
            f"{option} {text!r} is no key: {exc}", fix=f"copy what {where} shows there"
        ) from None


def _key(host: HostApi, folder: Path | None, name: str) -> WitnessKey:
    from ..web.witness import key_of

    return key_of(_place(host, folder), name)


def _place(host: HostApi, folder: Path | None) -> Path:
    return folder or host.paths().state / "witness"
