"""The blobs that events name: bytes that are stored beside the log, by digest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..calls import JSON
from ..commands import Command
from .events import Event, RunStarted, ToolCompleted


def named_blobs(event: Event | None) -> Iterator[str]:
    """
    Yield the digests of the blobs that *event* names.

    >>> from caxton_host.core.log.events import ToolCompleted
    >>> blobs = ({"sha256": "ab12", "bytes": 3},)
    >>> found = ToolCompleted(
    ...     call=1, is_error=False, message="", data=None, blobs=blobs
    ... )
    >>> [*named_blobs(found)]
    ['ab12']
    """
    match event:
        case RunStarted():
            yield event.module_sha256
            yield from _of(event.catalogue.values(), "definition_sha256")
            for entries in (event.resources or {}).values():
                yield from _of(entries if isinstance(entries, list) else (), "sha256")
            yield from Command.from_payload(event.command).files.values()
        case ToolCompleted():
            yield from _of(event.blobs, "sha256")
        case _:
            pass


def _of(entries: Iterable[JSON], key: str) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, dict) and key in entry:
            yield str(entry[key])
