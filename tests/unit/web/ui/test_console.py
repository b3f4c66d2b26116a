"""The console: who sees what, what a form may do, and that texts stay texts."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal, Scope
from caxton_host.core.log.notices import TYPES
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.testing import FakeTools
from caxton_host.web.api.openapi import OPERATIONS
from caxton_host.web.app import Upkeep, application
from caxton_host.web.ui import grants
from caxton_host.web.ui.actions import ACTIONS
from caxton_host.web.ui.console import VIEWS
from caxton_host.web.ui.visits import Visits
from tests.hostile_texts import HOSTILE
from tests.office import ANN, BOSS, EVE, Names, Office, who
from tests.scene import ANSWERS, ended, pack, rule

NAME = "caxton-0123456789ab.localhost"
HOME = f"http://{NAME}:8080"
STATIC = ("console.css", "console.js", "icon.svg")
ACME = replace(who("tess", "admin"), tenant="acme")
PEOPLE = Names(
    {
        one.id: one
        for one in (ANN, BOSS, EVE, ACME, who("dora", "decide"), who("aud", "auditor"))
    }
)
NO_RUN = "0" * 36
FROM_HERE = {
    "sec-fetch-site": "same-origin",
    "origin": HOME,
    "content-type": "application/x-www-form-urlencoded",
}
#: A button that asks first, and another.
ASKED = Grant(allow=(replace(rule("demo/*"), approve=Approve()),))


@asynccontextmanager
async def browsing(
    office: Office,
    name: str = "boss",
    serve: Serve | None = None,
    people: Names = PEOPLE,
    upkeep: Upkeep | None = None,
) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a browser in which somebody is signed in; ``""``: nobody."""
    visits = Visits(
        key=b"k" * 32,
        identity=people,
        clock=office.scene.clock,
        local=Principal(kind="local", id="me", scopes=frozenset({"admin"})),
        name=NAME,
    )
    app = application(
        office.service,
        people,
        serve or Serve(),
        visits=visits,
        upkeep=upkeep or office.upkeep,
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=HOME
    ) as client:
        if name:
            cookie = visits.cookie(await visits.begin(f"Bearer {name}"))
            client.headers["cookie"] = cookie.partition(";")[0]
        yield client


async def sent(
    client: httpx.AsyncClient, action: str, token: str | None = None, **fields: str
) -> httpx.Response:
    """Send a form, as a page does."""
    if token is None:
        page = await client.get("/ui/runs")
        token = re.findall(r'name="form" value="([0-9a-f]+)"', page.text)[0]
    body = urlencode({"form": token, **fields})
    return await client.post(f"/ui/do/{action}", content=body, headers=FROM_HERE)


def paths(run: str) -> Iterator[str]:
    """Yield an address of each page."""
    for path in VIEWS:
        filled = path.format(run=run, name="demo", agent="weather") + (
            "?seq=2" if "run}" in path else ""
        )
        yield f"/ui{filled}" + (f"&with={run}" if "diff" in path else "")


# -- who gets in


async def test_who_is_not_signed_in_is_led_there_and_back(tmp_path: Path) -> None:
    async with browsing(Office(tmp_path), "") as client:
        found = await client.get("/ui/runs?state=failed")
        page = await client.get(found.headers["location"])

    assert found.status_code == 303
    assert "/ui/runs?state=failed" in page.text
    assert "caxton serve token create" in page.text


async def test_a_form_of_a_visit_that_has_ended_leads_to_the_sign_in(
    tmp_path: Path,
) -> None:
    async with browsing(Office(tmp_path), "") as client:
        found = await client.post(
            "/ui/do/approval",
            content="what=approveCall",
            headers=FROM_HERE,
        )

    assert found.status_code == 401
    assert "Authorization" not in found.text
    assert "To fix: sign in" in found.text
    assert 'href="/ui/sign-in"' in found.text


async def test_a_token_signs_in_once_it_is_good(tmp_path: Path) -> None:
    form = {"next": "/ui/inbox"}
    async with browsing(Office(tmp_path), "") as client:
        bad, good = [
            await client.post(
                "/ui/sign-in",
                content=urlencode({**form, "token": token}),
                headers=FROM_HERE,
            )
            for token in ("nobody", "boss")
        ]
        client.headers["cookie"] = good.headers["set-cookie"].partition(";")[0]
        shown = await client.get(good.headers["location"])

    assert (bad.status_code, "set-cookie" in bad.headers) == (401, False)
    assert "a token is required" in bad.text
    assert (good.status_code, good.headers["location"]) == (303, "/ui/inbox")
    assert shown.status_code == 200
    assert "token boss: admin" in shown.text


