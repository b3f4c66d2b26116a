"""``caxton server restart``: hosts that are up start a server anew."""

from __future__ import annotations

from .shell import SOON, Shell
from .test_cli_cancel import configure, waiting


def test_a_host_starts_a_server_anew_under_a_run(shell: Shell) -> None:
    configure(shell)
    (name,) = (one["name"] for one in shell("server", "list", "--json").document)
    with waiting(shell) as (host, _):
        assert shell("server", "list").out.endswith("\tnow\n")
        (done,) = shell("server", "restart", name, "--json").document
        assert (done["restarted"], done["outcome"]) == (True, "restarted")
        # The call that was under way has failed, and so the agent ended.
        host.communicate(timeout=SOON)
    (server,) = shell("server", "list", "--json").document
    assert server["restarts"] >= 1
    assert server["live"] is False
    unknown = shell("server", "restart", name + "x")
    assert (unknown.code, unknown.fix) == (2, f"write {name}")
    nobody = shell("server", "restart", name)
    assert nobody.code == 0
    assert "no host is running" in nobody.err
