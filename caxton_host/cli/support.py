"""``caxton support-bundle``: what those who help need to know, and no secret."""

from __future__ import annotations

import asyncio
import io
import os
import platform
import re
import shutil
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import click

from .. import __version__
from ..core.calls import JSON
from ..core.text.redact import MASK, Redactor
from ..errors import CaxtonError, ConfigError, UsageError
from ..lib.machine import SystemClock
from .context import HostApi, on_host, wait
from .output import note, patience, say, show, table, to_json
from .setup import confinement, doctor_document

#: Bytes of one part, at most.
_LARGEST = 1 << 20
_LINES = 500
_TIMEOUT_S = 10.0
# Passwords in addresses, and credentials that a configuration does not know.
_CREDENTIALS = re.compile(
    r"(?<=://)\S+(?=@)|(?<=[Bb]earer )\S+|(?<=[Bb]asic )\S+|\bcaxton_[\w-]{8,}"
)


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    data: bytes
    missing: str = ""


@on_host(click.command("support-bundle"))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The new file: NAME.tar.gz.",
)
@click.option("--url", help="A serving host, for its metrics.")
@click.option(
    "--token",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file with the token for --url; default $CAXTON_TOKEN.",
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of the host's log lines: the last 500 are included.",
)
def support_bundle(
    host: HostApi,
    output: Path,
    url: str | None,
    token: Path | None,
    log: Path | None,
    as_json: bool,
) -> None:
    """
    Collect what is needed to help, without secrets, in one file.

    It has versions, the structure of the configuration, the guards of this machine,
    the schema and the counts of the log, failed runs by name, and on request metrics
    and log lines. It has no parameter, answer, input, output or environment variable,
    and of caxton.toml no text that may be secret. What cannot be read, such as a
    configuration with mistakes or a database that is away, says why in its place.

    Look at what is listed before you send it.

    \b
    Exit codes: 0 written; 2 the file exists.

    \b
    Examples:
      caxton support-bundle -o support.tar.gz
      caxton support-bundle -o support.tar.gz --log host.log
      caxton support-bundle -o support.tar.gz --url http://127.0.0.1:8080 --token t
    """
    if output.exists():
        raise UsageError(f"there is a file {output} already", fix="name a new one")
    known, why = _secrets(host)
    redact = Redactor(known)

    def clean(text: str) -> str:
        return _CREDENTIALS.sub(MASK, redact.text(text))

    making: dict[str, Callable[[], str]] = {
        "about.json": lambda: to_json(_about(), indent=2),
        "config.json": lambda: to_json(_config(host), indent=2),
        "doctor.json": lambda: to_json(_doctor(), indent=2),
        "database.json": lambda: to_json(wait(_database(host)), indent=2),
    }
    if url:
        making["metrics.txt"] = lambda: wait(_metrics(url, token))
    if log:
        # Without the secrets of the configuration, nobody knows what to leave out.
        making["log.txt"] = lambda: _tail(log) if not why else _refuse(why)
    with patience("collecting"):
        parts = [_made(name, make, clean) for name, make in making.items()]
    _write(output, parts)
    if as_json:
        listed: list[JSON] = [
            {"name": one.name, "bytes": len(one.data), "missing": one.missing or None}
            for one in parts
        ]
        show(
            {
                "$type": "caxton.support-bundle/v1",
                "file": str(output),
                "bytes": output.stat().st_size,
                "parts": listed,
            }
        )
        return
    table(
        ("part", "bytes", "missing"),
        ((one.name, len(one.data), one.missing) for one in parts),
    )
    say(str(output))
    note(f"look at it before you send it: tar -xzf {output} -O")


