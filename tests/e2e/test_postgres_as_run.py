"""What a host costs the server that holds its log."""

from __future__ import annotations

import time

from tests import standin
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
[agents.quick]
module = "quick.wasm"
allow = [{{ tools = ["demo/*"] }}]
"""
#: Seconds in which an idle host makes three transactions at most.
WHILE = 6.0


def backends(server: Server, url: str) -> list[tuple[str, object]]:
    """Return what each connection is for, and when it was used last."""
    return [
        (str(name), (pid, used))
        for name, pid, used in server.execute(
            "SELECT application_name, pid, query_start FROM pg_stat_activity "  # noqa: S608
            f"WHERE datname = '{name_of(url)}' ORDER BY 1"
        )
    ]


def are_over(host: Host, runs: list[str]) -> bool:
    states = [host.get(f"/api/v1/runs/{run}").json()["state"] for run in runs]
    return {*states} == {"completed"}


def test_a_host_has_four_connections_and_asks_little_while_it_waits(
    shell: Shell, postgres: Server, postgres_url: str
) -> None:
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("quick.wasm", guest(weather, output={"sky": "clear"}))
    demo = standin.toml(f"of={shell.folder}")
    shell.write("caxton.toml", CONFIG.format(demo=demo, url=postgres_url))
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
    assert max(seen, key=len) == ("caxton", "caxton", "caxton append", "caxton lease")
