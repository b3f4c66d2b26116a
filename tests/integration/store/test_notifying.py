"""Notices leave at least once, from one host, and go on where they stopped."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from caxton_host.app import notifying
from caxton_host.app.notifying import Notifier
from caxton_host.cli import execute
from caxton_host.config import Config
from caxton_host.config.model import Destination, Serve
from caxton_host.core.log.events import AuditFailed, RunFailed
from caxton_host.core.log.notices import TYPES
from caxton_host.errors import LeaseLost
from caxton_host.store import following
from caxton_host.store.sql import SqlStore
from tests.answering import HERE, Answers, answering
from tests.unit.store.fakes import eventually, run_started

from .support import opened

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/notices.md").read_text()
HOW_TO = (ROOT / "docs/how-to/notify.md").read_text()
SECRET = b"a secret of at least 24 bytes"
FAILED = RunFailed(kind="trap", message="unreachable", fuel=1)
ONE, TWO = "host/1", "host/2"


class Taker(Answers):
    def respond(self) -> None:
        server, body = self.server, self.body()
        assert isinstance(server, Receiver)
        status = server.statuses.pop(0) if server.statuses else 204
        if status < 300:
            headers = {name.lower(): text for name, text in self.headers.items()}
            server.taken.append((headers, body))
        self.answer(status=status)


class Receiver(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(HERE, Taker)
        self.statuses: list[int] = []
        self.taken: list[tuple[dict[str, str], bytes]] = []

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.taken]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    with answering(found):
        yield found


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_LOOK_S", 0.01)
    monkeypatch.setattr(notifying, "_STANDBY_S", 0.02)
    monkeypatch.setattr(following, "_FIRST_S", 0.01)


def configured(receiver: Receiver, **changed: object) -> Config:
    url = f"http://127.0.0.1:{receiver.server_port}/in"
    to = Destination(name="oncall", url=url, secrets=(SECRET,))
    return Config(
        store_url="",
        serve=Serve(public_url="https://console.test"),
        notify={"oncall": replace(to, **changed)},  # type: ignore[arg-type]
    )


def sound(headers: dict[str, str], body: bytes, secret: bytes) -> bool:
    """Return what the receiver of docs/reference/notices.md says."""
    shown: dict[str, Any] = {}
    exec(PAGE.split("```python\n")[1].split("```")[0], shown)  # noqa: S102 -- ours
    text = base64.b64encode(secret).decode()
    both = {shown["is_sound"](headers, body, said) for said in (text, f"whsec_{text}")}
    (found,) = both
    return bool(found)


async def fail(store: SqlStore, run: str, agent: str = "weather") -> None:
    await store.create(f"run/{run}").append(run_started(agent), FAILED)


@asynccontextmanager
async def sending(
    store: SqlStore, host: str, config: Config, failed: list[str] | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    async with watching(store, host, lambda: config, failed) as task:
        yield task


@asynccontextmanager
async def watching(
    store: SqlStore,
    host: str,
    config: Callable[[], Config],
    failed: list[str] | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    told = list[str]() if failed is None else failed
    notifier = Notifier(store=store, host=host, config=config, failed=told.append)
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor()
    loop.set_default_executor(threads)
    task = asyncio.create_task(notifier.watch())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # A query that runs in a thread outlives who asked it, and its connection.
        loop.set_default_executor(ThreadPoolExecutor())
        threads.shutdown()


def is_placed(store: SqlStore) -> bool:
    with store.engine.connect() as connection:
        return bool(connection.scalar(sa.text("SELECT count(*) FROM followers")))


async def placed(store: SqlStore) -> None:
    """Return once a destination has a place in the log."""
    await eventually(lambda: is_placed(store))


async def test_a_notice_is_signed_tried_again_and_sent_once(
    database: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver.statuses, tries = [500, 302, 429], list[str]()
    async with opened(database) as store:
        await store.leases.join(ONE)
        await fail(store, "old")  # Before it was configured.
        async with sending(store, ONE, configured(receiver), tries):
            await placed(store)
            await fail(store, "a")
            await eventually(lambda: bool(receiver.taken))
            await store.create("host/x").append(AuditFailed(what="verify", reason=""))
            await eventually(lambda: len(receiver.taken) == 2)
    headers, body = receiver.taken[0]
    assert sound(headers, body, SECRET)
    assert not sound(headers, body + b" ", SECRET)
    assert not sound(headers, body, b"another" * 5)
    assert not sound({**headers, "webhook-timestamp": "5"}, body, SECRET)
    assert headers["content-type"] == "application/json"
    said = json.loads(body)
    assert said["id"] == headers["webhook-id"]
    assert said["link"] == "https://console.test/ui/runs/a"
    assert said["data"] == {"agent": "weather", "run": "a", "kind": "trap"}
    assert json.loads(receiver.taken[1][1])["type"] == "audit"
    assert tries == ["oncall"] * 3
    assert caplog.text.count("not taken, trying again") == 1
    assert caplog.text.count("taken again") == 1


async def test_another_host_goes_on_where_a_dead_one_stopped(
    database: str, receiver: Receiver
) -> None:
    # law 10
    config = configured(receiver)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(opened(database))
        await first.leases.join(ONE)
        async with opened(database) as second:
            await second.leases.join(TWO)
            async with sending(first, ONE, config) as one:
                await placed(first)
                async with sending(second, TWO, config):
                    await fail(first, "a")
                    await eventually(lambda: len(receiver.ids) == 1)
                    one.cancel()
                    await asyncio.gather(one, return_exceptions=True)
                    await fail(second, "b", "other")
                    state = await second.followers.take("notify/oncall", TWO, "")
                    assert state is None, "the first one lives, and may go on"
                    assert len({*receiver.ids}) == 1
                    await stack.aclose()  # The host ends.
                    await eventually(lambda: len({*receiver.ids}) == 2)
            with pytest.raises(LeaseLost):
                await second.followers.save("notify/oncall", ONE, "late")
    # The first one may have died before it noted that it was sent.
    runs = [json.loads(body)["data"]["run"] for _, body in receiver.taken]
    assert [*dict.fromkeys(runs)] == ["a", "b"]


async def test_what_was_sent_but_not_noted_comes_again_with_its_id(
    database: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 10
    config = configured(receiver)
    async with opened(database) as store:
        await store.leases.join(ONE)
        async with sending(store, ONE, config):
            await placed(store)

        async def dies(name: str, host: str, state: str) -> None:
            del name, host, state
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(store.followers, "save", dies)
            async with sending(store, ONE, config):
                await fail(store, "a")
                await fail(store, "b", "other")
                await eventually(lambda: len(receiver.ids) == 1)
        async with sending(store, ONE, config):
            await eventually(lambda: len({*receiver.ids}) == 2)
    assert receiver.ids[0] == receiver.ids[1]


async def test_a_notice_that_is_too_old_is_given_up(
    database: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(database) as store:
        await store.leases.join(ONE)
        async with sending(store, ONE, configured(receiver, max_age=0.0)):
            await placed(store)
            await fail(store, "a")
            await eventually(lambda: "too old" in caplog.text)
    assert receiver.taken == []


async def test_an_event_that_was_changed_stops_no_notice_and_is_told_of(
    receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = f"sqlite:///{tmp_path_factory.mktemp('broken')}/caxton.db"
    async with opened(database) as store:
        await store.leases.join(ONE)
        async with sending(store, ONE, configured(receiver)):
            await placed(store)
        await fail(store, "a")
        with store.engine.connect() as connection:
            connection.execute(sa.text("DROP TRIGGER payloads_no_update"))
            change = "UPDATE payloads SET payload = x'00' WHERE position = 2"
            connection.execute(sa.text(change))
        await fail(store, "b")
        async with sending(store, ONE, configured(receiver)):
            await eventually(lambda: len(receiver.taken) == 2)
    assert [json.loads(body)["type"] for _, body in receiver.taken] == [
        *("failed", "audit")
    ]


async def test_destinations_follow_the_newest_configuration(
    receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = f"sqlite:///{tmp_path_factory.mktemp('reload')}/caxton.db"
    configs = [replace(configured(receiver), notify={})]
    async with opened(database) as store:
        await store.leases.join(ONE)
        async with watching(store, ONE, lambda: configs[-1]):
            configs.append(configured(receiver, events=("audit",)))
            await placed(store)
            await fail(store, "a")
            configs.append(configured(receiver, window=60.0))
            await asyncio.sleep(0.1)
            await fail(store, "b")
            await eventually(lambda: len(receiver.taken) == 1)


def test_the_commands_of_the_page_send_a_test(
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    url = f"http://127.0.0.1:{receiver.server_port}/hook-d41d8cd98f"
    monkeypatch.setenv("NOTIFY_URL", url)
    monkeypatch.setenv("NOTIFY_SECRET", base64.b64encode(SECRET).decode())
    monkeypatch.chdir(tmp_path)
    shown = [part.split("```")[0] for part in HOW_TO.split("```toml\n")[1:]]
    lines = "".join(shown).replace("\n   ", "\n")
    (tmp_path / "caxton.toml").write_text(f"version = 1\n{lines}")
    words = [line.split() for line in HOW_TO.splitlines() if "   caxton notify" in line]
    assert len(words) == 2
    for command in words:
        assert execute(command[1:]) == 0
    assert len({*receiver.ids}) == 3
    assert all(sound(headers, body, SECRET) for headers, body in receiver.taken)
    assert json.loads(receiver.taken[0][1])["type"] == "test"
    receiver.statuses = [401]
    assert execute(["notify", "test", "oncall"]) == 1
    assert execute(["notify", "test", "onc"]) == 2
    assert execute(["config", "show", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "it answered 401" in err
    assert "To fix: write oncall" in err
    for secret in (url, base64.b64encode(SECRET).decode()):  # law 8
        assert secret not in out + err


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ('url = "https://a.test"', "needs its secret"),
        ('secret = "x"', "is not the base64 of 24 to 64 bytes"),
        ('url = "http://a.test"\nsecret = "x"', "is not https"),
        ('url = "https://a.test"\nsecret = []', "is empty"),
        (
            f'url = "https://a.test"\nsecret = "{40 * "A"}"\nevents = ["x"]',
            "approval",
        ),
    ],
)
def test_a_destination_that_cannot_be_is_refused(
    said: str,
    wrong: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "caxton.toml").write_text(f"version = 1\n[notify.a]\n{said}\n")
    assert execute(["config", "check"]) == 2
    told = capsys.readouterr().out
    assert wrong in told
    assert "notify.a" in told


def test_every_type_stands_on_the_page() -> None:
    rows = PAGE.split("## Types")[1].split("## ")[0].splitlines()
    assert [row.split("`")[1] for row in rows if row.startswith("| `")] == [*TYPES]
