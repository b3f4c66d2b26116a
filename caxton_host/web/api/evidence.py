"""Evidence: verify the log, take a run away as a bundle, erase one."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from ...core.log.checkpoint import parse_note
from ...core.log.runs import erasure_document
from ...core.names import stream_of
from .operations import Answer, Asked, Operation, Parameter, answer, takes
from .runs import REASON, SEQ


async def verification(asked: Asked) -> Response:
    """Return what is verified, and what was found last."""
    work = asked.desk.verifying
    size, root = await asked.service.store.reader.tree()
    return answer(
        {
            "$type": "caxton.verification/v1",
            "tree": {"size": size, "root": root.hex()},
            "verified": work.progress(),
            "last": work.last,
            "kept": await asyncio.to_thread(work.kept),
        }
    )


async def verify(asked: Asked) -> Response:
    """Begin to verify the log."""
    asked.desk.verifying.start(asked.who, full=bool(asked.body.get("full")))
    return await verification(asked)


async def place(asked: Asked) -> Response:
    """Return the place of an event in the tree of the log."""
    run_id = (await asked.service.row(asked.who, asked.path["run"])).run_id
    reader, seq = asked.service.store.reader, asked.number("seq")
    leaf = await reader.leaf(stream_of(run_id), seq)
    note = None if leaf is None else await reader.checkpoint(leaf + 1)
    signed = parse_note(note.encode()).checkpoint.size if note else None
    return answer(
        {
            "$type": "caxton.place/v1",
            "run_id": run_id,
            "seq": seq,
            "leaf": leaf,
            "checkpoint": signed,
        }
    )


async def bundle(asked: Asked) -> Response:
    """Return the bundle of a run."""
    run_id = (await asked.service.row(asked.who, asked.path["run"])).run_id
    async with asked.desk.keeping(asked.who.actor) as keeper:
        data = await keeper.bundle(run_id)
    headers = {"content-disposition": f'attachment; filename="{run_id}.caxton"'}
    return Response(data, headers=headers, media_type="application/octet-stream")


async def erase(asked: Asked) -> Response:
    """Delete the data of a run."""
    run_id = (await asked.service.row(asked.who, asked.path["run"])).run_id
    async with asked.desk.keeping(asked.who.actor) as keeper:
        erased = await keeper.erase(run_id, str(asked.body["reason"]))
        is_gone = not asked.body.get("keep_file") and await keeper.scrub()
    return answer(erasure_document(erased, scrubbed=is_gone))


_VERIFICATION = Answer(about="The verification.", schema="Verification")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="showVerification",
        method="GET",
        path="/verification",
        about="Show the tree of the log, how many events are verified by now if a "
        "verification is under way on this host, and what the last one found.",
        scopes=("auditor",),
        handler=verification,
        answers={200: _VERIFICATION},
    ),
    Operation(
        id="startVerification",
        method="POST",
        path="/verification",
        about="Verify the log on this host, in the background, unless that is under "
        "way. Of a large log, what this machine has verified before is not checked "
        "again, unless `full` is true.",
        scopes=("auditor",),
        handler=verify,
        body=takes(full={"type": "boolean"}),
        answers={200: _VERIFICATION},
    ),
    Operation(
        id="placeOfEvent",
        reads=True,
        method="GET",
        path="/runs/{run}/place",
        about="Show which leaf of the tree an event is, from 0, and the size of the "
        "smallest checkpoint that covers it. Either is null while there is none, and "
        "`leaf` also if the tree has a million newer events.",
        scopes=("auditor",),
        shows="place",
        handler=place,
        parameters=(
            Parameter(
                name="seq", about="The number of the event.", schema=SEQ, required=True
            ),
        ),
        answers={200: Answer(about="Its place.", schema="Place")},
        problems=("not-found",),
    ),
    Operation(
        id="exportRun",
        reads=True,
        method="GET",
        path="/runs/{run}/bundle",
        about="Sign the log, and return a bundle of a run that verifies elsewhere: its "
        "events, those it was forked from, and the bytes that they name.",
        scopes=("auditor",),
        shows="bundle",
        handler=bundle,
        answers={200: Answer(about="The bundle.", binary=True)},
        problems=("not-found",),
    ),
    Operation(
        id="eraseRun",
        method="POST",
        path="/runs/{run}/erase",
        about="Delete the data of a run that has ended, for ever. Its envelopes and "
        "hashes stay, and the log verifies as before. An SQLite file is then "
        "rewritten, and hosts wait for that, unless `keep_file` is true.",
        scopes=("admin",),
        handler=erase,
        body=takes(
            ["reason"],
            reason={**REASON, "pattern": r"\S"},
            keep_file={"type": "boolean"},
        ),
        answers={200: Answer(about="What was erased.", schema="Erasure")},
        problems=("not-found", "erased", "refused"),
    ),
)
