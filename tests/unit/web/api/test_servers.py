"""Servers are changed over the control API, by who may run code on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from caxton_host.config import Serve
from caxton_host.core.grants.principals import Principal
from caxton_host.web.app import application
from tests.office import JSON_SENT, Names, Office, calling

TEXT = """\
# Ours.
version = 1
[servers.demo]
command = "demo"
"""
MAY = Serve(edit=True)
ADDED = {"name": "time", "command": ["time-server", "-v"], "env": {"TZ": "UTC"}}


def office(folder: Path) -> Office:
    found = Office(folder)
    path = folder / "caxton.toml"
    path.write_text(TEXT)
    found.config = replace(found.config, path=path)
    return found


def boss(of: Office, serve: Serve = MAY) -> httpx.AsyncClient:
    client = calling(of, serve)
    client.headers["authorization"] = "Bearer boss"
    return client


async def test_servers_are_added_changed_and_removed(tmp_path: Path) -> None:
    of = office(tmp_path)
    path = tmp_path / "caxton.toml"
    store = of.scene.store
    await store.leases.join("host/1")
    for number in (1, 2, 3):
        await store.requests.answer(number, "generation 2")
    async with boss(of) as client:
        added = await client.post("/api/v1/servers", json=ADDED)
        assert path.read_text() == (
            f'{TEXT}\n[servers.time]\ncommand = "time-server"\nargs = ["-v"]\n'
            'env = { TZ = "UTC" }\nconfine = "strict"  # or { read = ["docs"], '
            'write = ["out"], connect = ["api.example.com:443"] }\n'
        )
        url = {"url": "https://time.example/mcp"}
        changed = await client.put("/api/v1/servers/time", json=url)
        assert path.read_text() == (
            f'{TEXT}\n[servers.time]\nurl = "https://time.example/mcp"\n'
        )
        removed = await client.delete("/api/v1/servers/time")

    assert path.read_text().strip() == TEXT.strip()
    assert added.json() == {
        "$type": "caxton.server-edit/v1",
        "change": "added",
        "name": "time",
        "hosts": [
            {
                "$type": "caxton.reload/v1",
                "host": "host/1",
                "reloaded": True,
                "outcome": "generation 2",
            }
        ],
    }
    assert changed.json()["change"] == "changed"
    assert removed.json()["change"] == "removed"


@pytest.mark.parametrize(
    ("who", "serve"), [("boss", Serve()), ("eve", MAY), ("ann", MAY)]
)
async def test_who_may_not_run_code_changes_nothing(
    tmp_path: Path, who: str, serve: Serve
) -> None:
    of = office(tmp_path)
    async with calling(of, serve) as client:
        client.headers["authorization"] = f"Bearer {who}"
        answers = [
            await client.post("/api/v1/servers", json=ADDED),
            await client.put("/api/v1/servers/demo", json={"command": ["sh"]}),
            await client.delete("/api/v1/servers/demo"),
        ]
        me = (await client.get("/api/v1/me")).json()

    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert me["edit"] is False
    assert (tmp_path / "caxton.toml").read_text() == TEXT


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "x", "command": ["y"], "env": {"A_TOKEN": "canary-4711"}}, 422),
        ({"name": "x", "command": ["${unknown}"]}, 422),
        ({"name": "demo", "command": ["y"]}, 422),
        ({"name": "a]\n[serve", "command": ["y"]}, 422),
        ({"name": "x"}, 400),
        ({"name": "x", "command": ["y"], "url": "https://x.example"}, 400),
        ({"name": "x", "command": ["y"], "wire_log": "/etc/passwd"}, 400),
    ],
)
async def test_what_would_not_load_is_not_written(
    tmp_path: Path, body: dict[str, object], status: int
) -> None:
    # law 8
    async with boss(office(tmp_path)) as client:
        refused = await client.post("/api/v1/servers", json=body)

    assert refused.status_code == status, refused.text
    assert "canary" not in refused.text
    assert (tmp_path / "caxton.toml").read_text() == TEXT


async def test_who_is_not_vouched_for_changes_nothing(tmp_path: Path) -> None:
    of = office(tmp_path)
    local = Principal(
        kind="local", id="1000", authenticated=False, scopes=frozenset({"admin"})
    )
    app = application(of.service, Names({"boss": local}), MAY)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://127.0.0.1:8080",
        headers={"authorization": "Bearer boss", **JSON_SENT},
    ) as client:
        refused = await client.delete("/api/v1/servers/demo")

    assert refused.status_code == 403
    assert (tmp_path / "caxton.toml").read_text() == TEXT


async def test_a_file_that_is_not_there_or_not_to_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    of = office(tmp_path)
    async with boss(of) as client:
        none = await client.delete("/api/v1/servers/gone")
        monkeypatch.setattr("caxton_host.config.edit.replace_file", full)
        unwritable = await client.post("/api/v1/servers", json=ADDED)
        of.config = replace(of.config, path=None)
        nowhere = await client.post("/api/v1/servers", json=ADDED)

    assert none.status_code == 404
    assert unwritable.status_code == nowhere.status_code == 422
    assert "cannot be written" in unwritable.json()["detail"]
    assert str(tmp_path) not in unwritable.text


async def test_a_caller_is_told_who_it_is(tmp_path: Path) -> None:
    async with boss(office(tmp_path)) as client:
        me = (await client.get("/api/v1/me")).json()

    assert me == {
        "$type": "caxton.caller/v1",
        "kind": "token",
        "id": "boss",
        "authenticated": True,
        "scopes": ["admin"],
        "agents": ["*"],
        "roles": [],
        "tenant": None,
        "edit": True,
    }
