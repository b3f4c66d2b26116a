"""The pages of evidence and access: what is proven, who may call, what is erased."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.calls import JSON
from caxton_host.core.grants.principals import Principal, Token
from caxton_host.core.log.events import RunErased, RunHeld, TokenCreated, TokenRevoked
from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.serving import TokenRow
from caxton_host.web.app import Upkeep
from caxton_host.web.ui.actions import ACTIONS
from tests.hostile_texts import HOSTILE
from tests.office import ANN, Names, Office
from tests.scene import ended

from .test_console import browsing, check_page, sent

MADE = re.compile(r'<pre id="made">(caxton_[0-9a-f]{16}_[\w-]{43})</pre>')


async def made(client: httpx.AsyncClient, **fields: str) -> httpx.Response:
    given = {"name": "desk", "expires": "30d", "scope:run": "on"} | fields
    return await sent(client, "createToken", **given)


async def ended_run(office: Office) -> str:
    run = await office.start(ANN)
    await office.done(run)
    return run


def recorded(office: Office, *kinds: type) -> list[object]:
    events = [one.event for one in office.scene.store.events]
    return [one for one in events if isinstance(one, kinds)]


# -- is the log whole


async def test_a_log_is_verified_from_its_page(tmp_path: Path) -> None:
    office = Office(tmp_path)
    await ended_run(office)
    async with browsing(office) as client:
        before = await client.get("/ui/evidence")
        asked = await sent(client, "startVerification", back="/ui/evidence")
        await office.upkeep.verifying.aclose()
        after = await client.get(asked.headers["location"])

    events = len(office.scene.store.events)
    size, root = await office.scene.store.reader.tree()
    assert size == events
    assert "Nobody has verified it here" in before.text
    assert root.hex() in before.text
    assert f"{events} events in" in after.text
    assert "token boss" in after.text


async def test_a_call_has_its_leaf_of_the_tree(tmp_path: Path) -> None:
    # law 8
    office = Office(tmp_path)
    run = await ended_run(office)
    async with browsing(office) as client:
        signed = await client.get(f"/ui/runs/{run}?seq=2")
    async with browsing(office, "ann") as client:
        hidden = await client.get(f"/ui/runs/{run}?seq=2")

    assert "1, covered by no checkpoint yet" in signed.text
    assert "Leaf of the tree" not in hidden.text


async def test_one_verification_is_under_way_and_its_page_counts(
    tmp_path: Path,
) -> None:
    office, asked, gate = Office(tmp_path), list[bool](), asyncio.Event()
    await ended_run(office)
    work = office.upkeep.verifying

    async def slow(told: Callable[[int], None], *, full: bool) -> dict[str, JSON]:
        asked.append(full)
        told(3)
        await gate.wait()
        return await office.verified(told, full=full)

    work.look = slow
    async with browsing(office) as client:
        await sent(client, "startVerification", full="on")
        await sent(client, "startVerification")
        page = await client.get("/ui/evidence")
        gate.set()
        # A host that stops does not wait for the end.
        await work.aclose()
        after = await client.get("/ui/evidence")

    assert asked == [True]
    assert "Verified: 3 of" in page.text
    assert 'data-counting="yes"' in page.text
    assert 'name="full"' not in page.text
    assert "Nobody has verified it here" in after.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (LogBrokenError("the file is damaged"), "the file is damaged"),
        # Its text may name the database.
        (StoreError("postgresql://me:secret@db"), "the log cannot be read"),
    ],
)
async def test_a_log_that_cannot_be_verified_says_so(
    tmp_path: Path, wrong: Exception, said: str
) -> None:
    # law 8
    office = Office(tmp_path)

    async def broken(told: Callable[[int], None], *, full: bool) -> dict[str, JSON]:
        del full, told
        raise wrong

    office.upkeep.verifying.look = broken
    async with browsing(office) as client:
        await sent(client, "startVerification")
        await office.upkeep.verifying.aclose()
        page = await client.get("/ui/evidence")

    assert said in page.text
    assert "failed" in page.text
    assert "secret" not in page.text


async def test_what_was_found_is_shown_as_it_is(tmp_path: Path) -> None:
    office = Office(tmp_path)
    fault: dict[str, JSON] = {"kind": "hash", "stream": "run/1", "seq": 3}
    bad: dict[str, JSON] = {
        "verdict": "broken",
        "events": 9,
        "streams": 2,
        "checkpoint": {"size": 7},
        "behind": 2,
        "erased": 4,
        "before": {"events": 5},
        "faults": [{**fault, "message": HOSTILE[0]}],
    }
    office.upkeep.verifying.last = {
        "actor": {"kind": "token", "id": HOSTILE[1]},
        "ended_at": 1,
        "audit": bad,
        "error": None,
    }
    office.upkeep.verifying.kept = lambda: {"events": 5, "at": 1, "full_at": 1}
    async with browsing(office) as client:
        page = await client.get("/ui/evidence")
        bad |= {"verdict": "signer_unknown", "faults": [], "checkpoint": None}
        unsigned = await client.get("/ui/evidence")

    check_page(page)
    for said in ("run/1, event 3", "4 payloads", "7 events", "first 5 events intact"):
        assert said in page.text
    assert "nothing, by a trusted key" in unsigned.text


# -- bundles and erasure


async def test_the_bundle_of_a_run_is_downloaded(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run = await ended_run(office)
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}")
        found = await client.get(f"/ui/runs/{run}/bundle")
        whole = await client.get(f"/ui/runs/{run}/page")
    async with browsing(office, "eve") as client:
        reader = await client.get(f"/ui/runs/{run}")
        # It has the events of other runs that it was forked from, and their places.
        refused = await client.get(f"/ui/runs/{run}/bundle")
        unseen = await client.get(f"/ui/runs/{run}/page")

    assert f'href="/ui/runs/{run}/bundle"' in page.text
    assert f">bundle of {run}</script>" in whole.text
    # Saved, and not shown at this address.
    assert f'attachment; filename="{run}.html"' == whole.headers["content-disposition"]
    assert whole.headers["content-type"] == "application/octet-stream"
    assert unseen.status_code == 403
    assert found.content == f"bundle of {run}".encode()
    assert f'filename="{run}.caxton"' in found.headers["content-disposition"]
    assert "/bundle" not in reader.text
    assert refused.status_code == 403


async def test_a_run_is_erased_once_its_id_is_typed(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run = await ended_run(office)
    async with browsing(office) as client:
        page = await client.get(f"/ui/runs/{run}/erase")
        said = {"run": run, "reason": "asked for"}
        wrong = await sent(client, "eraseRun", confirm="0000", **said)
        none = recorded(office, RunErased)
        done = await sent(client, "eraseRun", confirm=run[:13], **said)
        after = await client.get(done.headers["location"])
        again = await client.get(f"/ui/runs/{run}/erase")
        twice = await sent(client, "eraseRun", confirm=run[:18], **said)

    assert "What stays" in page.text
    assert (wrong.status_code, none) == (400, [])
    (erased,) = recorded(office, RunErased)
    assert isinstance(erased, RunErased)
    assert (erased.run, erased.reason, erased.actor["id"]) == (run, "asked for", "boss")
    assert "The data of the run is erased." in after.text
    assert "Oslo" not in after.text
    assert "It is erased already." in again.text
    assert twice.status_code == 410


async def test_a_run_on_hold_or_under_way_is_not_erased(tmp_path: Path) -> None:
    office = Office(tmp_path)
    held, gate = await ended_run(office), asyncio.Event()

    async def waits(door: Door, guest: Guest) -> Ending:
        del door, guest
        await gate.wait()
        return ended(None)

    office.scene.sandbox.script = waits
    going = await office.start(ANN)
    actor: dict[str, JSON] = {"kind": "token", "id": HOSTILE[0]}
    hold = RunHeld(run=held, actor=actor, reason=HOSTILE[1])
    await office.scene.store.holding.record(hold)
    async with browsing(office) as client:
        pages = [await client.get(f"/ui/runs/{run}/erase") for run in (held, going)]
        refused = [
            await sent(client, "eraseRun", run=run, reason="x", confirm=run[:13])
            for run in (held, going)
        ]
        await sent(client, "eraseRun", run=held, reason=" ", confirm=held[:13])
    gate.set()
    await office.done(going)

    check_page(pages[0])
    assert "It is on hold" in pages[0].text
    assert "It has not ended." in pages[1].text
    assert not any('name="confirm"' in page.text for page in pages)
    assert [one.status_code for one in refused] == [422, 422]
    assert recorded(office, RunErased) == []


async def test_an_erasure_that_left_the_file_as_it_was_says_so(tmp_path: Path) -> None:
    office = Office(tmp_path)
    runs = [await ended_run(office) for _ in range(2)]

    async def busy() -> bool:
        return False

    office.scene.store.erasure.scrub = busy  # type: ignore[method-assign]
    async with browsing(office) as client:
        left, kept = [
            await sent(
                client, "eraseRun", run=run, reason="x", confirm=run[:13], **more
            )
            for run, more in zip(runs, ({}, {"keep_file": "on"}), strict=True)
        ]

    assert (left.status_code, kept.status_code) == (409, 303)
    assert "may still contain the data" in left.text
    assert len(recorded(office, RunErased)) == 2


# -- tokens


async def test_a_token_is_made_shown_once_and_revoked(tmp_path: Path) -> None:
    # law 8
    office = Office(tmp_path)
    async with browsing(office) as client:
        shown = await made(client, agents="weather", **{"scope:decide": "on"})
        listed = await client.get("/ui/access")
        token = Token.parse(MADE.findall(shown.text)[0])
        assert token is not None
        row = await office.scene.store.tokens.find(token.id)
        twice = await made(client)
        gone = await sent(client, "revokeToken", id=token.id, back="/ui/access")
        after = await client.get(gone.headers["location"])

    assert row is not None
    assert token.fits(row.digest)
    assert row.scopes == ("run", "decide")
    assert (row.agents, row.tenant) == (("weather",), None)
    assert row.expires_at == row.created_at + 30 * 86400 * 1_000_000
    assert "shown once" in shown.text
    assert shown.headers["cache-control"] == "no-store"
    assert twice.status_code == 422
    assert "The token is revoked." in after.text
    created, revoked = recorded(office, TokenCreated, TokenRevoked)
    for one in (created, revoked):
        assert one.actor["id"] == "boss"  # type: ignore[attr-defined]
    everything = listed.text + after.text + repr(office.scene.store.events)
    assert token.secret not in everything


async def test_nobody_makes_a_token_that_may_more_than_theirs(tmp_path: Path) -> None:
    # law 4
    office = Office(tmp_path)
    now = office.scene.clock.now()
    row = TokenRow(
        id="boss",
        name="",
        digest="",
        scopes=("admin",),
        created_at=now,
        expires_at=now + 86400 * 1_000_000,
    )
    await office.scene.store.tokens.add(row, "host/0")
    async with browsing(office) as client:
        offered = await client.get("/ui/access")
        longer = await made(client)
        shorter = await made(client, expires="12h")
    async with browsing(office, "eve") as client:
        reader = await made(client)
        page = await client.get("/ui/access")

    assert re.findall(r"<option(?: selected)?>(\w+)", offered.text) == ["1h", "12h"]
    assert (longer.status_code, shorter.status_code) == (403, 200)
    assert "longer than yours" in longer.text
    assert reader.status_code == 403
    assert "Make a token" not in page.text


async def test_callers_without_a_token_make_none(tmp_path: Path) -> None:
    # law 4: what they may ends with the setting that lets them in
    me = Principal(
        kind="local", id="me", authenticated=False, scopes=frozenset({"admin"})
    )
    office = Office(tmp_path)
    for serve, status in (
        (Serve(allow_unauthenticated=True), 403),
        (Serve(), 200),  # by the link of `caxton ui`
    ):
        async with browsing(office, "me", serve, Names({"me": me})) as client:
            found = await made(client)
            assert found.status_code == status, found.text


@pytest.mark.parametrize(
    "fields",
    [
        {"scope:walk": "on"},
        {"expires": "soon"},
        {"expires": "0d"},
        {"agents": "wether"},
        {"session": "dev"},
        {"tenant": "a/b"},
        {"name": "x" * 65},
        {"name": "a\u202eb"},
    ],
)
async def test_a_token_for_nothing_that_exists_is_not_made(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    # law 9
    office = Office(tmp_path)
    async with browsing(office) as client:
        found = await made(client, **fields)

    assert found.status_code in {400, 422}
    assert "To fix:" in found.text
    check_page(found)
    assert recorded(office, TokenCreated) == []


async def test_hostile_names_of_tokens_and_hosts_stay_texts(tmp_path: Path) -> None:
    office = Office(tmp_path)
    store = office.scene.store
    for n, text in enumerate(HOSTILE):
        row = TokenRow(
            id=f"{n:016x}",
            name=text,
            digest="",
            scopes=("run",),
            agents=(text,),
            roles=(text,),
            tenant=text,
            created_at=n,
        )
        await store.tokens.add(row, "host/0")
        await store.leases.join(f"host/{text}")
    async with browsing(office) as client:
        page = await client.get("/ui/access")
    check_page(page)


async def test_hosts_are_shown_with_what_they_drive(tmp_path: Path) -> None:
    office, gate = Office(tmp_path), asyncio.Event()

    async def waits(door: Door, guest: Guest) -> Ending:
        del door, guest
        await gate.wait()
        return ended(None)

    office.scene.sandbox.script = waits
    run = await office.start(ANN)
    row = await office.scene.store.reader.row(run)
    while row is None or row.state != "running":
        await asyncio.sleep(0)
        row = await office.scene.store.reader.row(run)
    leases = office.scene.store.leases
    await leases.join("host/018bcfe5-6800-7000-8000-000000000000")
    async with browsing(office) as client:
        page = await client.get("/ui/access")
    gate.set()
    await office.done(run)

    rows = re.findall(r"<tr>.*?</tr>", page.text, re.DOTALL)[-2:]
    assert "2023-11-14 22:13:20" in rows[0]
    assert "held" in rows[0]
    # The host of the office has not joined: as one that died.
    assert "this one" in rows[1]
    assert "lost" in rows[1]
    assert 'data-label="Runs">1<' in rows[1]


# -- what is only read


@pytest.mark.parametrize("action", [*ACTIONS])
async def test_where_nothing_can_be_changed_every_action_says_why(
    tmp_path: Path, action: str
) -> None:
    # law 4
    office = Office(tmp_path)
    run = await ended_run(office)
    reading = Upkeep(verifying=office.upkeep.verifying, reading="it is a bundle")
    before = list(office.scene.store.events)
    what = {"runs": "cancel", "approval": "approveCall"}.get(action, "accept")
    fields = {
        "run": run,
        f"run:{run}": "on",
        "seq": "2",
        "name": "demo",
        "id": "0",
        "what": what,
        "kind": "agent",
        "choice": "fail",
        "reason": "x",
        "expires": "1h",
        "scope:run": "on",
        "confirm": run[:13],
        "tool": "echo",
        "params": "{}",
        "definition_sha256": "0" * 64,
    }
    async with browsing(office, "aud", upkeep=reading) as client:
        page = await client.get(f"/ui/runs/{run}?seq=2")
        found = await sent(client, action, **fields)
        bundle = await client.get(f"/ui/runs/{run}/bundle")
        lists = [await client.get(f"/ui/{it}") for it in ("runs", "evidence", "access")]

    said = "nothing can be changed, started or signed here: it is a bundle"
    if action == "startVerification":
        assert found.status_code == 303
    elif action == "judgeHistory":
        assert "no agent" in found.text  # It reads: a bundle has no rules.
    else:
        assert (found.status_code, said in found.text) == (403, True)
    assert (bundle.status_code, said in bundle.text) == (403, True)
    for one in (page, *lists):
        assert "Read only: it is a bundle." in one.text
        forms = re.findall(r'action="/ui/(?:do/)?([\w-]+)"', one.text)
        assert {*forms} <= {"sign-out", "startVerification", "runs"}
    assert office.scene.store.events == before
