"""Evidence: verify the log, take a run away as a bundle, erase one."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from ...core.log.runs import erasure_document
from .operations import Answer, Asked, Operation, answer, takes
from .runs import REASON


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
