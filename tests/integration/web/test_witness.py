"""A witness that is real cosigns a real log, and finds out one that lies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from caxton_host.app.witnessing import SetBackError, Witnesses, folder_of, kept
from caxton_host.config.model import Audit
from caxton_host.config.model import Witness as Named
from caxton_host.core.log.checkpoint import Note, Verifier
from caxton_host.core.log.witnesses import SIZE_TYPE, Submission, parse_submission
from caxton_host.errors import ConfigError, ToolError, UsageError
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring, cosigned_at
from caxton_host.store.export import Exporter
from caxton_host.store.sql import SqlStore
from caxton_host.web.edge.listen import bind, listening
from caxton_host.web.witness import (
    Witness,
    app_of,
    key_of,
    logs_of,
    serve_witness,
)
from tests.unit.store.fakes import run_started


@dataclass(slots=True)
class Studio:
    """A signed log in a folder, and witnesses that are asked over HTTP."""

    folder: Path
    named: list[Named] = field(default_factory=list[Named])

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'log.db'}"

    @property
    def keys(self) -> Keyring:
        return Keyring(self.folder / "state")

    async def grow(self, *runs: str) -> Note:
        """Add runs of one event each, and return a checkpoint of the whole log."""
        store = SqlStore.open(
            self.database,
            clock=SystemClock(),
            entropy=os.urandom,
            write=True,
            signer=self.keys,
        )
        async with store:
            for run in runs:
                await store.create(f"run/{run}").append(run_started())
            return await store.seal()

    @asynccontextmanager
    async def asking(self, quorum: int = 0) -> AsyncGenerator[Witnesses]:
        store = SqlStore.open(
            self.database, clock=SystemClock(), entropy=os.urandom, write=False
        )
        async with store:
            asked = Witnesses(
                audit=Audit(witnesses=tuple(self.named), quorum=quorum),
                log=Exporter(store.reader),
                folder=folder_of(self.folder),
            )
            yield asked
            await asked.aclose()

    def witness(self, name: str, log: Note) -> Witness:
        folder = self.folder / name
        origin, public = log.checkpoint.origin, self.keys.public_key()
        return Witness(
            folder=folder,
            key=key_of(folder, name),
            logs=logs_of([Verifier(origin, public)]),
            now=lambda: 7_000_000,
        )

    @asynccontextmanager
    async def serving(self, key: Verifier, app: Starlette) -> AsyncGenerator[str]:
        with bind("127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self.named.append(Named(url=url, key=key))
            async with listening(app, listener):
                yield url


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path)


async def test_a_log_that_grows_is_cosigned_and_one_that_was_set_back_is_not(
    studio: Studio,
) -> None:
    # law 6
    first = await studio.grow("a", "b", "c")
    shutil.copy(studio.folder / "log.db", studio.folder / "old.db")
    second = await studio.grow("d", "e")
    witness = studio.witness("w1", first)
    async with studio.serving(witness.key.verifier(), app_of(witness)):
        async with studio.asking() as asked:
            for note in (first, second, second):
                cosigned = await asked.cosign(note)
                assert cosigned_at(cosigned, witness.key.verifier()) == 7
                assert kept(folder_of(studio.folder), note.checkpoint.origin)
        # Another process, which knows nothing of what was cosigned.
        async with studio.asking() as asked:
            with pytest.raises(ToolError, match="knows a newer checkpoint"):
                await asked.cosign(first)
        shutil.copy(studio.folder / "old.db", studio.folder / "log.db")
        async with studio.asking() as asked:
            with pytest.raises(SetBackError, match="which has fewer"):
                await asked.cosign(first)
        forked = await studio.grow("x", "y", "z")
        assert forked.checkpoint.size >= second.checkpoint.size
        async with studio.asking() as asked:
            with pytest.raises(SetBackError, match="has cosigned another log of"):
                await asked.cosign(forked)
    assert witness.newest(first.checkpoint.origin) is not None


async def test_a_witness_answers_as_the_protocol_says(studio: Studio) -> None:
    note = await studio.grow("a")
    witness = studio.witness("w1", note)
    origin, size = note.checkpoint.origin, note.checkpoint.size
    first = Submission(old=0, proof=(), note=note).to_bytes()
    other = replace(note.checkpoint, origin="caxton-host/log/other")
    forged = replace(
        note,
        signatures=(replace(note.signatures[0], raw=bytes(64)),),
    )
    async with (
        studio.serving(witness.key.verifier(), app_of(witness)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):

        async def status(content: bytes) -> int:
            return (await client.post("/add-checkpoint", content=content)).status_code

        assert (await client.get(f"/checkpoint/{origin}")).status_code == 404
        assert await status(b"old") == 400
        assert await status(b"x" * 100_000) == 413
        unknown = replace(Keyring(studio.folder / "else").sign(other))
        assert await status(Submission(old=0, proof=(), note=unknown).to_bytes()) == 404
        assert await status(Submission(old=0, proof=(), note=forged).to_bytes()) == 403
        answer = await client.post("/add-checkpoint", content=first)
        assert (answer.status_code, answer.text[:5]) == (200, "— w1 ")
        again = await client.post("/add-checkpoint", content=first)
        assert (again.status_code, again.text) == (409, f"{size}\n")
        assert again.headers["content-type"].startswith(SIZE_TYPE)
        shown = await client.get(f"/checkpoint/{origin}")
        assert shown.text.endswith(answer.text)
        assert (await client.get("/healthz")).text == "ok\n"
        assert (await client.get("/checkpoint/odd")).status_code == 404


async def test_a_client_that_is_slow_or_goes_away_is_answered_and_not_logged(
    studio: Studio, caplog: pytest.LogCaptureFixture
) -> None:
    note = await studio.grow("a")
    witness = studio.witness("w1", note)
    head = b"POST /add-checkpoint HTTP/1.1\r\nHost: w1\r\nContent-Length: 9\r\n\r\nold"
    app = app_of(witness, patience=0.05)
    async with studio.serving(witness.key.verifier(), app) as url:

        async def answer(*, leaves: bool) -> bytes:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(url.rpartition(":")[2])
            )
            writer.write(head)
            await writer.drain()
            if leaves:
                writer.write_eof()
            found = await reader.read()
            writer.close()
            return found

        assert b"408 Request Timeout\r\n" in await answer(leaves=False)
        await answer(leaves=True)
        await witness.add(Submission(old=0, proof=(), note=note).to_bytes())
        (path,) = (witness.folder / "logs").iterdir()
        path.write_bytes(b"nothing")
        async with httpx.AsyncClient(base_url=url) as client:
            shown = await client.get(f"/checkpoint/{note.checkpoint.origin}")
            assert (shown.status_code, shown.text) == (500, "this witness is damaged\n")
    assert "Traceback" not in caplog.text


def liar(answer: Callable[[bytes], Response]) -> Starlette:
    async def add(request: Request) -> Response:
        return answer(await request.body())

    return Starlette(routes=[Route("/add-checkpoint", add, methods=["POST"])])


async def test_one_that_lies_lags_or_is_away_is_not_counted(studio: Studio) -> None:
    note = await studio.grow("a", "b")
    good = studio.witness("good", note)
    bad = studio.witness("bad", note)
    stranger = key_of(studio.folder / "stranger", "bad")

    def other_text(body: bytes) -> Response:
        asked = parse_submission(body).note
        changed = replace(asked, signed=asked.signed.replace(b"\n", b"x\n", 1))
        return PlainTextResponse(f"{bad.key.cosign(changed, 7).line()}\n")

    def other_key(body: bytes) -> Response:
        return PlainTextResponse(
            f"{stranger.cosign(parse_submission(body).note, 7).line()}\n"
        )

    def goes_on(body: bytes) -> Response:
        size = parse_submission(body).old % 2 + 1
        return Response(f"{size}\n", 409, media_type=SIZE_TYPE)

    lies: list[Callable[[bytes], Response]] = [
        lambda _: PlainTextResponse("", 422),
        other_text,
        other_key,
        goes_on,
        lambda _: PlainTextResponse("", 200),
        lambda _: PlainTextResponse("— bad", 200),
        lambda _: PlainTextResponse("no", 503),
        lambda _: Response("9" * 30, 409, media_type=SIZE_TYPE),
        lambda _: PlainTextResponse("1", 409),
    ]
    async with studio.serving(good.key.verifier(), app_of(good)):
        for lie in lies:
            async with studio.serving(bad.key.verifier(), liar(lie)):
                async with studio.asking(quorum=1) as asked:
                    cosigned = await asked.cosign(note)
                    assert cosigned_at(cosigned, good.key.verifier()) == 7
                    assert cosigned_at(cosigned, bad.key.verifier()) is None
                async with studio.asking(quorum=2) as asked:
                    with pytest.raises((ToolError, SetBackError)):
                        await asked.cosign(note)
            studio.named.pop()
        # Nothing listens there.
        studio.named.append(Named(url="http://127.0.0.1:9", key=bad.key.verifier()))
        async with studio.asking(quorum=1) as asked:
            assert cosigned_at(await asked.cosign(note), good.key.verifier()) == 7
        async with studio.asking(quorum=2) as asked:
            few = "1 of 2 witnesses cosigned, of 2 wanted; bad: cannot connect"
            with pytest.raises(ToolError, match=few):
                await asked.cosign(note)


async def test_a_slower_request_never_sets_a_log_back(studio: Studio) -> None:
    notes = [await studio.grow(str(n)) for n in range(6)]
    witness = studio.witness("w1", notes[0])
    async with studio.serving(witness.key.verifier(), app_of(witness)):

        async def ask(note: Note) -> int:
            async with studio.asking() as asked:
                # Another one was faster: that is no fault.
                with contextlib.suppress(ToolError):
                    return (await asked.cosign(note)).checkpoint.size
            return 0

        cosigned = await asyncio.gather(*map(ask, notes))
        newest = witness.newest(notes[0].checkpoint.origin)

    assert newest is not None
    assert newest.checkpoint.size == max(cosigned) > 0


async def test_a_folder_serves_one_witness_and_a_damaged_one_none(
    studio: Studio,
) -> None:
    note = await studio.grow("a")
    witness = studio.witness("w1", note)
    up = asyncio.Event()

    async def serve(told: Callable[[str], None]) -> None:
        await serve_witness(
            witness,
            address="127.0.0.1",
            port=0,
            certificate=None,
            told=told,
            stops=lambda: None,
        )

    serving = asyncio.create_task(serve(lambda _: up.set()))
    await up.wait()
    with pytest.raises(UsageError, match="serves from"):
        await serve(lambda _: None)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await witness.add(Submission(old=0, proof=(), note=note).to_bytes())
    (path,) = (witness.folder / "logs").iterdir()
    path.write_bytes(b"nothing")

    with pytest.raises(ConfigError, match="is damaged"):
        witness.newest(note.checkpoint.origin)
    for odd in ("a b", "a+b", "", "https://a", "a\u202eb", "a" * 101):
        with pytest.raises(UsageError, match="not the name of a witness"):
            key_of(studio.folder / "odd", odd)
    assert not (studio.folder / "odd").exists()
