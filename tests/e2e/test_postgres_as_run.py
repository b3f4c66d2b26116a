"""What a host costs the server that holds its log."""

from __future__ import annotations

import time

import pytest

from tests import standin
from tests.pgbouncer import pooled
from tests.postgres import Server, name_of

from .guests import call, guest
from .serving import Host, served
from .shell import Shell
from .test_cli_cancel import until

CONFIG = """\
version = 1
[store]
url = "{url}"
[placement]
engine = "procrastinate"
[serve]
runs = 2
[servers.demo]
{demo}
tools.slow.effect = "read"
[agents.quick]
module = "quick.wasm"
allow = [{{ tools = ["demo/*"] }}]
[agents.slow]
module = "slow.wasm"
allow = [{{ tools = ["demo/*"] }}]
"""
SETTINGS = ("idle_in_transaction_session_timeout", "lock_timeout")
#: Seconds in which an idle host makes three transactions at most.
WHILE = 6.0


def backends(server: Server, url: str) -> list[tuple[str, object]]:
    """Return what each connection is for, and when it was used last."""
    return [
        (str(name), (pid, used))
        for name, pid, used in server.execute(
            "SELECT application_name, pid, query_start FROM pg_stat_activity "  # noqa: S608
            f"WHERE datname = '{name_of(url)}' AND backend_type = 'client backend' "
            "ORDER BY 1"
        )
    ]


def state(host: Host, run: str) -> str:
    return str(host.get(f"/api/v1/runs/{run}").json()["state"])


def are_over(host: Host, runs: list[str]) -> bool:
    return {state(host, run) for run in runs} == {"completed"}


def configure(shell: Shell, url: str) -> None:
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("quick.wasm", guest(weather, output={"sky": "clear"}))
    shell.write("slow.wasm", guest(call("mcp__demo__slow", seconds=3600)))
    demo = standin.toml(f"of={shell.folder}")
    shell.write("caxton.toml", CONFIG.format(demo=demo, url=url))


@pytest.mark.long
def test_a_host_has_four_connections_and_asks_little_while_it_waits(
    shell: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(shell, postgres_url)
    assert shell("db", "migrate").code == 0
    seen: set[tuple[str, ...]] = set()

    def look() -> set[object]:
        found = backends(postgres, postgres_url)
        seen.add(tuple(name for name, _ in found))
        return {used for _, used in found}

    def is_idle() -> bool:
        used, end = look(), time.monotonic() + WHILE
        kept = len(used)
        while time.monotonic() < end:
            time.sleep(0.05)
            used |= look()
        return len(used) - kept <= WHILE / 2

    with served(shell) as host:
        runs = [host.start("quick") for _ in range(12)]
        until(lambda: look() and are_over(host, runs))
        until(is_idle)
    assert ("caxton", "caxton", "caxton append", "caxton lease") in seen
    assert max(map(len, seen)) == 4


@pytest.mark.debian
def test_hosts_work_behind_a_pooler(
    shell: Shell, postgres: Server, postgres_url: str
) -> None:
    configure(shell, postgres_url)
    assert shell("db", "migrate").code == 0  # at the server itself
    for setting in SETTINGS:
        postgres.execute(
            f"ALTER DATABASE {name_of(postgres_url)} SET {setting} = '20s'"
        )
    with pooled(postgres_url) as url:
        configure(shell, url)
        with served(shell) as host:
            assert shell("db", "status").code == 0
            slow = host.start("slow")
            runs = [host.start("quick") for _ in range(4)]
            until(lambda: are_over(host, runs))
            assert shell("runs", "cancel", slow).code == 0
            until(lambda: state(host, slow) == "cancelled")
            assert shell("freeze", "agent", "quick", "--reason", "odd").code == 0
            until(lambda: host.post("/api/v1/runs", {"agent": "quick"}).is_error)
    configure(shell, postgres_url)
    assert shell("audit", "verify").code == 0
