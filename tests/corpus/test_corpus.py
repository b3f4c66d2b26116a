"""Every log of the corpus loads, verifies, and replays to the same end."""

from __future__ import annotations

import io
import os
import runpy
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, TypeAlias

import pytest

from caxton_host.core.analysis.rejudge import ASKS
from caxton_host.core.calls import Denied
from caxton_host.core.log.bundle import parse_bundle
from caxton_host.core.log.events import EVENT_TYPES, ToolInvoked
from caxton_host.core.log.projection import summarise
from caxton_host.core.names import stream_of
from caxton_host.lib.json_schema import input_check
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring
from caxton_host.runs.explain import explained_call, explanation
from caxton_host.runs.recording import Recording, schemas_of
from caxton_host.runs.replay import replay
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.bundle_store import BundleStore, check_bundle
from caxton_host.store.export import export
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.telemetry import NoTelemetry

from . import files
from .scenes import SCENES

Judge: TypeAlias = Callable[[IO[bytes], list[bytes]], tuple[str, int]]

#: Written by hosts.
_NOT_OF_A_RUN = {
    *("HostStarted", "ConfigLoaded", "ServerConnected", "ServerLost", "ToolsChanged"),
    *("ServerRestarted", "ServerDisabled", "GrantChanged", "KeyRotated", "RunErased"),
    *("BreakerOpened", "BreakerClosed", "TokenCreated", "TokenRevoked"),
    "RunRead",
    *("ServerFailed", "EgressAllowed", "EgressRefused"),
    *("LogRestored", "AuditFailed"),
    *("RunHeld", "RunReleased"),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Share one loop and one sandbox."""
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WasmSandbox]:
    del anyio_backend
    folder = tmp_path_factory.mktemp("corpus")
    async with WasmSandbox(folder / "cache", b"k" * 32) as it:
        yield it


@pytest.fixture(scope="module")
def judge() -> Judge:
    """Return the verifier that has nothing of this host."""
    reference = Path(__file__).parents[2] / "docs" / "reference"
    found: Judge = runpy.run_path(str(reference / "verify_bundle.py"))["judge"]
    return found


@pytest.mark.parametrize("name", files.names())
async def test_log_comes_to_the_end_it_had(
    name: str, tmp_path: Path, sandbox: WasmSandbox, judge: Judge
) -> None:  # laws 5 and 6
    log = files.read(name)
    run_id, stream = log.about["run_id"], stream_of(log.about["run_id"])
    url = files.load(log, tmp_path / "log.db")
    keys = Keyring(tmp_path / "state")
    async with SqlStore.open(
        url, clock=SystemClock(), entropy=os.urandom, signer=keys
    ) as store:
        note, key = await store.seal(), keys.public_key()
        data = await export(store.reader, run_id, note, key)
    async with SqlStore.open(
        url, clock=SystemClock(), entropy=os.urandom, write=False
    ) as store:
        assert (await verify(store.reader)).first_bad is None
        recording = await Recording.load(run_id, store.reader)
        history = await store.reader.read(stream)
        schemas = schemas_of(await recording.guest("", store.reader))
        checks = {name: input_check(schema) for name, schema in schemas.items()}
        found = await replay(
            run_id, store=store.reader, sandbox=sandbox, telemetry=NoTelemetry()
        )
    assert found.verdict == log.about["verdict"]

    # The bundle of the run is whole for both verifiers, and replays alike.
    bundle = parse_bundle(iter(data.splitlines(keepends=True)))
    assert check_bundle(bundle, [key]).verdict == "intact"
    assert judge(io.BytesIO(data), [key]) == ("intact", 0)
    exported = BundleStore(bundle)
    assert [one.event for one in await exported.read(stream)] == [
        one.event for one in history
    ]
    found = await replay(
        run_id, store=exported, sandbox=sandbox, telemetry=NoTelemetry()
    )
    assert found.verdict == log.about["verdict"]

    run = summarise(run_id, history)
    if "waits" not in log.about["summary"]["calls"]:  # Once, such calls did not count.
        run.calls["total"] -= run.calls.pop("waits")
    summary = run.to_document()
    assert {key: summary[key] for key in log.about["summary"]} == log.about["summary"]
    for one in recording.own:
        if isinstance(one.event, ToolInvoked):
            call = explained_call(recording, checks, one.seq)
            document = explanation(recording, checks, one.seq)
            assert document["call"] == one.event.call
            by_grants = call.verdict not in {"bad_request", "limit"}
            today = isinstance(call.outcome, Denied) and "today" in call.outcome.message
            if by_grants and not today:
                asked = call.explained.code == ASKS
                verdicts = {"allowed", "approval"} if asked else {call.explained.code}
                assert call.verdict in verdicts  # law 4: never another
                bound, decided = call.verdicts[-1]
                if isinstance(decided.verdict, Denied):
                    named = bound.rule(decided.rule or "").rstrip(".") or None
                    assert call.rule == named
                else:
                    assert call.rule == call.verdicts[0][1].rule


def test_each_scene_has_its_log() -> None:
    assert files.names() == sorted(SCENES)


def test_logs_stay_as_they_were_written() -> None:
    assert {name: files.digest(name) for name in files.names()} == files.frozen()


def test_every_type_of_event_and_every_end_is_there() -> None:
    types, ends = Counter[str](), Counter[str]()
    for name in files.names():
        log = files.read(name)
        types.update(row["type"] for row in log.rows["events"])
        summary = log.about["summary"]
        ends[summary["state"]] += 1
        if summary["error"]:
            ends[summary["error"]["kind"]] += 1
    assert {*types} == {*EVENT_TYPES} - _NOT_OF_A_RUN
    states = {"running", "suspended", "completed", "failed", "cancelled"}
    kinds = {"trap", "limit", "agent_error", "diverged", "worker", "host"}
    assert {*ends} == states | kinds
