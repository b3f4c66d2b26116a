"""The inbox: what a person compares a call with, and that answers keep their types."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import Offer, Offered
from caxton_host.core.log.events import ToolCompleted
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.testing import Script
from caxton_host.web.ui.forms import fields_of
from tests.hostile_texts import HOSTILE
from tests.office import ANN, Office, Slow
from tests.scene import ended, pack, rule
from tests.turns import asked, invoked, question, suspended
from tests.unit.store.fakes import run_started
from tests.unit.web.api.test_runs import suspended as in_doubt

from .test_console import ASKED, FROM_HERE, NO_RUN, browsing, check_page, sent

FORM: dict[str, JSON] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


async def test_a_question_behind_a_hundred_others_keeps_the_types_of_its_answer(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    store = office.scene.store
    calls = [asked(n) for n in range(1, 101)]
    await store.create("run/0a").append(run_started(), *calls, suspended())
    put = replace(question(), form=FORM, until=10**18)
    await store.create("run/0b").append(run_started(), invoked(), put)
    said = {"run": "0b", "seq": "3", "reason": "x", "field:n": "7"}
    async with browsing(office) as client:
        found = await sent(client, "answer", what="accept", **said)

    assert "not what was asked" not in found.text
    owner = store.rows["0b"].owner
    (request,) = await store.requests.waiting(owner or "")
    assert json.loads(request.subject or "")["content"] == {"n": 7}


TYPED: dict[str, JSON] = {
    "type": "object",
    "properties": {
        "sky": {"type": "string", "title": "The sky"},
        "degrees": {"type": "number"},
        "rain": {"type": "boolean"},
        "odd": True,
    },
}


class Typed(Slow):
    """Tools that say what their answers are, and answer when they are let."""

    def __init__(self, schema: JSON) -> None:
        super().__init__()
        self.schema = schema

    async def offered(self, servers: Collection[str]) -> Offered:
        found = await super().offered(servers)
        return replace(found, offers=tuple(map(self.typed, found.offers)))

    def typed(self, offer: Offer) -> Offer:
        known = codec.decode_trusted(offer.definition)
        data = codec.canonical({**known, "outputSchema": self.schema})
        return replace(offer, definition=data, definition_sha256=codec.sha256(data))


def going_to(*cities: str) -> Script:
    """Return an agent that asks for the weather of one city after the other."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for fuel, city in enumerate(cities, 1):
            await door.call(b"mcp__demo__get_weather", pack(city=city), fuel)
        return ended(None)

    return script


async def test_a_call_is_compared_with_the_last_approved_one_and_those_before_it(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, grant=ASKED, script=going_to("Oslo", "Rome"))
    run = await office.start(ANN)
    await office.done(run)
    async with browsing(office) as client:
        first = await client.get("/ui/inbox")
        (seq,) = re.findall(r'name="seq" value="(\d+)"', first.text)
        said = {"run": run, "seq": seq, "reason": "x", "what": "approveCall"}
        await sent(client, "approval", **said)
        await office.service.go_on(run, "weather", "decided")
        await office.done(run)
        second = await client.get("/ui/inbox")
        api = await client.get(f"/ui/runs/{run}?seq=2")

    assert "No call of this tool that ended well was approved lately." in first.text
    assert "It is the first call of its run." in first.text
    assert f'<a href="/ui/runs/{run}?seq=6">That call</a> was approved' in second.text
    assert re.search(r"\$\.city.*Oslo.*Rome", second.text, re.DOTALL)
    assert "The calls before it" in second.text
    assert "Anyone with the scope" in second.text
    assert "The rule that asks: allow[1]" in second.text
    assert "Where its values came from" in second.text
    assert api.status_code == 200


async def test_a_call_says_who_may_decide_and_until_when(tmp_path: Path) -> None:
    asks = Approve(by=("ops",), within=900.0, count=2, not_requester=True)
    grant = Grant(allow=(replace(rule("demo/*"), approve=asks),))
    office = Office(tmp_path, grant=grant)
    run = await office.start(ANN)
    await office.done(run)
    async with browsing(office, "boss") as client:
        page = await client.get(f"/ui/inbox?run={run}")
        other = await client.get("/ui/inbox?run=0123")

    assert "In a role of: ops, but not ann, who started the run." in page.text
    assert "0 of 2 approved" in page.text
    assert 'class="left"' in page.text
    assert "Nothing waits for a person." in other.text