@pytest.mark.parametrize(
    "there",
    [
        "//evil.test/ui/",
        "https://evil.test/ui/",
        "/\\evil.test",
        "/ui/..//evil.test",
        "/ui/\r\nset-cookie: a=b",
        "javascript:alert(1)",
        "/api/v1/runs",
        "/ui/ö",
    ],
)
async def test_a_sign_in_leads_nowhere_else(tmp_path: Path, there: str) -> None:
    body = urlencode({"token": "boss", "next": there})
    async with browsing(Office(tmp_path), "") as client:
        found = await client.post("/ui/sign-in", content=body, headers=FROM_HERE)

    assert found.headers["location"] == "/ui/runs"


async def test_at_another_name_of_loopback_the_pages_lead_to_theirs(
    tmp_path: Path,
) -> None:
    async with browsing(Office(tmp_path)) as client:
        for name in ("127.0.0.1", "localhost"):
            url = f"http://{name}:8080/ui/runs"
            found = await client.get(url, headers={"host": f"{name}:8080"})
            assert found.status_code == 303
            assert found.headers["location"].startswith(f"{HOME}/ui/sign-in")


async def test_a_cookie_is_nothing_to_the_api_and_a_header_nothing_to_the_pages(
    tmp_path: Path,
) -> None:
    # law 4
    async with browsing(Office(tmp_path)) as client:
        api = [
            await client.get(f"/api/v1{path}") for path in ("/me", "/runs", "/agents")
        ]
        client.headers.pop("cookie")
        page = await client.get("/ui/runs", headers={"authorization": "Bearer boss"})

    assert [one.status_code for one in api] == [401] * 3
    assert page.status_code == 303


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_link_on_another_site_leads_to_a_page_that_asks(
    tmp_path: Path, site: str
) -> None:
    async with browsing(Office(tmp_path)) as client:
        page = await client.get("/ui/runs", headers={"sec-fetch-site": site})
        form = await client.post(
            "/ui/do/runs", content="", headers={**FROM_HERE, "sec-fetch-site": site}
        )

    assert (page.status_code, form.status_code) == (403, 403)
    assert 'href="/ui/runs">Go on' in page.text
    assert "weather" not in page.text


async def test_signing_out_ends_the_visit(tmp_path: Path) -> None:
    async with browsing(Office(tmp_path)) as client:
        page = await client.get("/ui/runs")
        token = re.findall(r'name="form" value="([0-9a-f]+)"', page.text)[0]
        body = urlencode({"form": token})
        out = await client.post("/ui/sign-out", content=body, headers=FROM_HERE)
        after = await client.get("/ui/runs")

    assert "Max-Age=0" in out.headers["set-cookie"]
    assert after.status_code == 303


async def test_where_callers_need_no_token_nobody_signs_in(tmp_path: Path) -> None:
    class Anybody(Names):
        async def principal(self, authorization: str | None) -> Principal:
            del authorization
            return BOSS

    async with browsing(Office(tmp_path), "") as client:
        app = client._transport.app  # type: ignore[attr-defined]
        app.pages.visits.identity = Anybody()
        found = await client.get("/ui/sign-in?next=/ui/inbox")

    assert (found.status_code, found.headers["location"]) == (303, "/ui/inbox")


# -- what is answered


@pytest.mark.parametrize("path", ["/ui/sign-in", *(f"/ui/static/{n}" for n in STATIC)])
async def test_what_anybody_may_load_holds_nothing_and_may_load_only_its_own(
    tmp_path: Path, path: str
) -> None:
    async with browsing(Office(tmp_path), "") as client:
        found = await client.get(path)

    assert found.status_code == 200
    policy = found.headers["content-security-policy"].split("; ")
    assert policy[0] == "default-src 'none'"
    assert {"script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= {
        *policy
    }
    assert "unsafe" not in found.headers["content-security-policy"]
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("serve", [Serve(ui=False), Serve(api=False)])
async def test_without_the_pages_or_the_api_there_is_no_console(
    tmp_path: Path, serve: Serve
) -> None:
    office = Office(tmp_path)
    app = application(office.service, PEOPLE, serve)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080"
    ) as client:
        found = await client.get("/ui", headers={"authorization": "Bearer boss"})
    assert found.status_code == 404


