"""``caxton events export --to``: deliver events to a file or a URL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..core.calls import JSON
from ..core.log.ocsf import api_activity
from ..core.log.runs import ExportFilter, ExportLine
from ..core.names import stream_of
from ..core.text.urls import in_the_clear, parts_of
from ..errors import UsageError
from ..lib.files import opened, replace_file
from .context import HostApi
from .output import counted, note
from .run_text import line_document

if TYPE_CHECKING:
    from ..store.sinks import Sink

#: Seconds that a followed database may be unreachable.
PATIENCE = 60.0
_LONGEST_TOKEN = 4_096

#: How a line is shown; ``None``: it is left out.
Shown = Callable[[ExportLine], dict[str, JSON] | None]
SHOWN: dict[str, Shown] = {"ocsf": partial(api_activity, release=__version__)}


async def deliver(
    host: HostApi,
    run: str | None,
    wanted: ExportFilter,
    *,
    format_: str,
    to: str,
    cursor: Path,
    bearer: Path | None,
    follow: bool,
) -> None:
    """
    Send the wanted lines that the cursor file does not know yet, at least once.

    Raises:
        UsageError: The sink or a file cannot be used.
    """
    from ..store.following import Delivery, followed

    sink = _sink(host, to, cursor, bearer)
    delivery = Delivery(
        sink=sink,
        render=SHOWN.get(format_, line_document),
        save=lambda text: asyncio.to_thread(replace_file, cursor, f"{text}\n".encode()),
        failed=lambda exc: note(
            f"warning: events are not delivered, trying again: {exc}"
            if exc
            else "events are delivered again"
        ),
    )
    try:
        async with host.history() as store:
            if run:
                wanted = replace(wanted, stream=stream_of(await store.find_run(run)))
            lines = followed(
                store,
                wanted,
                _read(cursor),
                follow=follow,
                patience=PATIENCE if follow else 0,
            )
            sent = await delivery.run(lines)
    finally:
        await sink.aclose()
    note(f"sent {counted(sent, 'event')}")


def _read(path: Path) -> str | None:
    try:
        with opened(path) as file:
            return file.read(_LONGEST_TOKEN).decode("ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"the cursor file {path} cannot be read: {exc}",
            fix="name another file; without one, everything is sent again",
        ) from None


def _sink(host: HostApi, to: str, cursor: Path, bearer: Path | None) -> Sink:
    from ..store.sinks import FileSink, HttpSink

    where = parts_of(to) if "://" in to else None
    if where is None and "://" not in to:
        if bearer:
            raise UsageError("--bearer-file is for a URL", fix="leave it out")
        if os.path.realpath(to) == os.path.realpath(cursor):
            raise UsageError(
                "--to and --cursor name one file", fix="name another file with --cursor"
            )
        return FileSink(Path(to))
    if (
        where is None
        or not where.hostname
        or in_the_clear(to)
        or where.username
        or where.password
    ):
        raise UsageError(
            "--to is not a URL of https, or of http on this machine, or has a password",
            fix="name another URL, and pass a token with --bearer-file",
        )
    with suppress(OSError):
        _headers(bearer)  # A bad token is an error now; a missing one may come.
    return HttpSink(
        to,
        host.look("http").proxy,
        kind="application/x-ndjson",
        headers=lambda _: _headers(bearer),
    )


def _headers(bearer: Path | None) -> dict[str, str]:
    if bearer is None:
        return {}
    with bearer.open("rb") as file:
        token = file.read(_LONGEST_TOKEN).strip()
    if not token or not token.isascii() or not token.decode().isprintable():
        raise UsageError(
            f"the file {bearer} holds no token", fix="write the token as its only line"
        )
    return {"authorization": f"Bearer {token.decode()}"}