async def test_who_signed_in_long_ago_is_led_through_a_sign_in_and_back(
    tmp_path: Path,
) -> None:
    # law 4
    grant = Grant(allow=(replace(rule("demo/*"), approve=Approve(fresh=300.0)),))
    office = Office(tmp_path, grant=grant)
    run = await office.start(ANN)
    await office.done(run)
    said = {"run": run, "seq": "2", "reason": "x", "what": "approveCall"}
    there = f"/ui/inbox?run={run}"
    async with browsing(office) as client:
        before = await client.get(there)
        office.scene.clock.time += 301 * 1_000_000
        after = await client.get(there)
        away = await sent(client, "approval", **said, back="//evil.test/ui/")
        led = await sent(client, "approval", **said, back=there)
        recorded = [one.type for one in office.scene.store.events]
        form = await client.get(led.headers["location"])
        (back,) = re.findall(r'name="next" value="([^"]+)"', form.text)
        entered = await client.post(
            "/ui/sign-in",
            content=urlencode({"next": back, "token": "boss"}),
            headers=FROM_HERE,
        )
        client.headers["cookie"] = entered.headers["set-cookie"].partition(";")[0]
        again = await client.get(entered.headers["location"])
        done = await sent(client, "approval", **said, back=there)

    assert "must have signed in within 5 min" in before.text
    assert 'value="approveCall"' in before.text
    assert 'value="approveCall"' not in after.text
    assert 'value="denyCall"' in after.text
    assert "Sign in again to approve" in after.text
    assert "evil" not in away.headers["location"]
    assert "only soon after a sign-in" in form.text
    assert back == there
    assert 'value="approveCall"' in again.text
    assert "ApprovalDecided" not in recorded
    assert done.headers["location"] == f"{there}&done=approval"


async def test_the_answer_of_a_call_in_doubt_is_typed_into_a_form_of_its_schema(
    tmp_path: Path,
) -> None:
    # law 7
    office = Office(tmp_path, tools=Typed(TYPED))
    run, seq = await in_doubt(office)
    await office.service.go_on(run, "weather", "restart")
    assert await office.done(run) == "suspended"
    said = {"run": run, "seq": str(seq), "choice": "result", "reason": "seen"}
    async with browsing(office) as client:
        shown = [await client.get(at) for at in ("/ui/inbox", f"/ui/runs/{run}")]
        assert "<title>(1) " in shown[0].text
        wrong = await sent(
            client, "resolveCall", **said, result="", **{"field:degrees": "warm"}
        )
        values = {
            "field:sky": "clear",
            "field:degrees": "-4.5",
            "field:rain": "false",
            "result": "",
        }
        done = await sent(client, "resolveCall", **said, **values, back="/ui/inbox")
        await office.service.go_on(run, "weather", "resolved")
        await office.done(run)

    for page in shown:
        assert "The sky" in page.text
        assert 'name="field:degrees"' in page.text
        assert "Resolve" in page.text
    assert wrong.status_code == 400
    assert "degrees" in wrong.text
    assert done.headers["location"] == "/ui/inbox?done=resolveCall"
    stream = await office.scene.store.reader.read(f"run/{run}")
    (answer,) = [e.event for e in stream if isinstance(e.event, ToolCompleted)]
    assert isinstance(answer.data, dict)
    content = {"sky": "clear", "degrees": -4.5, "rain": False}
    assert answer.data["structuredContent"] == content


@pytest.mark.parametrize("text", ["", " ", '{"degrees": 12}'])
async def test_an_answer_that_says_nothing_does_not_resolve_a_call(
    tmp_path: Path, text: str
) -> None:
    # law 7
    office = Office(tmp_path, tools=Slow())
    run, seq = await in_doubt(office)
    await office.service.go_on(run, "weather", "restart")
    assert await office.done(run) == "suspended"
    said = {"run": run, "seq": str(seq), "choice": "result", "reason": "seen"}
    async with browsing(office) as client:
        found = await sent(client, "resolveCall", **said, result=text)

    assert found.status_code == 400
    assert "result: " in found.text
    assert "To fix: " in found.text
    assert "CallResolved" not in await office.types(run)


async def test_several_runs_are_changed_and_what_came_of_each_is_said(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, grant=ASKED)
    runs = [await office.start(ANN) for _ in range(2)]
    for run in runs:
        await office.done(run)
    async with browsing(office) as client:
        await sent(client, "cancelRun", run=runs[0], reason="x")
        selected = {f"run:{run}": "on" for run in (NO_RUN, *runs)}
        page = await sent(client, "runs", what="cancel", reason="x", **selected)

    assert page.status_code == 200
    assert page.text.count("To fix:") == 2
    assert await office.done(runs[1]) == "cancelled"


async def test_hostile_texts_of_calls_and_of_schemas_stay_texts(tmp_path: Path) -> None:
    fields: dict[str, JSON] = {
        text: {"type": "string", "title": text, "description": text, "enum": [text]}
        for text in HOSTILE[:40]
    }
    schema: JSON = {"type": "object", "properties": fields}
    doubt = Office(tmp_path, tools=Typed(schema))
    run, _ = await in_doubt(doubt)
    await doubt.service.go_on(run, "weather", "restart")
    await doubt.done(run)
    asking = Office(tmp_path, grant=ASKED, script=going_to("\n".join(HOSTILE)))
    await asking.done(await asking.start(ANN))
    odd: list[JSON] = [
        {"properties": 1},
        {"properties": {"a": True, "b": {"enum": 3}}},
        [],
        None,
    ]
    for office in (doubt, asking):
        async with browsing(office) as client:
            page = await client.get("/ui/inbox")
        check_page(page)
        assert "<h2" in page.text
    assert [len(fields_of(one)) for one in odd] == [0, 2, 0, 0]
