"""What a run was given besides its events: its module, and what its tools said."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from ...core.log.events import RunStarted, ToolCompleted
from ...errors import NotFoundError
from ...runs.recording import Recording
from .operations import Answer, Asked, Operation


async def blob(asked: Asked) -> Response:
    """Return bytes that a run speaks of."""
    digest = asked.path["sha256"]
    recording = await asked.service.recording(asked.who, asked.path["run"])
    # The digest alone is no reason to give away what other runs have.
    if digest not in _digests(recording):
        raise NotFoundError(f"the run does not speak of {digest}")
    return Response(
        await asked.service.store.reader.blob(digest),
        media_type="application/octet-stream",
    )


def _digests(recording: Recording) -> Iterator[str]:
    for recorded in recording.history:
        match recorded.event:
            case RunStarted(module_sha256=module, catalogue=catalogue):
                yield module
                for entry in catalogue.values():
                    if isinstance(entry, dict):
                        yield str(entry.get("definition_sha256"))
            case ToolCompleted(blobs=blobs):
                for one in blobs:
                    if isinstance(one, dict):
                        yield str(one.get("sha256"))
            case _:
                pass


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="runBlob",
        reads=True,
        method="GET",
        path="/runs/{run}/blobs/{sha256}",
        about="Bytes that a run speaks of by their digest: its module, definitions of "
        "its tools, parts of their answers.",
        scopes=("read",),
        handler=blob,
        answers={200: Answer(about="The bytes.", binary=True)},
        problems=("not-found", "erased"),
    ),
)
