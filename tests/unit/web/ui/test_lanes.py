"""The calls of runs that answer calls of agents, in the timeline of the caller."""

from __future__ import annotations

import asyncio
import html
import re
from dataclasses import replace
from pathlib import Path

from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.testing import Script
from caxton_host.web.ui.render import visible
from tests.family import Family, child_of, grant, output
from tests.hostile_texts import HOSTILE
from tests.office import Names, Office, who

from .test_console import browsing, check_page


def calling(*tools: str, **params: str) -> Script:
    """Return a guest that makes calls, one after the other."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for n, tool in enumerate(tools, 1):
            server, name = tool.split("/")
            exposed = f"mcp__{server}__{name}".encode()
            await door.call(exposed, codec.encode(params), n)
        return output(None)

    return script


def family(office: Office, folder: Path, **scripts: Script) -> Family:
    """Return agents that may call each other and the tools, in the log of an office."""
    may = grant("agents/*", "demo/*")
    made = Family(
        folder,
        scripts=scripts,
        grants=dict.fromkeys(scripts, may),
        answers={("demo", "look"): "clear"},
    )
    made.store, made.clock = office.scene.store, office.scene.clock
    return made


async def page_of(office: Office, run: str, name: str = "boss", **about: str) -> str:
    async with browsing(office, name) as client:
        page = await client.get(f"/ui/runs/{run}", params=about)
    check_page(page)
    return page.text


def lanes(page: str) -> list[list[tuple[str, str, str]]]:
    """Return per lane of a page the runs, the events and the tools of its links."""
    link = r'<a href="/ui/runs/([^"?]+)\?seq=(\d+)"><span[^>]*></span>'
    return [
        re.findall(rf'{link}<span class="name">([^<]*)<', one)
        for one in page.split('<ol aria-label="Calls of the run')[1:]
    ]


async def test_a_call_of_an_agent_shows_the_calls_of_its_run_below_it(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    agents = family(
        office,
        tmp_path,
        planner=calling("agents/reader", "agents/none"),
        reader=calling("demo/look", "demo/none", "agents/deep"),
        deep=calling("demo/look"),
    )
    run = await agents.run("planner")
    child = child_of(run)
    page = await page_of(office, run)
    async with browsing(office) as client:
        there = await client.get(f"/ui/runs/{child}?seq=4")
        listed = await client.get("/ui/runs")

    below, deeper = lanes(page)
    assert below == [
        (child, "2", "mcp__demo__look"),
        (child, "4", "mcp__demo__none"),
        (child, "6", "mcp__agents__deep"),
    ]
    assert page.count("by a run of its own") == 2
    assert deeper == [(child_of(child, 3), "2", "mcp__demo__look")]
    assert "mcp__demo__none" in there.text.partition('id="chosen"')[2]
    # They begin with the time at which the first of them was asked for.
    shown = re.findall(r'<td data-label="Run">.*?<code>([^<]+)', listed.text)
    assert len({*shown}) == len(shown) == 3


async def test_who_may_not_see_a_run_sees_the_call_that_it_answers_alone(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    reader = calling("demo/look", city="Oslo")
    agents = family(office, tmp_path, planner=calling("agents/reader"), reader=reader)
    run = await agents.run("planner")
    people = Names(
        {
            "all": who("all", "read"),
            "decides": who("decides", "decide"),
            "some": who("some", "read", agents=("planner",)),
            "other": replace(who("other", "read"), tenant="acme"),
        }
    )
    pages: dict[str, str] = {}
    for name in people.known:
        async with browsing(office, name, people=people) as client:
            pages[name] = (await client.get(f"/ui/runs/{run}?seq=2")).text

    assert [len(lanes(page)) for page in pages.values()] == [1, 1, 0, 0]
    assert "mcp__demo__look" not in pages["some"] + pages["other"]
    assert f'answered by run <a href="/ui/runs/{child_of(run)}"' in pages["some"]


async def test_a_long_run_and_many_runs_are_cut_and_lead_on(tmp_path: Path) -> None:
    office = Office(tmp_path)
    agents = family(
        office,
        tmp_path,
        planner=calling("agents/long", *["agents/short"] * 21),
        long=calling(*["demo/look"] * 53),
        longer=calling(*["demo/look"] * 150),
        short=calling("demo/look"),
        calls_longer=calling("agents/longer", "agents/longer", "agents/short"),
        endless=calling("agents/endless"),
    )
    many, long = await agents.run("planner"), await agents.run("calls_longer")
    agents.agent("endless", limits=Limits(depth=6))
    endless = await agents.run("endless")
    found = lanes(page := await page_of(office, many))
    longer = lanes(cut := await page_of(office, long))
    deep = lanes(deepest := await page_of(office, endless))

    assert [len(lane) for lane in found] == [50, *[1] * 19, 0, 0]
    assert f'<li><a href="/ui/runs/{child_of(many)}">and 3 more<' in page
    assert f'<a href="/ui/runs/{child_of(many, 22)}">its calls<' in page
    assert [len(lane) for lane in longer] == [50, 50, 0]
    assert f'<a href="/ui/runs/{child_of(long)}">and more<' in cut
    assert [len(lane) for lane in deep] == [1, 1, 1, 0]
    assert deepest.count(">its calls<") == 1


async def test_while_a_run_below_goes_on_the_page_is_asked_for_again(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    reached, let = asyncio.Event(), asyncio.Event()

    async def waits(door: Door, guest: Guest) -> Ending:
        ending = await calling("demo/look")(door, guest)
        reached.set()
        await let.wait()
        return ending

    agents = family(office, tmp_path, planner=calling("agents/reader"), reader=waits)
    host = agents.host()
    run = host.new_id()
    task = asyncio.create_task(host.start(agents.request("planner"), run_id=run))
    await reached.wait()
    during = await page_of(office, run)
    let.set()
    await task
    after = await page_of(office, run)

    assert f'data-live="/ui/runs/{run}/live"' in during
    assert 'data-counting="yes"' in during
    assert [len(lane) for lane in lanes(during)] == [1]
    assert "data-live" not in after
    assert "data-counting" not in after


async def test_hostile_texts_of_a_run_below_are_shown_as_they_are(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)

    async def says(door: Door, guest: Guest) -> Ending:
        del guest
        for n, text in enumerate(HOSTILE[:45], 1):
            await door.call(text.encode(), codec.encode({text: text}), n)
        return output(None)

    agents = family(office, tmp_path, planner=calling("agents/says"), says=says)
    run = await agents.run("planner")
    [below] = lanes(page := await page_of(office, run))

    assert len(below) == 45
    assert visible(HOSTILE[0][:20]) in html.unescape(page)
