"""
A witness: cosigns checkpoints of the logs that it watches; see `core.log.witnesses`.

    witness.key    0600: the seed of its key
    logs/NAME      the newest checkpoint that it cosigned, by the origin of the log
    lock           held while it serves: two with one folder could be played off

Nothing else is known of a log. Who may ask is not checked: a checkpoint speaks for
itself. A folder that is set back lets a log be set back too: it is never restored from
a copy.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ..core.log.checkpoint import (
    MAX_SIGNATURES,
    Note,
    Verifier,
    parse_note,
)
from ..core.log.witnesses import (
    MAX_SUBMISSION,
    SIZE_TYPE,
    Submission,
    parse_submission,
    refusal,
)
from ..errors import BadBytes, ConfigError, OverloadedError, UsageError
from ..lib.files import replace_file
from ..lib.signing import WitnessKey, judge, secret
from .edge.listen import bind, listening, stopping
from .edge.messages import Bodies, GoneError, Refusal, problem_of
from .edge.tls import Certificate

logger = logging.getLogger("caxton_host")

#: Signatures that are kept beside its own, so that the note is one.
_KEPT = MAX_SIGNATURES - 1
#: Bytes of the requests that arrive at a time.
_HELD = 100 * MAX_SUBMISSION
#: As a vkey has it, and as it can be copied from a terminal.
_NAME = re.compile(r"(?!.*://)[^\s+]{1,100}")
_SHOWN = 100
_NO_LOG = "this witness does not watch that log"
_FORGED = "no key that this witness knows has signed that checkpoint"
_WHY: Mapping[int, str] = {
    400: "the old size is larger than the new one",
    409: "another checkpoint was cosigned last",
    422: "that the log only grew is not proven",
}


def key_of(folder: Path, name: str) -> WitnessKey:
    """
    Return the key of the witness in a folder, made on first use.

    Raises:
        ConfigError: Its file holds something else.

        UsageError: The name is not one.
    """
    if not _NAME.fullmatch(name) or not name.isprintable():
        raise UsageError(
            f"{name[:_SHOWN]!r} is not the name of a witness: no space, no plus sign",
            fix="write it like a URL without its scheme: witness.example.com/w1",
        )
    return WitnessKey(name=name, seed=secret(folder / "witness.key"))


@dataclass(slots=True, kw_only=True)
class Witness:
    """
    Cosigns checkpoints.

    Attributes:
        folder: See above.

        key: What it signs with.

        logs: The keys of the logs that it watches, by origin.

        now: The time, in microseconds since 1970.
    """

    folder: Path
    key: WitnessKey
    logs: Mapping[str, tuple[bytes, ...]]
    now: Callable[[], int]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def add(self, data: bytes) -> Response:
        """Answer a request to cosign a checkpoint."""
        try:
            asked = parse_submission(data)
        except BadBytes as exc:
            return _refused(400, str(exc))
        trusted = self.logs.get(asked.note.checkpoint.origin)
        if trusted is None:
            return _refused(404, _NO_LOG)
        if judge(asked.note, trusted) != "trusted":
            return _refused(403, _FORGED)
        # Compared and kept in one turn: a slower request never sets a log back.
        async with self._turn:
            return await asyncio.to_thread(self._add, asked)

    def newest(self, origin: str) -> Note | None:
        """
        Return the newest checkpoint of a log, with its cosignature.

        Raises:
            ConfigError: Its file is damaged.
        """
        path = self._path(origin)
        try:
            return parse_note(path.read_bytes())
        except FileNotFoundError:
            return None
        except BadBytes as exc:
            raise ConfigError(
                f"{path} is damaged: {exc}",
                fix="end this witness for good, and begin another with a new key",
            ) from None

    def _add(self, asked: Submission) -> Response:
        new, known = asked.note.checkpoint, self.newest(asked.note.checkpoint.origin)
        status = refusal(known.checkpoint if known else None, asked)
        seen = known.checkpoint.size if known else 0
        if status == 409:  # noqa: PLR2004 -- conflict
            return Response(f"{seen}\n", 409, media_type=SIZE_TYPE)
        if status is not None:
            return _refused(status, _WHY[status])
        line = self.key.cosign(asked.note, self.now() // 1_000_000)
        note = Note(
            checkpoint=new,
            signed=asked.note.signed,
            signatures=(*asked.note.signatures[:_KEPT], line),
        )
        path = self._path(new.origin)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, note.text().encode(), mode=0o600)
        return PlainTextResponse(f"{line.line()}\n")

    def _path(self, origin: str) -> Path:
        return self.folder / "logs" / sha256(origin.encode()).hexdigest()[:32]


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)


def app_of(witness: Witness, *, patience: float = 10.0) -> Starlette:
    """
    Return the application: ``POST /add-checkpoint``, and checkpoints to read.

    Args:
        witness: What it is.

        patience: Seconds in which the body of a request has to arrive.
    """
    bodies = Bodies(most=MAX_SUBMISSION, all=_HELD, patience=patience)

    async def add(request: Request) -> Response:
        async with bodies.read(request.receive) as data:
            return await witness.add(data)

    async def shown(request: Request) -> Response:
        origin = request.path_params["origin"]
        note = witness.newest(origin) if origin in witness.logs else None
        return PlainTextResponse(note.text()) if note else _refused(404, _NO_LOG)

    async def well(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def failed(_: Request, exc: Exception) -> Response:
        match exc:
            case GoneError():
                status, why = 400, "the body is cut off"
            case ConfigError():
                # Not 422, which would say that the log was set back.
                logger.error("%s. To fix: %s", exc, exc.fix)
                status, why = 500, "this witness is damaged"
            case _:
                problem = problem_of(exc)
                status, why = problem.status, problem.detail
        # The rest of the body may still be on its way.
        return PlainTextResponse(f"{why}\n", status, {"connection": "close"})

    return Starlette(
        routes=[
            Route("/add-checkpoint", add, methods=["POST"]),
            Route("/checkpoint/{origin:path}", shown),
            Route("/healthz", well),
        ],
        exception_handlers=dict.fromkeys(
            (Refusal, OverloadedError, ConfigError, GoneError), failed
        ),
    )


async def serve_witness(  # noqa: PLR0913 -- by name
    witness: Witness,
    *,
    address: str,
    port: int,
    certificate: Certificate | None,
    told: Callable[[str], None],
    stops: Callable[[], None],
) -> None:
    """
    Serve a witness until SIGTERM or SIGINT.

    Raises:
        UsageError: It cannot listen there, or serves already.
    """
    if certificate:
        certificate.load()
    with _alone(witness.folder), bind(address, port) as listener:
        host = f"[{address}]" if ":" in address else address
        scheme = "https" if certificate else "http"
        async with listening(app_of(witness), listener, certificate):
            with stopping(stops) as asked:
                told(f"{scheme}://{host}:{listener.getsockname()[1]}")
                await asked.wait()


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UsageError(
            f"a witness serves from {folder} already",
            fix="end it first, or choose another --folder",
        ) from None
    finally:
        os.close(handle)


def logs_of(verifiers: Iterable[Verifier]) -> dict[str, tuple[bytes, ...]]:
    """Return the keys of logs, by origin; a log has two while its key is rotated."""
    found: dict[str, tuple[bytes, ...]] = {}
    for one in verifiers:
        found[one.name] = (*found.get(one.name, ()), one.public_key)
    return found