#: The pages that a scope alone opens; the API refuses the others.
OPENS: Mapping[Scope, set[str]] = {
    "admin": {*VIEWS},
    "run": {*VIEWS} - {"/servers", "/servers/{name}"},
    "read": {*VIEWS} - {"/servers", "/servers/{name}"},
    "decide": {*VIEWS} - {"/servers", "/servers/{name}"},
    "auditor": {*VIEWS},
}


@pytest.mark.parametrize("name", ["boss", "ann", "eve", "dora", "aud"])
async def test_a_scope_opens_its_pages_and_no_others(tmp_path: Path, name: str) -> None:
    # law 4
    office = Office(tmp_path)
    run = await office.start(ANN)
    await office.done(run)
    (scope,) = PEOPLE.known[name].scopes
    async with browsing(office, name) as client:
        found = {
            view: await client.get(path)
            for view, path in zip(VIEWS, paths(run), strict=True)
            if "server" not in view or scope not in {"admin", "auditor"}
        }

    for view, page in found.items():
        assert page.status_code == (200 if view in OPENS[scope] else 403), view
    offered = found["/runs/{run}"].text
    assert ("Fork here" in offered) == (scope in {"admin", "run"})
    assert ('href="/ui/servers"' in offered) == ("/servers" in OPENS[scope])


async def test_another_tenant_sees_nothing_of_a_run(tmp_path: Path) -> None:
    # law 4
    office = Office(tmp_path)
    run = await office.start(ANN)
    await office.done(run)
    async with browsing(office, "tess") as client:
        of_run, others = [
            [await client.get(path) for path in paths(run) if (run in path) == named]
            for named in (True, False)
        ]

    assert {page.status_code for page in of_run} == {404}
    assert not any(run in page.text for page in others)
    assert not any("Oslo" in page.text for page in (*of_run, *others))


@pytest.mark.parametrize("name", ["ann", "tess"])
async def test_what_a_token_may_not_see_is_not_said_to_be_none(
    tmp_path: Path, name: str
) -> None:
    office = Office(tmp_path)
    async with browsing(office, name) as client:
        found = [await client.get(f"/ui/{page}") for page in ("evidence", "access")]

    assert "Nothing is." not in found[0].text
    tenant = name == "tess"
    assert all(("without a tenant" in page.text) == tenant for page in found)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/nothing", 404),
        (f"/ui/runs/{NO_RUN}", 404),
        ("/ui/runs/..%2f..", 404),
        ("/ui/runs?since=yesterday", 400),
        ("/ui/runs?state=odd", 400),
        ("/ui/runs?cursor=x", 400),
        (f"/ui/runs/{NO_RUN}/diff?with=1", 404),
        ("/ui/agents?agent=weather&tool=demo/x&params={", 400),
        ("/ui/runs?agent=" + "x" * 300, 400),
        ("/ui/agents/nobody", 404),
        ("/ui/agents/weather?since=yesterday", 400),
        ("/ui/agents/weather?toml=tools+%3D+[", 422),
        ("/ui/agents/weather?toml=&rule=allow[7]", 404),
    ],
)
async def test_a_bad_address_says_what_is_wrong_and_how_to_mend_it(
    tmp_path: Path, path: str, status: int
) -> None:
    async with browsing(Office(tmp_path)) as client:
        found = await client.get(path)

    assert found.status_code == status
    assert "To fix:" in found.text
    assert found.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", sorted({p for _, *two in TYPES.values() for p in two}))
async def test_a_notice_leads_to_a_page(tmp_path: Path, path: str) -> None:
    office = Office(tmp_path)
    demo = ServerConfig(name="demo", command=("demo",))
    origins = {"demo": tmp_path / "caxton.toml"}
    office.config = replace(office.config, servers={"demo": demo}, origins=origins)
    run = await office.start()
    await office.done(run)
    facts = {"run": run, "agent": "weather", "server": "demo"}
    async with browsing(office) as client:
        page = await client.get(path.format(**facts))
    assert page.status_code == 200
    if path.startswith("/ui/runs?"):
        for values in parse_qs(urlsplit(path.format(**facts)).query).values():
            assert values[0] in page.text


