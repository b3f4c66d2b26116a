"""What a host that serves knows of itself when its metrics are read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from caxton_host.app.vitals import Vitals
from caxton_host.config.load import load
from caxton_host.mcp.auth.tokens import Login, TokenFile
from caxton_host.ports.log import Reservation
from caxton_host.telemetry import instruments as i
from tests.unit.store.fakes import FakeClock, open_store

CONFIG = """\
version = 1
[servers.crm]
url = "https://crm.example.com/mcp"
oauth = { flow = "code" }
[servers.demo]
command = "demo"
[agents.plain]
module = "a.wasm"
allow = [{ tools = ["demo/*"], calls = "5/run" }]
[agents.costly]
module = "a.wasm"
allow = [{ tools = ["demo/*"], calls = "4/day" }]
"""


async def test_budgets_and_logins_are_read_as_far_as_they_are_used(
    tmp_path: Path,
) -> None:
    path = tmp_path / "caxton.toml"
    path.write_text(CONFIG)
    config = load(path, environ={}, cwd=tmp_path)
    clock = FakeClock(now=1_000_000_000)
    async with open_store(tmp_path) as store:
        of: Any = SimpleNamespace(config=lambda: config)
        verifying: Any = SimpleNamespace(last=None)
        sandbox: Any = SimpleNamespace(workers=(1, 2))
        vitals = Vitals(
            store=store,
            sandbox=sandbox,
            service=of,
            verifying=verifying,
            clock=clock,
            tokens=tmp_path / "tokens",
            started_at=7_000_000,
        )
        (rule,) = config.agents["costly"].grant.allow
        (cost,) = rule.costs({})
        key = f"costly/{cost.key}"
        spent = Reservation(key=key, amount=3, limit=4, rule=rule.id, per="day")
        assert await store.reserve([spent]) is None
        assert [*vitals.expiries()] == []
        login = Login(
            issuer="https://id.example.com",
            resource="https://crm.example.com/mcp",
            metadata={},
            client={},
            access_token="secret",  # noqa: S106 -- it is none
            expires_at=1_060.0,
        )
        TokenFile(vitals.tokens, config.servers["crm"]).write(login)

        (budget,) = vitals.budgets()
        assert budget == (i.BUDGET, 0.75, ("costly", rule.id, "calls per day"))
        assert [*vitals.expiries()] == [(i.EXPIRY, 60.0, ("login",))]
        known = {(one, labels): value for one, value, labels in vitals.process()}
        assert known[i.STARTED, ()] == 7
        assert known[i.MEMORY, ()] > 1_000_000
        assert (i.INTACT, ()) not in known
        for verdict, value in (("intact", 1), ("broken", 0), ("signer_unknown", 0)):
            verifying.last = {"audit": {"verdict": verdict}, "error": None}
            found = {one: value for one, value, _ in vitals.process()}
            assert found[i.INTACT] == value
