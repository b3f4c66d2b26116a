"""What a person does with tools over the control API: look, accept, call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.calls import JSON
from caxton_host.core.grants.freezes import Kind
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import Event, Frozen, RunStarted, ToolsChanged
from caxton_host.core.names import BY_HAND
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import OAuth, ServerConfig
from caxton_host.errors import ToolError
from caxton_host.mcp.auth.tokens import Login, TokenFile
from caxton_host.mcp.transport.serverlog import LogFile
from caxton_host.ports.serving import TokenRow
from caxton_host.runs.freezing import FreezeWatch, freeze
from caxton_host.testing import FakeTools
from caxton_host.testing.fakes import offer
from caxton_host.web.app import application
from tests.office import BOSS, JSON_SENT, Names, Office
from tests.scene import ANSWERS

CANARY = "canary-4711-canary"


def office(folder: Path, tools: FakeTools | None = None) -> Office:
    found = Office(folder, tools=tools or FakeTools(ANSWERS))
    login = ServerConfig(
        name="crm", url="https://crm.example/mcp", oauth=OAuth(flow="code")
    )
    servers = {"demo": ServerConfig(name="demo", command=("demo",)), "crm": login}
    path = folder / "caxton.toml"
    found.config = replace(
        found.config,
        servers=servers,
        origins=dict.fromkeys(servers, path),
    )
    return found


def boss(of: Office, state: Path | None = None) -> httpx.AsyncClient:
    environ = {"CAXTON_STATE_DIR": str(state or of.folder)}
    app = application(of.service, Names(), Serve(), environ=environ)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://127.0.0.1:8080/api/v1",
        headers={"authorization": "Bearer boss", **JSON_SENT},
    )


def body(tool: str = "echo", **params: JSON) -> dict[str, JSON]:
    return {"tool": tool, "params": params, "reason": "to see"}


# -- calls by hand


async def test_a_call_by_hand_is_a_run_that_says_who_called_and_why(
    tmp_path: Path,
) -> None:
    # law 2
    of = office(tmp_path)
    async with boss(of) as client:
        said = (await client.post("/servers/demo/call", json=body(text="hi"))).json()

    assert (said["status"], said["message"], said["seq"]) == ("ok", "echoed", 2)
    assert await of.types(said["run_id"]) == [
        "RunStarted",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    (first, *_) = await of.scene.store.reader.read(f"run/{said['run_id']}")
    assert isinstance(first.event, RunStarted)
    assert (first.event.agent, first.event.actor) == (BY_HAND, BOSS.actor)
    assert isinstance(first.event.input, dict)
    assert first.event.input["reason"] == "to see"
    (sent,) = of.tools.asked
    assert (sent.server, sent.tool, sent.params) == ("demo", "echo", {"text": "hi"})


@pytest.mark.parametrize(
    ("tool", "status", "code"),
    [("fail", "failed", "timeout"), ("nothing", "failed", "protocol")],
)
async def test_a_call_by_hand_that_fails_is_recorded_too(
    tmp_path: Path, tool: str, status: str, code: str
) -> None:
    # law 2
    missing = ToolError("protocol", "yes", "no such tool")
    of = office(tmp_path, FakeTools({**ANSWERS, ("demo", "nothing"): missing}))
    async with boss(of) as client:
        said = (await client.post("/servers/demo/call", json=body(tool))).json()

    assert (said["status"], said["error"]["code"]) == (status, code)
    assert "ToolFailed" in await of.types(said["run_id"])


async def test_a_call_by_hand_is_held_to_the_schema_and_reaches_one_tool(
    tmp_path: Path,
) -> None:
    # laws 4 and 9
    schema: JSON = {"type": "object", "required": ["text"]}
    assert isinstance(schema, dict)
    of = office(tmp_path, FakeTools(ANSWERS, schemas={("demo", "echo"): schema}))
    async with boss(of) as client:
        said = (await client.post("/servers/demo/call", json=body())).json()
        other = await client.post("/servers/shell/call", json=body("exec"))

    assert said["status"] == "denied"
    assert other.status_code == 404
    assert of.tools.asked == []


@pytest.mark.parametrize(
    ("kind", "name"), [("server", "demo"), ("agent", BY_HAND), ("token", "boss")]
)
async def test_what_is_frozen_stops_calls_by_hand(
    tmp_path: Path, kind: Kind, name: str
) -> None:
    of = office(tmp_path)
    of.service.host.freezes = FreezeWatch(of.scene.store.reader)
    row = TokenRow(id="boss", name="boss", digest="", scopes=("admin",), created_at=0)
    await of.scene.store.tokens.add(row, "host/0")
    frozen = Frozen(kind=kind, name=name, actor={}, reason="")
    await freeze(of.scene.store, frozen, agents=(), servers=("demo",))
    await of.service.host.freezes.look()
    async with boss(of) as client:
        said = await client.post("/servers/demo/call", json=body())

    assert said.status_code in {403, 409, 422}
    assert of.tools.asked == []
    assert "frozen" in said.json()["detail"]


@pytest.mark.parametrize("name", ["ann", "eve"])
async def test_who_is_no_operator_calls_nothing_by_hand(
    tmp_path: Path, name: str
) -> None:
    # law 4
    of = office(tmp_path)
    async with boss(of) as client:
        client.headers["authorization"] = f"Bearer {name}"
        said = [
            await client.post("/servers/demo/call", json=body()),
            await client.post(
                "/servers/demo/accept",
                json={"tool": "echo", "definition_sha256": "0" * 64},
            ),
            await client.get("/servers/demo/logs"),
        ]

    assert [one.status_code for one in said] == [403] * 3
    assert of.tools.asked == []


# -- definitions


class Changed(FakeTools):
    """Tools that describe themselves anew."""

    text = "does it"

    async def offered(self, servers: Collection[str]) -> Offered:
        found = await super().offered(servers)
        return replace(found, offers=(offer("demo", "echo", self.text),))


async def test_a_changed_definition_is_accepted_as_it_was_seen(tmp_path: Path) -> None:
    # law 9
    tools = Changed(ANSWERS)
    of, told = office(tmp_path, tools), list[Event]()

    async def record(*events: Event) -> None:
        told.extend(events)

    of.service.record = record
    where, to = "/servers/demo/definition?tool=echo", "/servers/demo/accept"
    async with boss(of) as client:
        first = (await client.get(where)).json()
        seen = {"tool": "echo", "definition_sha256": first["definition_sha256"]}
        new = (await client.post(to, json=seen)).json()
        tools.text = "does something else"
        stale = await client.post(to, json=seen)
        looked = (await client.get(where)).json()
        seen["definition_sha256"] = looked["definition_sha256"]
        accepted = (await client.post(to, json=seen)).json()
        again = (await client.post(to, json=seen)).json()
        none = await client.get(where + "x")

    assert (new["state"], looked["state"]) == ("new", "changed")
    assert looked["differences"] == [
        {"path": "$.description", "a": "does it", "b": "does something else"}
    ]
    assert (stale.status_code, none.status_code) == (422, 404)
    assert (accepted["state"], again["state"]) == ("accepted", "same")
    accepting = ToolsChanged(server="demo", changed=("echo",), actor=BOSS.actor)
    assert told == [accepting] * 2


# -- why a server is down


async def test_what_a_test_has_started_is_recorded_before_its_answer(
    tmp_path: Path,
) -> None:
    # law 3
    of, waits = office(tmp_path), list[tuple[Event, ...]]()

    async def record(*events: Event) -> None:
        waits.append(events)

    of.service.record = record
    async with boss(of) as client:
        tested = await client.post("/servers/demo/test", json={})

    assert tested.json()["answers"] is True
    assert waits == [()]


async def test_what_a_server_wrote_is_told_without_secrets(tmp_path: Path) -> None:
    # law 8
    of = office(tmp_path)
    of.service.host.redact = Redactor({CANARY})
    file = LogFile(tmp_path / "servers", "demo")
    file.append("".join(f"line {n} {CANARY}\n" for n in range(300)))
    async with boss(of, tmp_path) as client:
        some = (await client.get("/servers/demo/logs")).json()["lines"]
        few = (await client.get("/servers/demo/logs?lines=2")).json()["lines"]
        far = await client.get("/servers/crm/logs")
        many = await client.get("/servers/demo/logs?lines=501")

    assert len(some) == 100
    assert some[-2:] == few
    assert few[1].startswith("line 299 ")
    assert not any(CANARY in line for line in some)
    assert (far.status_code, many.status_code) == (404, 400)


async def test_a_server_tells_whether_it_needs_a_login_and_until_when_it_holds(
    tmp_path: Path,
) -> None:
    # law 8
    of = office(tmp_path)
    file = TokenFile(tmp_path / "tokens", of.config.servers["crm"])
    async with boss(of, tmp_path) as client:
        none = (await client.get("/servers/demo")).json()["login"]
        before = (await client.get("/servers/crm")).json()["login"]
        async with file.locked():
            file.write(
                Login(
                    issuer="https://issuer.example",
                    resource="https://crm.example/mcp",
                    metadata={},
                    client={"client_secret": CANARY},
                    access_token=CANARY,
                    refresh_token=CANARY,
                    expires_at=1_700_000_000.0,
                )
            )
        after = await client.get("/servers/crm")
        next((tmp_path / "tokens").glob("*.json")).write_text("{")
        broken = (await client.get("/servers/crm")).json()["login"]

    assert none is None
    assert (before["logged_in"], before["command"]) == (
        False,
        "caxton server login crm",
    )
    found = after.json()["login"]
    assert (found["logged_in"], found["refreshes"]) == (True, True)
    assert found["expires"] == 1_700_000_000_000_000
    assert CANARY not in after.text
    assert (broken["logged_in"], broken["problem"]) == (
        False,
        "the tokens of its login are damaged",
    )


async def test_failed_calls_of_a_server_are_listed_with_their_place(
    tmp_path: Path,
) -> None:
    of = office(tmp_path)
    async with boss(of) as client:
        said = (await client.post("/servers/demo/call", json=body("fail"))).json()
        await client.post("/servers/demo/call", json=body())
        found = (await client.get("/servers/demo")).json()["failures"]

    assert [{**one, "at": 0} for one in found] == [
        {
            "at": 0,
            "stream": f"run/{said['run_id']}",
            "seq": 2,
            "event": "ToolFailed",
            "reason": "timeout: no answer in 5 s",
        }
    ]