async def test_filters_live_in_the_address(tmp_path: Path) -> None:
    office = Office(tmp_path)
    runs = [await office.start(ANN) for _ in range(2)]
    for run in runs:
        await office.done(run)
    query = "agent=weather&state=completed&since=2020-01-01T00:00&outcome=ok"
    async with browsing(office) as client:
        found = await client.get(f"/ui/runs?{query}")
        none = await client.get("/ui/runs?agent=other")

    assert all(run in found.text for run in runs)
    assert 'value="weather"' in found.text
    assert not any(run in none.text for run in runs)


async def test_an_id_to_compare_with_is_taken_as_it_is_pasted(tmp_path: Path) -> None:
    office = Office(tmp_path)
    one, other = [await office.start(ANN) for _ in range(2)]
    for run in (one, other):
        await office.done(run)
    async with browsing(office) as client:
        found = [
            await client.get(f"/ui/runs/{one}/diff", params={"with": typed})
            for typed in (f" {other}\n", other.upper(), "", "zzz")
        ]

    assert [page.status_code for page in found] == [200, 200, 404, 404]
    assert all("begins with that" in page.text for page in found[2:])


async def test_a_long_run_is_shown_in_parts_and_nothing_is_left_out(
    tmp_path: Path,
) -> None:
    async def long(door: Door, guest: Guest) -> Ending:
        del guest
        for n in range(300):
            door.log(1, str(n).encode())
        return ended(None)

    office = Office(tmp_path, script=long)
    run = await office.start(ANN)
    await office.done(run)
    seen = set[int]()
    async with browsing(office) as client:
        path: str | None = f"/ui/runs/{run}"
        while path:
            page = await client.get(path)
            assert len(page.content) < 200_000
            seen |= {int(n) for n in re.findall(r'id="e(\d+)"', page.text)}
            later = re.search(r'rel="next" href="([^"]+)">Later', page.text)
            path = later and later[1].replace("&amp;", "&")

    assert seen == {*range(1, 303)}


