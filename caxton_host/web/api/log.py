"""What proves the log: checkpoints."""

from __future__ import annotations

from starlette.responses import Response

from ...core.log.checkpoint import checkpoint_document, parse_note
from ..edge.problems import Refusal
from .operations import Answer, Asked, Operation, answer


async def newest(asked: Asked) -> Response:
    """Return the newest checkpoint."""
    return await _checkpoint(asked, None)


async def covering(asked: Asked) -> Response:
    """Return the smallest checkpoint that covers so many events."""
    return await _checkpoint(asked, int(asked.path["size"]))


async def _checkpoint(asked: Asked, size: int | None) -> Response:
    text = await asked.service.store.reader.checkpoint(size)
    if text is None:
        raise Refusal(
            "not-found",
            "there is no such checkpoint yet",
            fix="ask again once the host has signed one",
        )
    found = parse_note(text.encode()).checkpoint
    return answer(checkpoint_document(found, text))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="newestCheckpoint",
        method="GET",
        path="/checkpoints/latest",
        about="The newest checkpoint of the log. Keep it elsewhere.",
        scopes=("admin",),
        handler=newest,
        answers={200: Answer(about="The checkpoint.", schema="Checkpoint")},
        problems=("not-found",),
    ),
    Operation(
        id="coveringCheckpoint",
        method="GET",
        path="/checkpoints/{size}",
        about="The smallest checkpoint that covers so many events.",
        scopes=("admin",),
        handler=covering,
        answers={200: Answer(about="The checkpoint.", schema="Checkpoint")},
        problems=("not-found",),
    ),
)
