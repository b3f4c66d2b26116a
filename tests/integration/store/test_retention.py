"""Runs go by the rules of the configuration, whoever dies in between."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from caxton_host.app.maintenance import keeping
from caxton_host.app.retention import Retained, retain, retaining
from caxton_host.app.retention import _pass as retention_pass
from caxton_host.config import Config, Paths
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    RunCancelled,
    RunCompleted,
    RunErased,
    RunHeld,
    RunReleased,
)
from caxton_host.core.log.retention import Action, Retention, Rule
from caxton_host.lib.signing import Keyring
from caxton_host.store import migrate
from caxton_host.store.bundle_store import check_bundle, read_bundle
from caxton_host.store.verify import verify
from tests.unit.store.fakes import run_queued, run_started, url

from .support import opened
from .test_keeping import ANN, written

_DIES = """
import asyncio, os, signal, sys
from pathlib import Path
from caxton_host.store.erasure import Erasures
from tests.integration.store.test_retention import passed

async def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

Erasures.erase = die
asyncio.run(passed(sys.argv[1], Path(sys.argv[2])))
"""


def rules(folder: Path, action: Action = "archive", **more: float) -> Retention:
    rule = Rule(name="rule 1", action=action, after=more.get("after", 60.0))
    return Retention(rules=[rule], archive=folder / "archive", every=0.01)


def configured(database: str, retention: Retention) -> Config:
    return Config(store_url=database, retention=retention)


async def passed(
    database: str, folder: Path, retention: Retention | None = None
) -> list[Retained]:
    """Carry out the rules of a configuration, once."""
    retention = retention or rules(folder)
    paths = Paths.of({"HOME": str(folder)})
    async with keeping(configured(database, retention), paths) as keeper:
        return [one async for one in retain(keeper.store, retention, keeper)]


def outcomes(found: list[Retained]) -> list[tuple[str, str]]:
    return [(one.run_id, one.outcome) for one in found]


async def test_runs_go_to_bundles_and_the_log_verifies(
    database: str, tmp_path: Path
) -> None:
    async with await written(database):
        pass

    found = await passed(database, tmp_path)

    assert outcomes(found) == [("1", "done"), ("2", "done"), ("3", "done")]
    keys = Keyring(Paths.of({"HOME": str(tmp_path)}).state)
    async with opened(database) as store:
        for run_id, erased in (await store.reader.erased()).items():
            assert erased.reason == "rule 1"
            assert erased.bundle is not None
            bundle = read_bundle(tmp_path / "archive" / str(erased.bundle["name"]))
            assert check_bundle(bundle, keys.known()).verdict == "intact"
            assert bundle.header.run == run_id.removeprefix("run/")
        assert (await verify(store.reader, trusted=keys.known())).verdict == "intact"
        assert await store.reader.read("run/4")
    # There is nothing left to look at.
    assert await passed(database, tmp_path) == []


async def test_bundle_of_a_run_that_never_started_has_its_module(
    database: str, tmp_path: Path
) -> None:
    module = b"a module"
    queued = replace(run_queued(), module_sha256=sha256(module).hexdigest())
    async with await written(database) as store:
        end = RunCancelled(actor=ANN, reason="not needed")
        await store.enter("run/5", queued, end, blobs={queued.module_sha256: module})

    await passed(database, tmp_path)

    async with opened(database) as store:
        bundle = (await store.reader.erased())["run/5"].bundle
    assert bundle is not None
    kept = read_bundle(tmp_path / "archive" / str(bundle["name"]))
    assert kept.blobs == {queued.module_sha256: module}


async def test_first_rule_that_fits_decides(database: str, tmp_path: Path) -> None:
    async with await written(database) as store:
        other = store.create("run/5")
        end = RunCompleted(output=None, output_sha256="", fuel=0)
        await other.append(run_started("payer"), end)
    keep = Rule(name="rule 1", action="keep", agents=["pay*"])
    erase = Rule(name="rule 2", action="erase", states=["completed"], after=60.0)

    found = await passed(database, tmp_path, Retention(rules=[keep, erase]))

    assert {(one.agent, one.rule, one.action) for one in found} == {
        ("weather", "rule 2", "erase")
    }
    assert len(found) == 3
    never = Retention(rules=[Rule(name="rule 1", action="erase", states=["failed"])])
    assert await passed(database, tmp_path, never) == []
    young = rules(tmp_path, "erase", after=1e10)
    assert await passed(database, tmp_path, young) == []


async def test_dry_run_writes_nothing(database: str, tmp_path: Path) -> None:
    async with await written(database):
        pass
    async with opened(database) as store:
        before = [one.hash async for one in store.reader.stream_events()]
        found = [one async for one in retain(store, rules(tmp_path), None)]
        after = [one.hash async for one in store.reader.stream_events()]

    assert outcomes(found) == [("1", "due"), ("2", "due"), ("3", "due")]
    assert before == after
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize("action", ["archive", "erase"])
async def test_what_is_needed_is_kept_and_tried_again(
    database: str, tmp_path: Path, action: Action
) -> None:
    async with await written(database) as store:
        (first, _) = await store.reader.read("run/1")
        forked_from: dict[str, JSON] = {"run": "1", "seq": 1, "hash": first.hash.hex()}
        fork = store.create("run/fork-5")
        await fork.append(replace(run_started(), forked_from=forked_from))
        held = RunHeld(run="2", actor=ANN, reason="litigation")
        await store.holding.record(held)

    found = await passed(database, tmp_path, rules(tmp_path, action))

    assert outcomes(found) == [("3", "done"), ("2", "kept"), ("1", "kept")]
    assert "on hold" in found[1].message
    assert "run fork-5" in found[2].message
    assert all(one.fix for one in found[1:])
    if action == "archive":
        names = [path.name for path in (tmp_path / "archive").iterdir()]
        assert names == ["3.caxton"]
    async with opened(database) as store:
        await store.holding.record(RunReleased(run="2", actor=ANN, reason=""))
        end = RunCompleted(output=None, output_sha256="", fuel=0)
        await (await store.resume_log("run/fork-5")).append(end)
    retention = rules(tmp_path, action, after=1e-6)
    again = await passed(database, tmp_path, retention)
    assert {one.run_id for one in again} == {"1", "2", "fork-5"}
    assert {one.outcome for one in again} == {"done"}
    if action == "archive":  # Each bundle has all that its run begins with.
        bundle = read_bundle(tmp_path / "archive" / "fork-5.caxton")
        assert all(event.payload for part in bundle.events for event in part)


async def test_bundle_of_a_host_that_was_killed_is_taken(
    database: str, tmp_path: Path
) -> None:  # law 10
    async with await written(database):
        pass
    command = [sys.executable, "-c", _DIES, database, str(tmp_path)]
    killed = await asyncio.to_thread(
        subprocess.run, command, cwd=Path(__file__).parents[3], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    [bundle] = (tmp_path / "archive").iterdir()
    before = bundle.stat()
    async with opened(database) as store:
        assert all(one.event for one in await store.reader.read("run/1"))

    found = await passed(database, tmp_path)

    assert outcomes(found) == [("1", "done"), ("2", "done"), ("3", "done")]
    assert (bundle.stat().st_ino, bundle.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )
    assert len([*bundle.parent.iterdir()]) == 3


async def test_what_fails_is_named_and_the_rest_goes_on(
    database: str, tmp_path: Path
) -> None:
    async with await written(database):
        pass
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "2.caxton").write_text("mine")

    found = await passed(database, tmp_path)

    assert outcomes(found) == [("1", "done"), ("2", "failed"), ("3", "done")]
    assert "2.caxton is not the bundle of run 2" in found[1].message
    assert "move the file away" in found[1].fix
    async with opened(database) as store:
        assert all(one.event for one in await store.reader.read("run/2"))
    names = sorted(path.name for path in (tmp_path / "archive").iterdir())
    assert names == ["1.caxton", "2.caxton", "3.caxton"]


async def test_two_hosts_erase_each_run_once(database: str, tmp_path: Path) -> None:
    async with await written(database):
        pass

    both = await asyncio.gather(passed(database, tmp_path), passed(database, tmp_path))

    done = [one.run_id for found in both for one in found if one.outcome == "done"]
    assert sorted(done) == ["1", "2", "3"]
    assert not [one for found in both for one in found if one.outcome == "failed"]
    async with opened(database) as store:
        events = [one async for one in store.reader.stream_events()]
    erased = [one.event for one in events if isinstance(one.event, RunErased)]
    assert sorted(one.run for one in erased) == ["1", "2", "3"]


async def test_a_serving_host_looks_by_itself(database: str, tmp_path: Path) -> None:
    async with await written(database):
        pass
    retention = Retention()
    paths = Paths.of({"HOME": str(tmp_path)})
    config = configured(database, retention)
    async with keeping(config, paths) as keeper:
        newest = [config]
        async with retaining(keeper, lambda: newest[-1]):
            newest.append(configured(database, rules(tmp_path)))
            while len(await keeper.store.reader.erased()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        note = await keeper.store.reader.checkpoint()
    assert note is not None
    assert len([*(tmp_path / "archive").iterdir()]) == 3


async def test_a_serving_host_gives_up_a_look_in_which_all_fails(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with await written(database):
        pass
    (tmp_path / "archive").write_text("a file")
    config = configured(database, replace(rules(tmp_path), every=3600.0))
    monitored = "caxton_host.app.retention._GIVE_UP"
    async with keeping(config, Paths.of({"HOME": str(tmp_path)})) as keeper:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(monitored, 2)
            await retention_pass(keeper, config.retention, asyncio.Event())

    assert [one.getMessage().split(":")[1] for one in caplog.records] == [
        " cannot archive run 1",
        " cannot archive run 2",
    ]
    assert all("To fix: " in one.getMessage() for one in caplog.records)


async def test_erased_runs_are_not_looked_at_again(tmp_path: Path) -> None:
    asked: list[str] = []
    migrate.upgrade(url(tmp_path))
    async with opened(url(tmp_path), write=False) as store:
        sa.event.listen(
            store.engine,
            "before_cursor_execute",
            lambda _, __, text, *___: asked.append(text),
        )
        await store.reader.ended("completed", 1, (0, ""), 10)
        await store.reader.erased()
        with store.engine.connect() as connection:
            plans = [
                connection.exec_driver_sql(
                    f"EXPLAIN QUERY PLAN {text}", (0,) * text.count("?")
                ).all()
                for text in list(asked)
            ]

    ended, erased = map(repr, plans)
    assert "ix_runs_ended (state=? AND (ended_at,run_id)>(?,?) AND ended_at<?)" in ended
    assert "USING INDEX ix_events_erased" in erased
    assert "TEMP B-TREE" not in ended