def _made(name: str, make: Callable[[], str], clean: Callable[[str], str]) -> _Part:
    try:
        return _Part(name, clean(make()).encode(errors="replace")[:_LARGEST])
    except ConfigError as exc:
        # What is wrong may quote a value: the place is enough.
        places = [f"{one.file}:{one.line or '?'} {one.key}" for one in exc.each]
        missing = f"mistakes in the configuration: {'; '.join(places)}"
        if not exc.file:  # Without a file, there is no value.
            missing = str(exc)
    except CaxtonError as exc:
        missing = str(exc)
    except OSError as exc:
        missing = exc.strerror or type(exc).__name__
    except Exception as exc:  # noqa: BLE001 -- the other parts are needed all the more
        missing = type(exc).__name__
    missing = clean(missing)
    return _Part(name, to_json({"missing": missing}).encode(), missing)


def _refuse(why: str) -> str:
    raise UsageError(why)


def _secrets(host: HostApi) -> tuple[set[str], str]:
    """Return the secrets to leave out, and why some may be unknown."""
    from ..config.sections import passwords
    from ..config.source import sounds_secret

    known = {value for name, value in os.environ.items() if sounds_secret(name)}
    known |= passwords(host.given().get("--db", ""))
    try:
        return known | {*host.look(guarded=True).secrets}, ""
    except (ConfigError, OSError):
        return known, "the secrets of the configuration cannot be found out"


def _about() -> dict[str, JSON]:
    installed = {one.name: one.version for one in distributions()}
    return {
        "version": __version__,
        "at": SystemClock().now(),
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": sys.version,
        "cpus": os.cpu_count(),
        "packages": dict(sorted(installed.items())),
    }


def _doctor() -> JSON:
    from ..sandbox.confine import guards

    return doctor_document(guards(), confinement())


def _config(host: HostApi) -> JSON:
    from ..config.outline import outline
    from ..config.paths import find

    named = host.given().get("--config")
    path = find(Path(named) if named else None, environ=os.environ, cwd=Path.cwd())
    if path is None:
        return None
    try:
        return outline(tomllib.loads(path.read_bytes()[:_LARGEST].decode()))
    except ValueError:
        raise UsageError(f"{path.name} is no TOML") from None


async def _database(host: HostApi) -> dict[str, JSON]:
    from ..store.engine import file_of
    from ..store.figures import figures
    from ..store.migrate import current, head, shown

    url = host.look().store_url
    found: dict[str, JSON] = {"url": shown(url), "wanted": head()}
    found["schema"] = current(url)
    if (file := file_of(url)) is not None:
        found["free_bytes"] = shutil.disk_usage(file.parent).free
    async with host.log() as store:
        found["hosts"] = [*await store.leases.hosts()]
        return found | await asyncio.to_thread(figures, store.engine)


async def _metrics(url: str, token: Path | None) -> str:
    from ..errors import ToolError
    from ..lib.http import Client
    from ..remote.address import Address, token_of

    address, known = Address.parse(url), token_of(token, os.environ).text
    headers: Mapping[str, str] = {"authorization": f"Bearer {known}"} if known else {}
    client = Client()
    try:
        answer = await client.request(
            "GET",
            f"{address.url}/metrics",
            timeout=_TIMEOUT_S,
            max_bytes=_LARGEST,
            headers=headers,
            allow_private=True,
        )
    except ToolError as exc:
        raise UsageError(f"the host does not answer: {exc}") from None
    finally:
        await client.aclose()
    if answer.status != 200:  # noqa: PLR2004 -- OK
        raise UsageError(f"the host answers with status {answer.status}")
    return answer.body.decode(errors="replace")


def _tail(log: Path) -> str:
    if not log.is_file():
        raise UsageError(f"{log.name} is no ordinary file")  # It may have no end.
    with log.open("rb") as file:
        with suppress(OSError):  # It is shorter.
            file.seek(-_LARGEST, os.SEEK_END)
            file.readline()  # It is cut, and so may be a secret in it.
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_LINES:])


def _write(output: Path, parts: list[_Part]) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for one in parts:
            entry = tarfile.TarInfo(f"caxton-support/{one.name}")
            entry.size, entry.mode = len(one.data), 0o600
            archive.addfile(entry, io.BytesIO(one.data))
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:  # noqa: PTH123 -- a descriptor
        file.write(data.getvalue())
