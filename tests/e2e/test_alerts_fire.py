"""Each alert fires when its fault is caused: a real host, and a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests import standin
from tests.answering import HERE, Answers, answering
from tests.collector import collecting
from tests.integration.mcp.conftest import processes
from tests.unit.telemetry.test_alerts import rules

from .guests import call, guest, many
from .serving import Host, served, token
from .shell import SOON, Shell
from .test_cli_cancel import until
from .test_cli_process import workers
from .test_serve_lost_log import full_disk

pytestmark = pytest.mark.debian

CONFIG = """\
version = 1
[serve]
runs = 2
concurrency = 6
[audit]
anchor = "{anchor}"
[telemetry]
endpoint = "{otlp}"
[servers.demo]
{demo}
[servers.icy]
{demo}
[servers.held]
{demo}
confine = {{ read = ["given"] }}
[servers.sick]
{demo}
timeout = "0.2s"
breaker = {{ failures = 2, pause = "60s" }}
[servers.gone]
command = "sh"
args = ["-c", "test -e alive && exec {gone}"]
restart = {{ max_restarts = 1, backoff = "0.1s" }}
[agents.costly]
module = "quick.wasm"
[[agents.costly.allow]]
tools = ["demo/*"]
calls = "1/day"
[agents.asking]
module = "quick.wasm"
[[agents.asking.allow]]
tools = ["demo/*"]
approve = {{ by = ["ops"] }}
"""
#: Bytes that others may need, or give back, meanwhile.
_SPARE = 2_000_000_000
#: What a test cannot wait for, and what it waits for instead.
SOONER = {
    r"\[15m\]": "[90s]",  # A host starts slowly where much runs.
    r"\[\d+[mh]\]": "[15s]",
    r"offset \d+m": "offset 15s",
    r"\], 86400": "], 1",
    r"> (900|600|300|60)\b": "> 1",
    r"> [23]$": "> 0",
}


def guests(shell: Shell) -> dict[str, bytes]:
    """Write the module of each agent, and return the agents that may call anything."""
    slow = call("mcp__demo__slow", seconds=60)
    modules = {
        "quick": guest(call("mcp__demo__get_weather", location="Oslo")),
        "other": guest(call("mcp__demo__echo", text="another")),
        "slow": guest(slow),
        "held": guest(call("mcp__held__echo", text="here?")),
        "frozen": guest(call("mcp__icy__echo", text="cold")),
        "lost": guest(call("mcp__gone__echo", text="there?")),
        "sick": guest(*[call("mcp__sick__slow", seconds=5)] * 3),
        "wild": guest(many(*[call("rm", path="/")] * 64)),
    }
    for name, module in modules.items():
        shell.write(f"{name}.wasm", module)
    return modules


class Prometheus:
    """A Prometheus that scrapes each second, and what fired so far."""

    def __init__(self, folder: Path, port: int, jobs: list[dict[str, Any]]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.fired: set[str] = set()
        self.said: dict[str, str] = {}
        self.since = time.monotonic()
        short = "1s"
        config = {
            "global": {
                "scrape_interval": short,
                "scrape_timeout": short,
                "evaluation_interval": short,
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yaml").write_text(json.dumps(config))
        command = [
            "/usr/bin/prometheus",
            "--config.file=prometheus.yaml",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self.child = subprocess.Popen(command, cwd=folder, stderr=log)

    def query(self, text: str) -> list[Any]:
        with suppress(httpx.TransportError):
            answer = httpx.get(f"{self.url}/api/v1/query", params={"query": text})
            return list(answer.json()["data"]["result"])
        return []

    def value(self, query: str) -> float | None:
        for one in self.query(query):
            return float(one["value"][1])
        return None

    def fires(self, *names: str) -> None:
        """Wait until all these have fired."""
        end = time.monotonic() + SOON
        while missing := {*names} - self.fired:
            self.look()
            assert time.monotonic() < end, missing
            time.sleep(0.2)

    def begin(self) -> None:
        """Forget what has fired."""
        self.since = time.monotonic()
        self.fired.clear()

    def look(self) -> None:
        """Note what has fired, and what is said of it."""
        seconds = max(1, int(time.monotonic() - self.since))
        firing = f'max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])'
        self.fired |= {one["metric"]["alertname"] for one in self.query(firing)}
        for one in httpx.get(f"{self.url}/api/v1/alerts").json()["data"]["alerts"]:
            self.said |= {one["labels"]["alertname"]: str(one["annotations"])}


def sooner(less: int) -> str:
    """Return the rules, with shorter times and smaller numbers."""
    found = rules()
    for rule in found:
        rule.pop("for", None)
        for old, new in SOONER.items():
            rule["expr"] = re.sub(old, new, rule["expr"])
        rule["expr"] = rule["expr"].replace("2e9", str(less))
    return yaml.safe_dump({"groups": [{"name": "caxton", "rules": found}]})


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(HERE)
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def numbers(text: Callable[[], str]) -> Iterator[str]:
    """Serve what *text* returns, for Prometheus."""

    class Handler(Answers):
        def respond(self) -> None:
            self.answer(text().encode(), kind="text/plain")

    with answering(ThreadingHTTPServer(HERE, Handler)) as url:
        yield url


@contextmanager
def locked(path: Path, seconds: float) -> Generator[None]:
    """Lock a database for a while."""
    with sqlite3.connect(path, check_same_thread=False, isolation_level=None) as one:
        one.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(seconds, one.rollback)
        timer.start()
        yield
        timer.join()


@contextmanager
def filled(folder: Path, less: int) -> Generator[None]:
    """Leave *less* bytes on the disk, and fewer if others make room."""
    path = folder / "large"
    size = shutil.disk_usage(folder).free - less + _SPARE
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    yield
    path.unlink()


def many_bad(host: Host) -> None:
    with ThreadPoolExecutor(4) as threads:
        ask = [
            threads.submit(host.ask, "GET", "/api/v1/runs", "bad") for _ in range(40)
        ]
        assert 401 in {one.result().status_code for one in ask}


def too_many(host: Host, other: str) -> None:
    def told() -> set[int]:
        body = {"agent": "quick"}
        with ThreadPoolExecutor(20) as threads:
            ask = [
                threads.submit(host.ask, "POST", "/api/v1/runs", other, json=body)
                for _ in range(40)
            ]
        return {one.result().status_code for one in ask}

    until(lambda: 429 in told())  # A fast host may have taken them all.


def tampered(path: Path) -> None:
    """Change a recorded event behind the back of the host."""
    with sqlite3.connect(path) as forger:
        forger.execute("DROP TRIGGER payloads_no_update")
        forger.execute(
            "UPDATE payloads SET payload = payload || x'00' WHERE position = 1"
        )


def refusing_checkpoints(path: Path) -> None:
    with sqlite3.connect(path) as forger:
        forger.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON checkpoints "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )


def test_each_alert_fires_when_its_fault_is_caused(shell: Shell) -> None:
    with ExitStack() as stack:
        collector = stack.enter_context(collecting())
        collector.refuses.add("/v1/traces")
        shell.set(OTEL_BSP_SCHEDULE_DELAY="100")
        config = CONFIG.format(
            anchor="http://127.0.0.1:1/",
            otlp=collector.url,
            demo=standin.toml(),
            gone=standin.typed(f"gone={shell.folder}"),
        )
        tools = [f"{name}/*" for name in ("demo", "icy", "held", "sick", "gone")]
        for name in guests(shell):
            config += f"[agents.{name}]\nmodule = '{name}.wasm'\n"
            config += f"allow = [{{ tools = {tools} }}]\n" if name != "wild" else ""
        shell.write("caxton.toml", config)
        shell.write("alive", "")
        (shell.folder / "given").mkdir()
        checked = shell("config", "check")
        assert checked.code == 0, checked.out
        good, other = token(shell), token(shell, "--scope", "run")
        port, own = str(free_port()), free_port()

        def replayed() -> str:
            name = "caxton.replay.divergences"
            found = collector.metrics.get(name)
            points = found.sum.data_points if found else ()
            total = sum(point.as_int for point in points)
            return f"caxton_replay_divergences_total {total}\n"

        commands = stack.enter_context(numbers(replayed)).removeprefix("http://")
        less = shutil.disk_usage(shell.folder).free - _SPARE
        shell.write("rules.yaml", sooner(less))
        prometheus = Prometheus(
            shell.folder,
            own,
            [
                {
                    "job_name": "caxton",
                    "authorization": {"credentials": good},
                    "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                },
                {
                    "job_name": "commands",
                    "static_configs": [{"targets": [commands]}],
                },
            ],
        )
        stack.callback(prometheus.child.wait)
        stack.callback(prometheus.child.kill)

        host = stack.enter_context(served(shell, "--port", port, good=good))
        fault_by_fault(shell, host, prometheus, other, less)
        host.child.kill()
        host.child.wait()
        until(lambda: prometheus.value('up{job="caxton"}') == 0)
        prometheus.fires("CaxtonHostDown")
        again = stack.enter_context(served(shell, "--port", port, good=good))
        tampered(shell.database)
        again.post("/api/v1/verification", {"full": True})
        last = ("CaxtonHostRestarts", "CaxtonAuditBroken", "CaxtonCallInDoubt")
        prometheus.fires(*last)
        refusing_checkpoints(shell.database)
        again.post("/api/v1/runs?wait=10", {"agent": "quick"})
        prometheus.fires("CaxtonCheckpointOld")

    names = {rule["alert"] for rule in rules()}
    assert prometheus.fired == names
    told = str(prometheus.said)
    assert "<error" not in told
    assert good not in told


def fault_by_fault(
    shell: Shell, host: Host, prometheus: Prometheus, other: str, less: int
) -> None:
    """Cause what a host survives."""
    fires = prometheus.fires

    def run(agent: str) -> None:
        host.post("/api/v1/runs?wait=20", {"agent": agent})

    assert host.ask("GET", "/api/v1/runs", "bad").status_code == 401
    for agent in ("quick", "wild", "lost"):
        run(agent)
    until(lambda: prometheus.value('up{job="caxton"}') == 1)
    prometheus.begin()
    # What is refused elsewhere is refused from the start: see `CONFIG`.
    time.sleep(3)
    prometheus.look()
    assert prometheus.fired <= {
        *("CaxtonAnchorFails", "CaxtonSinkLags", "CaxtonTelemetryLost")
    }

    assert (
        shell("serve", "token", "create", "--scope", "run", "--expires", "1h").code == 0
    )
    assert shell("freeze", "server", "icy", "--reason", "ice").code == 0
    (shell.folder / "given").rmdir()
    for agent in ("costly", "asking", "wild", "wild", "wild", "frozen", "held", "sick"):
        run(agent)
    many_bad(host)
    too_many(host, other)
    told = 'http_server_request_duration_seconds_count{http_response_status_code="429"}'
    until(lambda: prometheus.value(told))
    too_many(host, other)
    (shell.folder / "alive").unlink()
    for one in processes(f"gone={shell.folder}"):
        os.kill(one, signal.SIGKILL)
    replays = shell("runs", "list", "--agent", "quick", "--json").document
    again = ("replay", replays[-1]["run_id"], "--against", "other.wasm")
    assert shell(*again).code == 4
    with filled(shell.folder, less):
        fires("CaxtonDiskFills")
    early = (
        *("CaxtonBadCredentials", "CaxtonOverloaded", "CaxtonServerDown"),
        *("CaxtonReplayDiverged", "CaxtonTokenExpires"),
        *("CaxtonBudgetNearlyUsed", "CaxtonCallsDenied", "CaxtonApprovalWaits"),
        *("CaxtonRunsSuspended", "CaxtonBreakerOpen", "CaxtonAnchorFails"),
        *("CaxtonSinkLags", "CaxtonTelemetryLost", "CaxtonConfinementRefused"),
    )
    fires(*early)

    with locked(shell.database, 1.5):
        run("quick")
    fires("CaxtonCommitsSlow")
    for _ in range(3):
        host.start("slow")
    until(lambda: len(workers(host.child.pid)) > 0)
    for one in workers(host.child.pid):
        os.kill(one, signal.SIGKILL)
    fires("CaxtonWorkersDie", "CaxtonQueueWaits")
    with full_disk(host, shell.database.with_name("caxton.db-wal")):
        host.post("/api/v1/runs", {"agent": "quick"})
        fires("CaxtonLogUnusable")
    away = shell.database.rename(shell.folder / "away.db")
    fires("CaxtonMetricsMissing")
    away.rename(shell.database)
    host.child.send_signal(signal.SIGSTOP)
    time.sleep(4)
    host.child.send_signal(signal.SIGCONT)
    fires("CaxtonLoopBlocked")