async def test_a_changed_rule_shows_the_calls_that_it_would_deny_and_its_text(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    agent = office.config.agents["weather"]
    agent = replace(agent, rule_texts={"allow[1]": "as in the file"})
    office.config = replace(office.config, agents={"weather": agent})
    run = await office.start(ANN)
    await office.done(run)
    # Longer than an address may be.
    new = f'# {"x" * 9000}\n[[agents.weather.allow]]\ntools = ["demo/echo"]\n'
    tried = {"rule": "allow[1]", "toml": new.replace("\n", "\r\n")}
    async with browsing(office, "eve") as client:
        page = await client.get("/ui/agents/weather")
        strict = await sent(client, "judgeHistory", name="weather", **tried)
        gone = await client.get("/ui/agents/weather?toml=&rule=allow[1]")
        empty = await sent(client, "judgeHistory", name="weather", toml="")
        past = {**tried, "until": "2020-01-01T00:00"}
        none = await sent(client, "judgeHistory", name="weather", **past)

    assert "allowed 1, denied 0" in page.text
    assert "as in the file" in page.text
    for found in (strict, gone):
        assert "1 decision would change" in found.text
        assert "newly denied" in found.text
        assert f'href="/ui/runs/{run}?seq=2"' in found.text
    assert "in place of allow[1]" in strict.text
    assert "u{000d}" not in strict.text
    assert "Remove allow[1]" in gone.text
    assert "To make it so" not in empty.text
    assert "No decision would change" in none.text


async def test_a_long_history_is_not_said_to_be_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(tmp_path)
    await office.done(await office.start(ANN))
    monkeypatch.setattr(grants, "_GLANCE", 1)
    async with browsing(office) as client:
        page = await client.get("/ui/agents/weather")
    assert "Not all runs were read" in page.text


async def test_who_may_not_read_the_runs_of_all_is_shown_the_rules_alone(
    tmp_path: Path,
) -> None:
    # law 4
    office = Office(tmp_path)
    await office.done(await office.start(BOSS))
    async with browsing(office, "ann") as client:
        page = await client.get("/ui/agents/weather?toml=&rule=allow[1]")
    assert "allow[1]" in page.text
    words = ("would change", "allowed 1", "Try a change")
    assert not any(word in page.text for word in words)


# -- what forms do


async def test_every_action_is_an_operation_of_the_api(tmp_path: Path) -> None:
    del tmp_path
    known = {one.id for one in OPERATIONS}
    assert {name for name in ACTIONS if name not in known} == {
        "approval",
        "answer",
        "runs",
    }


@pytest.mark.parametrize("token", ["", "0" * 64, "ö"])
@pytest.mark.parametrize("action", [*ACTIONS])
async def test_a_form_of_another_page_does_nothing(
    tmp_path: Path, action: str, token: str
) -> None:
    # law 4
    office = Office(tmp_path)
    async with browsing(office) as client:
        found = await sent(client, action, token, run=NO_RUN, seq="1", name="demo")
        get = await client.get(f"/ui/do/{action}")

    assert (found.status_code, get.status_code) == (403, 405)
    assert "another visit" in found.text


@pytest.mark.parametrize(
    "media", ["application/json", "multipart/form-data", "text/plain"]
)
async def test_a_page_takes_forms_only(tmp_path: Path, media: str) -> None:
    async with browsing(Office(tmp_path)) as client:
        found = await client.post(
            "/ui/do/runs", content=b"{}", headers={**FROM_HERE, "content-type": media}
        )
    assert found.status_code == 415


async def test_a_call_is_approved_by_a_form_and_the_run_goes_on(tmp_path: Path) -> None:
    office = Office(tmp_path, grant=ASKED)
    run = await office.start(ANN)
    await office.done(run)
    async with browsing(office, "dora") as client:
        waits = await client.get("/ui/inbox")
        (seq,) = re.findall(r'name="seq" value="(\d+)"', waits.text)
        said = {"run": run, "seq": seq, "reason": "it is fine", "back": "/ui/inbox"}
        done = await sent(client, "approval", what="approveCall", **said)
        told = await client.get(done.headers["location"])

    assert "(1) Inbox" in waits.text
    assert "Oslo" in waits.text
    assert done.headers["location"] == "/ui/inbox?done=approval"
    assert "Your decision is recorded." in told.text
    assert "ApprovalDecided" in await office.types(run)


async def test_who_may_not_decide_is_offered_no_form(tmp_path: Path) -> None:
    # law 4
    office = Office(tmp_path, grant=ASKED)
    run = await office.start(ANN)
    await office.done(run)
    async with browsing(office, "eve") as client:
        waits = await client.get("/ui/inbox")
        found = await sent(
            client, "approval", what="approveCall", run=run, seq="2", reason="x"
        )

    assert "Your token may not decide this." in waits.text
    assert "Approve" not in waits.text
    assert found.status_code == 403
    assert "ApprovalDecided" not in await office.types(run)


async def test_a_run_is_forked_with_another_answer(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run = await office.start(BOSS)
    await office.done(run)
    async with browsing(office) as client:
        done = await sent(client, "forkRun", run=run, seq="3", result="it rains")
        path = done.headers["location"]
        new = path.split("/")[3].partition("?")[0]
        await office.done(new)
        fork = await client.get(path)
        both = await client.get(f"/ui/runs/{run}/diff?with={new}")

    assert "Forked from run" in fork.text
    assert "it rains" in both.text
    assert "1 call differs" in both.text


async def test_a_run_is_forked_with_less_than_its_grant(tmp_path: Path) -> None:
    # law 4
    office = Office(tmp_path)
    run = await office.start(BOSS)
    await office.done(run)
    rules = '# less\r\n[[allow]]\r\ntools = ["none/*"]\r\n'
    wrong = rules.replace("tools", "tool")
    async with browsing(office) as client:
        done = await sent(client, "forkRun", run=run, seq="1", narrow=rules)
        path = done.headers["location"]
        new = path.split("/")[3].partition("?")[0]
        await office.done(new)
        denied = await client.get(f"/ui/runs/{new}?seq=2")
        back = {"back": f"/ui/runs/{run}?seq=2"}
        refused = await sent(client, "forkRun", run=run, seq="1", narrow=wrong, **back)

    # There the form is, and what was typed is one step back.
    assert f'<a href="/ui/runs/{run}?seq=2">Back</a>' in refused.text
    assert "by <code>narrow</code>" in denied.text
    assert refused.status_code == 422
    assert "the narrowing:3: allow[1].tool: unknown key" in refused.text


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("runs", {}),
        ("runs", {f"run:{NO_RUN}": "on", "what": "erase"}),
        ("approval", {"run": NO_RUN, "seq": "1", "what": "cancelRun"}),
        ("approval", {"run": NO_RUN, "seq": "-1", "what": "approveCall"}),
        ("approval", {"seq": "1", "what": "approveCall"}),
        ("forkRun", {"run": NO_RUN}),
        ("resolveCall", {"run": NO_RUN, "seq": "1", "choice": "maybe"}),
        ("nothing", {}),
    ],
)
async def test_a_bad_form_changes_nothing_and_says_why(
    tmp_path: Path, action: str, fields: dict[str, str]
) -> None:
    async with browsing(Office(tmp_path)) as client:
        found = await sent(client, action, **fields)

    assert found.status_code in {400, 404}
    assert "To fix:" in found.text


