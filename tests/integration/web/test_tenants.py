"""
What a principal of another tenant, and an auditor, get from every route of a host.

Each operation of the OpenAPI document has a row here, and so does each method of MCP:
one without a row fails.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.principals import Principal, Scope
from caxton_host.core.log.checkpoint import Checkpoint, Note, Signature
from caxton_host.core.log.events import Event, RunRead
from caxton_host.core.text.globs import Pattern
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.runs.freezing import FreezeWatch
from caxton_host.service.read_log import ReadLog
from caxton_host.web.api.openapi import OPERATIONS, document
from caxton_host.web.app import application
from caxton_host.web.edge.listen import bind, listening
from caxton_host.web.mcp import agents
from caxton_host.web.mcp.http_router import agents_app
from caxton_host.web.mcp.tasks import DATED
from tests.office import JSON_SENT, Names, Office

ASKING = Grant(
    allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),), approve=Approve()),)
)
NO_RUN = "0" * 36


def ann(tenant: str | None, *scopes: Scope) -> Principal:
    """Return a subject of the same name in each tenant."""
    return Principal(kind="oauth", id="ann", scopes=frozenset(scopes), tenant=tenant)


KNOWN: Mapping[str, Principal] = {
    "ann": ann("acme", "run"),
    "stranger": ann("globex", "admin"),
    "auditor": ann(None, "auditor"),
    "audits-acme": ann("acme", "auditor"),
    "audits-globex": ann("globex", "auditor"),
    "leads-acme": replace(ann("acme", "admin"), id="lea"),
    "operator": ann(None, "admin"),
}

#: What a principal without the right gets: no such run; nothing of it in a list; the
#: same as everybody; a refusal.
GONE, LACKS, SAME, REFUSED = "gone", "lacks", "same", "refused"


@dataclass(frozen=True)
class Row:
    """
    Attributes:
        stranger: What an administrator of another tenant gets.

        auditor: Whether an auditor of all tenants is answered.

        body: What has to be sent.

        query: The same.
    """

    stranger: str
    auditor: bool
    body: Mapping[str, JSON] = field(default_factory=dict)
    query: str = ""


FREEZE: Mapping[str, JSON] = {"kind": "agent", "name": "weather", "reason": ""}
ROUTES: Mapping[str, Row] = {
    "startRun": Row(LACKS, auditor=False, body={"agent": "weather"}),
    "listRuns": Row(LACKS, auditor=True),
    "showRun": Row(GONE, auditor=True),
    "runResult": Row(GONE, auditor=True),
    "runEvents": Row(GONE, auditor=True),
    "runBlob": Row(GONE, auditor=True),
    "placeOfEvent": Row(REFUSED, auditor=True, query="?seq=2"),
    "explainCall": Row(GONE, auditor=True, query="?seq=2"),
    "traceCall": Row(GONE, auditor=True, query="?seq=2"),
    "callingLines": Row(GONE, auditor=True),
    "callContext": Row(GONE, auditor=True, query="?seq=2"),
    "compareRuns": Row(GONE, auditor=True, query="?with={run}"),
    "cancelRun": Row(GONE, auditor=False),
    "holdRun": Row(REFUSED, auditor=False, body={"reason": "x"}),
    "releaseRun": Row(REFUSED, auditor=False, body={"reason": "x"}),
    "resumeRun": Row(GONE, auditor=False),
    "resolveCall": Row(
        GONE, auditor=False, body={"seq": 2, "choice": "fail", "reason": ""}
    ),
    "forkRun": Row(GONE, auditor=False, body={"seq": 1}),
    "allEvents": Row(LACKS, auditor=True),
    "listApprovals": Row(LACKS, auditor=True),
    "showApproval": Row(GONE, auditor=True),
    "approveCall": Row(GONE, auditor=False),
    "denyCall": Row(GONE, auditor=False),
    "answerQuestion": Row(GONE, auditor=False),
    "listAgents": Row(SAME, auditor=True),
    "showAgent": Row(SAME, auditor=True),
    "explainGrant": Row(
        SAME, auditor=True, body={"agent": "weather", "tool": "demo/echo"}
    ),
    "showGrants": Row(SAME, auditor=True),
    "judgeHistory": Row(LACKS, auditor=True, body={"rule": "allow[1]"}),
    "showCaller": Row(LACKS, auditor=True),
    "listFreezes": Row(REFUSED, auditor=True),
    "freeze": Row(REFUSED, auditor=False, body=FREEZE),
    "thaw": Row(REFUSED, auditor=False, body=FREEZE),
    "listSchedules": Row(REFUSED, auditor=True),
    "listServers": Row(REFUSED, auditor=True),
    "showServer": Row(REFUSED, auditor=True),
    "testServer": Row(REFUSED, auditor=False),
    "restartServer": Row(REFUSED, auditor=False),
    # It starts servers.
    "listTools": Row(REFUSED, auditor=False),
    "serverLogs": Row(REFUSED, auditor=False),
    "compareTool": Row(REFUSED, auditor=False, query="?tool=echo"),
    "acceptTool": Row(
        REFUSED, auditor=False, body={"tool": "echo", "definition_sha256": "0" * 64}
    ),
    "callTool": Row(
        REFUSED, auditor=False, body={"tool": "echo", "params": {}, "reason": ""}
    ),
    "reloadConfig": Row(REFUSED, auditor=False),
    "addServer": Row(REFUSED, auditor=False, body={"name": "b", "command": ["x"]}),
    "changeServer": Row(REFUSED, auditor=False, body={"command": ["x"]}),
    "removeServer": Row(REFUSED, auditor=False),
    "newestCheckpoint": Row(REFUSED, auditor=True),
    "coveringCheckpoint": Row(REFUSED, auditor=True),
    "showVerification": Row(REFUSED, auditor=True),
    "startVerification": Row(REFUSED, auditor=True),
    "exportRun": Row(REFUSED, auditor=True),
    "eraseRun": Row(REFUSED, auditor=False, body={"reason": "x"}),
    "listTokens": Row(REFUSED, auditor=False),
    "createToken": Row(REFUSED, auditor=False, body={"expires": "1h"}),
    "revokeToken": Row(REFUSED, auditor=False),
    "listHosts": Row(REFUSED, auditor=True),
}
#: The methods of MCP that tell of the configuration only, and those that name runs.
OF_CONFIG = {
    *("tools/list", "resources/list", "resources/templates/list"),
    *("subscriptions/listen", "server/discover", "ping", "logging/setLevel"),
}
TASKS = {"tasks/get", "tasks/cancel", "tasks/result", "tasks/update"}
OF_RUNS = {"tools/call", "resources/read", "tasks/list", *TASKS}

Places: TypeAlias = Mapping[str, tuple[str, str]]


@dataclass
class World:
    """
    A host that is served, with a run of acme that waits for an approval.

    Attributes:
        told: What the stream of the host is told.
    """

    office: Office
    client: httpx.AsyncClient
    run: str
    seq: int
    module: str
    told: list[Event]

    def places(self) -> Places:
        """Return method and path of each operation of the document."""
        found: dict[str, tuple[str, str]] = {}
        paths = document()["paths"]
        assert isinstance(paths, dict)
        for path, ways in paths.items():
            assert isinstance(ways, dict)
            for method, one in ways.items():
                assert isinstance(one, dict)
                found[str(one["operationId"])] = method.upper(), path
        return found

    async def ask(self, who: str, operation: str, run: str = "") -> httpx.Response:
        method, path = self.places()[operation]
        name = "weather" if "/agents/" in path else "demo"
        given = {"run": run or self.run, "name": name, "size": 1}
        given |= {"seq": self.seq, "sha256": self.module}
        row = ROUTES[operation]
        return await self.client.request(
            method,
            (path + row.query).format_map(given),
            json=row.body if method != "GET" else None,
            headers=as_(who),
        )

    async def rpc(self, who: str, method: str, **params: object) -> Any:  # noqa: ANN401 -- JSON
        sent = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = as_(who) | {"accept": "application/json"}
        headers["mcp-protocol-version"] = DATED
        answer = await self.client.post("/mcp", json=sent, headers=headers)
        return answer.json()

    def events(self) -> list[str]:
        return [
            f"{one.stream} {one.seq} {one.type}"
            for one in self.office.scene.store.events
        ]


def as_(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}", **JSON_SENT}


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    office = Office(folder, grant=ASKING)
    office.config = replace(
        office.config, servers={"demo": ServerConfig(name="demo", command=("x",))}
    )
    office.config = replace(office.config, origins={"demo": folder / "caxton.toml"})
    store, told = office.scene.store, list[Event]()
    office.service.host.freezes = FreezeWatch(store.reader)
    office.service.reads = ReadLog(queue=told.append, now=office.scene.clock.monotonic)
    signed = Checkpoint(origin="log", size=9, root=bytes(32))
    line = Signature(name="log", key_id=b"1234", raw=bytes(64))
    store.reader.notes[9] = Note.of(signed, [line]).text()
    run = await office.start(KNOWN["ann"])
    assert await office.done(run) == "suspended"
    row = await store.reader.row(run)
    assert row is not None
    (seq,) = (e.seq for e in store.events if e.type == "ApprovalRequested")
    mcp = agents_app(office.service)
    app = application(
        office.service,
        Names(KNOWN),
        Serve(edit=True),
        mcp=mcp,
        scrape=lambda: ("text/plain", b"runs 1"),
        upkeep=office.upkeep,
    )
    with bind("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with (
            mcp.running(),
            listening(app, listener),
            httpx.AsyncClient(base_url=url, timeout=60) as client,
        ):
            yield World(office, client, run, seq, row.module_sha256, told)


def bare(answer: httpx.Response, *names: str) -> tuple[int, str]:
    """Return an answer without the ids that its request named."""
    text = answer.text
    for name in names:
        text = text.replace(name, "ID")
    return answer.status_code, text


async def test_every_operation_has_a_row(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert it.places().keys() == ROUTES.keys()


async def test_what_another_tenant_has_does_not_exist(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        before, wrong = it.events(), list[str]()
        for operation, row in ROUTES.items():
            answer = await it.ask("stranger", operation)
            match row.stranger:
                case "gone":
                    none = await it.ask("stranger", operation, NO_RUN)
                    same = bare(answer, it.run) == bare(none, NO_RUN)
                    fits = answer.status_code == 404 and same
                case "lacks":
                    fits = answer.is_success and it.run not in answer.text
                    fits = fits and "acme" not in answer.text
                case "same":
                    own = await it.ask("leads-acme", operation)
                    fits = answer.is_success and bare(answer) == bare(own)
                case _:
                    fits = answer.status_code == 403
            if not fits:
                wrong.append(f"{operation}: {answer.status_code} {answer.text}")
        after = [one for one in it.events() if it.run in one]

    assert wrong == []
    assert after == [one for one in before if it.run in one]


async def test_lists_of_a_tenant_are_those_of_a_host_without_others(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        runs = (await it.ask("stranger", "listRuns")).json()
        events = (await it.ask("stranger", "allEvents")).json()
        approvals = (await it.ask("stranger", "listApprovals")).json()
        own = (await it.ask("audits-acme", "allEvents")).json()

    assert (runs["runs"], runs["next"]) == ([], None)
    assert (events["events"], events["cursor"], events["more"]) == ([], None, False)
    assert (approvals["approvals"], approvals["more"]) == ([], False)
    assert {one["stream"] for one in own["events"]} == {f"run/{it.run}"}
    assert {one["position"] for one in own["events"]} == {None}
    assert all(one["cursor"].startswith("o-") for one in own["events"])


async def test_who_follows_all_events_gets_those_of_its_tenant(tmp_path: Path) -> None:
    follow = as_("stranger") | {"accept": "text/event-stream"}
    async with world(tmp_path) as it, asyncio.timeout(60):
        path, told = "/api/v1/events?after=end", list[str]()
        async with it.client.stream("GET", path, headers=follow) as answer:
            other = (await it.ask("ann", "startRun")).json()["run_id"]
            own = (await it.ask("stranger", "startRun")).json()["run_id"]
            async for line in answer.aiter_lines():
                told.append(line)
                if "RunSuspended" in line:
                    break

    text = "\n".join(told)
    assert f'"run/{own}"' in text
    assert other not in text
    assert it.run not in text


def test_whatever_shows_a_run_says_so() -> None:
    for one in OPERATIONS:
        is_read = one.method == "GET" and "run" in one.in_path
        lists = one.path in {"/runs", "/approvals", "/events"} and one.method == "GET"
        judges = one.id == "judgeHistory"
        assert bool(one.shows) is (is_read or lists or judges), one.id


async def test_a_tenant_has_its_runs_and_the_operator_those_of_all(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        begun = await it.ask("stranger", "startRun")
        other = begun.json()["run_id"]
        await it.office.done(other)
        seen = {
            who: {
                one["run_id"] for one in (await it.ask(who, "listRuns")).json()["runs"]
            }
            for who in KNOWN
        }
        actor = (await it.ask("operator", "showRun", other)).json()["actor"]
        own = await it.ask("leads-acme", "cancelRun")

    assert actor["tenant"] == "globex"
    acme, globex = {it.run}, {other}
    assert seen == {
        "ann": acme,
        "stranger": globex,
        "auditor": acme | globex,
        "audits-acme": acme,
        "audits-globex": globex,
        "leads-acme": acme,
        "operator": acme | globex,
    }
    assert own.json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("leads-acme", "the scope auditor is required, without a tenant"),
        ("ann", "the scope auditor is required"),
    ],
)
async def test_who_has_the_scope_is_told_that_its_tenant_is_why_not(
    tmp_path: Path, who: str, said: str
) -> None:
    async with world(tmp_path) as it:
        told = await it.ask(who, "listServers")

    assert (told.status_code, told.json()["detail"]) == (403, said)


async def test_subjects_of_one_name_in_two_tenants_share_no_key(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        ids = [
            (
                await it.client.post(
                    "/api/v1/runs",
                    json={"agent": "weather"},
                    headers=as_(who) | {"idempotency-key": "k"},
                )
            ).json()["run_id"]
            for who in ("ann", "stranger", "ann")
        ]

    assert ids[0] == ids[2] != ids[1]
    assert len({one.key for one in KNOWN.values() if one.id == "ann"}) == 3


async def test_an_auditor_reads_everything_and_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        before, wrong = it.events(), list[str]()
        for operation, row in ROUTES.items():
            answer = await it.ask("auditor", operation)
            fits = answer.is_success if row.auditor else answer.status_code == 403
            if not fits:
                wrong.append(f"{operation}: {answer.status_code} {answer.text}")
            of_tenant = await it.ask("audits-acme", operation)
            fits = row.auditor and row.stranger != REFUSED
            if of_tenant.status_code == 403 if fits else of_tenant.is_success:
                wrong.append(f"{operation} of acme: {of_tenant.status_code}")
            other = await it.ask("audits-globex", operation)
            if it.run in other.text.replace(f"runs/{it.run}", "") and other.is_success:
                wrong.append(f"{operation} of globex: {other.text}")
        after = it.events()
        metrics = [
            (await it.client.get("/metrics", headers=as_(who))).status_code
            for who in ("auditor", "audits-acme", "stranger")
        ]

    assert wrong == []
    assert after == before
    assert metrics == [200, 403, 403]


async def test_every_method_of_mcp_has_a_row(tmp_path: Path) -> None:
    office = Office(tmp_path)
    served = agents_app(office.service)._served.server
    assert {*served._request_handlers} <= OF_CONFIG | OF_RUNS


async def test_runs_of_another_tenant_are_no_resources_and_no_calls(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        before = it.events()
        for end in ("", "/events"):
            for who, is_seen in (
                ("stranger", False),
                ("audits-globex", False),
                ("auditor", True),
                ("audits-acme", True),
                ("ann", True),
            ):
                uri = f"caxton://runs/{it.run}{end}"
                found = await it.rpc(who, "resources/read", uri=uri)
                none = await it.rpc(
                    who, "resources/read", uri=f"caxton://runs/{NO_RUN}{end}"
                )
                assert ("result" in found) is is_seen, found
                if not is_seen:
                    text = json.dumps(found).replace(it.run, NO_RUN)
                    assert json.loads(text) == none
        for who in ("stranger", "auditor"):
            called = [
                await it.rpc(
                    who,
                    "tools/call",
                    name="sky",
                    arguments={},
                    _meta={agents.RUN_ID: run},
                )
                for run in (it.run, NO_RUN)
            ]
            text = json.dumps(called[0]).replace(it.run, NO_RUN)
            assert "error" in called[0]
            assert json.loads(text) == called[1]
        listed = await it.rpc("auditor", "tools/list")
        session = await it.client.post("/mcp/dev", json={}, headers=as_("auditor"))

        assert it.events() == before
        assert listed["result"]["tools"] == []
        assert session.status_code == 404


async def test_a_run_of_another_principal_is_no_task(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        before = it.events()
        for who in KNOWN.keys() - {"ann"}:
            for method in TASKS:
                found, none = [
                    await it.rpc(who, method, taskId=run) for run in (it.run, NO_RUN)
                ]
                assert "error" in found
                assert found == none
            assert (await it.rpc(who, "tasks/list"))["result"] == {"tasks": []}
        (own,) = (await it.rpc("ann", "tasks/list"))["result"]["tasks"]

        assert own["taskId"] == it.run
        assert it.events() == before


async def test_reads_are_told_to_the_stream_of_the_host_once_a_minute(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        for operation in ROUTES:
            await it.ask("operator" if operation == "runBlob" else "ann", operation)
        reads = [one for one in it.told if isinstance(one, RunRead)]
        kinds = {(one.run == it.run, one.what) for one in reads}
        once = len(reads)
        await it.ask("ann", "showRun")
        await it.ask("stranger", "showRun")
        assert len(it.told) == once
        it.office.scene.clock.time += 60_000_000
        await it.ask("ann", "showRun")
        await it.rpc("operator", "resources/read", uri=f"caxton://runs/{it.run}/events")

    assert kinds == {
        (True, "run"),
        (True, "output"),
        (True, "events"),
        (True, "blob"),
        (True, "explanation"),
        (True, "context"),
        (False, "events"),
        (True, "trace"),
        (True, "difference"),
        (False, "runs"),
        (False, "approvals"),
    }
    assert it.told[once:] == [
        RunRead(run=it.run, what="run", actor=KNOWN["ann"].actor),
        RunRead(run=it.run, what="events", actor=KNOWN["operator"].actor),
    ]
