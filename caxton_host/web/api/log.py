"""Checkpoints of the log, and blobs of runs."""

from __future__ import annotations

from starlette.responses import Response

from ...core.log.checkpoint import checkpoint_document, parse_note
from ...core.log.events import blobs_of
from ...errors import NotFoundError
from ..edge.messages import Refusal
from .operations import Answer, Asked, Operation, answer


async def newest(asked: Asked) -> Response:
    """Return the newest checkpoint."""
    return await _checkpoint(asked, None)


async def covering(asked: Asked) -> Response:
    """Return the smallest checkpoint that covers that many events."""
    return await _checkpoint(asked, int(asked.path["size"]))


async def _checkpoint(asked: Asked, size: int | None) -> Response:
    text = await asked.service.store.reader.checkpoint(size)
    if text is None:
        raise Refusal(
            "not-found",
            "no such checkpoint exists yet",
            fix="retry after the host has signed one",
        )
    found = parse_note(text.encode()).checkpoint
    return answer(checkpoint_document(found, text))


async def blob(asked: Asked) -> Response:
    """Return bytes that a run refers to."""
    digest = asked.path["sha256"]
    recording = await asked.service.recording(asked.who, asked.path["run"])
    # The digest alone is no reason to give away what other runs have.
    if not any(digest in blobs_of(one.event) for one in recording.history if one.event):
        raise NotFoundError(f"the run does not refer to {digest}")
    return Response(
        await asked.service.store.reader.blob(digest),
        media_type="application/octet-stream",
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="newestCheckpoint",
        method="GET",
        path="/checkpoints/latest",
        about="Return the newest checkpoint of the log. Keep it elsewhere.",
        scopes=("auditor",),
        handler=newest,
        answers={200: Answer(about="The checkpoint.", schema="Checkpoint")},
        problems=("not-found",),
    ),
    Operation(
        id="coveringCheckpoint",
        method="GET",
        path="/checkpoints/{size}",
        about="Return the smallest checkpoint that covers that many events.",
        scopes=("auditor",),
        handler=covering,
        answers={200: Answer(about="The checkpoint.", schema="Checkpoint")},
        problems=("not-found",),
    ),
    Operation(
        id="runBlob",
        reads=True,
        method="GET",
        path="/runs/{run}/blobs/{sha256}",
        about="Return bytes that a run refers to by their digest: its module, its "
        "program, its files, definitions of its tools, parts of their answers.",
        scopes=("read",),
        shows="blob",
        handler=blob,
        answers={200: Answer(about="The bytes.", binary=True)},
        problems=("not-found", "erased"),
    ),
)