# -- texts stay texts


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


#: All that templates make.
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "main"),
    *("nav", "a", "span", "form", "button", "label", "input", "select", "option"),
    *("textarea", "fieldset", "legend", "p", "h1", "h2", "h3", "b", "small", "code"),
    *("details", "summary", "dl", "dt", "dd", "ol", "ul", "li", "table", "caption"),
    *("thead", "tbody", "tr", "th", "td", "div", "section", "svg", "rect", "time"),
    *("br", "pre", "img", "progress"),
}


def check_page(page: httpx.Response) -> None:
    seen = Seen()
    seen.feed(page.text)
    assert {*seen.tags} <= TAGS
    assert seen.tags.count("script") == 1
    for name, value in seen.attributes:
        assert not name.startswith("on")
        assert name not in {"style", "srcdoc", "action"} or str(value).startswith(
            "/ui/"
        )
        if name in {"href", "src", "action"}:
            assert str(value).startswith(("/ui", "#main")), value
    body = page.text.replace("\n", "").replace("\t", "")
    assert body.isprintable()


def hostile(text: str) -> FakeTools:
    return FakeTools({**ANSWERS, ("demo", "echo"): {text: [text, {"deep": text}]}})


@pytest.mark.parametrize("n", range(0, len(HOSTILE), 8))
async def test_hostile_texts_are_shown_as_they_are(tmp_path: Path, n: int) -> None:
    texts = HOSTILE[n : n + 8]

    async def says(door: Door, guest: Guest) -> Ending:
        del guest
        for fuel, text in enumerate(texts, 1):
            door.log(1, text.encode())
            await door.call(text.encode(), pack(**{text: text}), fuel)
            await door.call(b"mcp__demo__echo", pack(text=text), fuel)
        output: JSON = {text: [text] for text in texts}
        return ended(output)

    office = Office(tmp_path, script=says, tools=hostile(texts[0]))
    agent = office.config.agents["weather"]
    office.config = replace(
        office.config,
        agents={
            "weather": replace(agent, rule_texts={"allow[1]": "\n".join(texts)}),
            **{
                f"a{k}": replace(agent, name=f"a{k}", description=t)
                for k, t in enumerate(texts)
            },
        },
    )
    run = await office.start(ANN)
    await office.done(run)
    events = len(await office.types(run))
    shown = ""
    async with browsing(office) as client:
        for path in [
            *(one for one in paths(run) if "server" not in one),
            *(f"/ui/runs/{run}?seq={seq}" for seq in range(1, events + 1, 3)),
            *(f"/ui/runs?agent={quote(text)}&tool={quote(text)}" for text in texts),
            *(f"/ui/runs?cursor={quote(text)}" for text in texts),
            "/ui/agents/weather?toml=&rule=allow[1]",
            *(f"/ui/agents/weather?toml={quote(text)}" for text in texts),
            *(f"/ui/agents/weather?toml=%23{quote(text)}" for text in texts),
            *(f"/ui/{quote(text)}" for text in texts),
            *(f"/ui/sign-in?next={quote(text)}" for text in texts),
        ]:
            page = await client.get(path)
            if page.headers.get("content-type", "").startswith("text/html"):
                check_page(page)
            shown += page.text
    assert "49" not in re.findall(r"\b49\b", shown)


async def test_a_hostile_image_is_not_one(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run = await office.start(ANN)
    await office.done(run)
    (event, *_) = await office.scene.store.reader.read(f"run/{run}")
    module = event.event.module_sha256  # type: ignore[union-attr]
    async with browsing(office) as client:
        found = await client.get(f"/ui/runs/{run}/image/{module}")
    assert found.status_code == 404
