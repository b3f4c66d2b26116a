"""
Measure the pages of the console in a real browser, on a log that has grown.

A log with many runs and one of 100,000 events is served, and each page is opened: until
something is painted, and in bytes. Then a run that goes on is watched, and each task
of the page that takes over 50 ms is noted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random  # noqa: TID251 -- the same log each time
from collections.abc import Iterator
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

from caxton_host.core.log.events import RunCompleted
from caxton_host.core.names import uuid7
from caxton_host.store import migrate
from caxton_host.store.sql import SqlStore
from tests import standin
from tests.e2e.guests import call, guest
from tests.e2e.shell import toml

from . import growth
from .page import Figure, Section
from .sides import served, token

_CHROMIUM = "/usr/bin/chromium"
_LONG_CALLS = 50_000
_PAINTED_MS, _BYTES = 300.0, 100_000
#: Calls of the run that is watched, each with a tool that waits for so many seconds.
_WATCHED, _EACH_S, _WATCHED_S = 6_000, 0.003, 30.0
_LISTS = ("runs", "runs?state=suspended", "inbox", "agents", "servers", "evidence")
_NOTE = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.tasks.push(one.duration);
}).observe({ type: "longtask", buffered: true });
"""
_PAINTED = (
    """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime"""
)


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure pages, and a run that is watched."""
    return Section(
        "console",
        "The console in a browser",
        f"Chromium opens pages of a host with {options.grown:,} runs in its log, and "
        f"one of {2 * _LONG_CALLS + 2:,} events: until the first contentful paint, and "
        "the bytes of the page. Then a run whose tool answers after "
        f"{1000 * _EACH_S:g} ms is watched for {_WATCHED_S:g} s: tasks of the page "
        "over 50 ms. The targets are for `--grown 1000000`.",
        list(measure(folder, options.grown, options.rounds)),
    )


def measure(folder: Path, runs: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures."""
    (folder / "caxton.toml").write_text(
        toml(
            {
                "store": {"url": f"sqlite:///{folder}/log.db"},
                "servers.demo": {**standin.command(f"of={folder}")},
                "agents.a": {"module": "a.wasm"},
            },
            '[[agents.a.allow]]\ntools = ["demo/*"]\n',
        ),
        "utf-8",
    )
    asks = [call("mcp__demo__slow", seconds=_EACH_S)] * _WATCHED
    (folder / "a.wasm").write_bytes(guest(*asks, output="done"))
    url = f"sqlite:///{folder}/log.db"
    migrate.upgrade(url)
    asyncio.run(growth.build(url, runs))
    long = asyncio.run(_long(url))
    secret = token(folder, "--scope", "admin")
    with served(folder) as (said, _), sync_playwright() as driver:
        home = str(said["url"])
        browser = driver.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(_NOTE)
        page.goto(f"{home}/ui")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Runs").wait_for()
        middle, end = _LONG_CALLS, 2 * _LONG_CALLS
        paths = {path: path for path in _LISTS} | {
            "a long run": f"runs/{long}",
            "a long run, in the middle": f"runs/{long}?seq={middle}",
            "a long run, its end": f"runs/{long}?seq={end}",
        }
        yield from _opened(page, paths, rounds)
        yield from _watched(page, home, secret)
        browser.close()


async def _long(url: str) -> str:
    """Write a run of many calls, and return its id."""
    clock, chance = growth.Ticking(), random.Random(8)  # noqa: S311 -- no secret
    run_id = uuid7(clock.now(), chance.randbytes(10))
    store = SqlStore.open(url, clock=clock, entropy=os.urandom)
    async with store:
        log = store.create(f"run/{run_id}")
        await log.append(growth.started(chance, "core/1"))
        for first in range(1, _LONG_CALLS + 1, 100):
            pairs = (
                (growth.invoked(at, "server1"), growth.answered(at, chance))
                for at in range(first, first + 100)
            )
            await log.append(*(event for pair in pairs for event in pair))
        await log.append(RunCompleted(output="", output_sha256="ab" * 32, fuel=1))
    return run_id


def _opened(page: Page, paths: dict[str, str], rounds: int) -> Iterator[Figure]:
    home = page.url.partition("/ui")[0]
    for name, path in paths.items():
        painted, sizes, tasks = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            answer = page.goto(f"{home}/ui/{path}")
            assert answer is not None  # noqa: S101 -- it is another page
            sizes.append(len(answer.body()))
            page.wait_for_function(_PAINTED)
            painted.append(page.evaluate(_PAINTED))
            page.mouse.wheel(0, 20_000)
            page.wait_for_timeout(100)
            tasks.append(max(page.evaluate("window.tasks"), default=0.0))
        yield Figure(f"{name}, painted", painted, "ms", (_PAINTED_MS, False))
        yield Figure(f"{name}, size", sizes, "bytes", (_BYTES, False))
        yield Figure(f"{name}, longest task over 50 ms", tasks, "ms")


def _watched(page: Page, home: str, secret: str) -> Iterator[Figure]:
    """Watch a run that goes on."""
    with httpx.Client(
        base_url=f"{home}/api/v1",
        headers={"Authorization": f"Bearer {secret}"},
        timeout=120,  # for compiling
    ) as api:
        run = api.post("/runs", json={"agent": "a"}).raise_for_status().json()["run_id"]
        page.goto(page.url.partition("/ui")[0] + f"/ui/runs/{run}")
        page.locator(".timeline a", has_text="slow").first.wait_for(timeout=120_000)
        page.evaluate("window.tasks.length = 0")
        page.wait_for_timeout(1000 * _WATCHED_S)
        tasks = page.evaluate("window.tasks")
        query, times = {"limit": "1000"}, list[int]()
        while True:
            got = api.get(f"/runs/{run}/events", params=query).raise_for_status().json()
            times += [one["recorded_at"] for one in got["events"]]
            if not got["more"]:
                break
            query["after"] = got["cursor"]
    took = (times[-1] - times[1]) / 1e6
    yield Figure("a watched run, events", [len(times) / took], "/s")
    yield Figure("a watched run, tasks over 50 ms", [len(tasks)], "", (0, False))
    yield Figure("a watched run, its longest task", [max(tasks, default=0.0)], "ms")
