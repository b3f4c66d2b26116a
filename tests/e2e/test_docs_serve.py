"""The pages about a host that is served: what they show is typed, and holds."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from configparser import ConfigParser
from importlib.resources import files

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from caxton_host.app.serve_app import HAND_OVER_S
from caxton_host.cli import caxton
from caxton_host.config import Serve
from caxton_host.config.show import SETTINGS
from caxton_host.telemetry.instruments import WAITING

from .serving import served
from .shell import SOON, Shell
from .test_docs import ROOT, blocks, commands, type_in

PAGE = ROOT / "docs" / "how-to" / "serve.md"
FILES = ROOT / "docs" / "how-to" / "deploy"
SHOWN = "http://127.0.0.1:8080"


@pytest.mark.long
def test_the_page_about_a_host_that_is_served(shell: Shell) -> None:
    lines = [line for block in blocks(PAGE) for line in commands(*block[::2])]
    before = lines.index("caxton serve")
    for line in lines[:before]:
        type_in(shell, line)
    token = (shell.folder / "token.txt").read_text().strip()
    with served(shell, good=token) as host:
        told = [
            type_in(shell, line.replace(SHOWN, host.url))
            for line in lines[before + 1 :]
        ]
        code, err = host.stop(signal.SIGTERM)

    assert (code, "stopping" in err) == (0, True)
    assert json.loads(told[0])["state"] == "completed"
    assert "actor   token" in told[1]
    assert "nothing has changed" in told[2]


@pytest.mark.long
def test_what_a_host_prints_is_what_the_page_shows(shell: Shell) -> None:
    shown = next(text for _, _, text in blocks(PAGE) if text.startswith("listening on"))
    assert shell("init").code == 0
    assert shell("serve", "token", "create", "--scope", "run").code == 0
    with shell.started("serve", "--port", "0") as child:
        assert child.stderr is not None
        lines = [child.stderr.readline().decode() for _ in shown.splitlines()]
        url = lines[0].removeprefix("listening on ").strip()
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=SOON)

    assert "".join(lines).replace(url, SHOWN) == shown


def test_the_unit_starts_what_there_is_and_waits_for_runs_to_end() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as it documents
    unit.read(FILES / "caxton.service")
    service = unit["Service"]

    _, *words = shlex.split(service["ExecStart"])
    assert _parses(words)
    lines = (FILES / "caxton.service").read_text("utf-8").splitlines()
    said = " ".join(line for line in lines if line.startswith("Environment="))
    assert {"CAXTON_CONFIG", "CAXTON_STORE_URL", "CAXTON_STATE_DIR"} == _named(said)
    assert service["Type"] == "notify"
    assert "-HUP" in service["ExecReload"]
    assert float(service["TimeoutStopSec"].removesuffix("s")) > float(Serve().drain)
    # A beat waits for a commit, which tries for ten seconds.
    assert float(service["WatchdogSec"].removesuffix("s")) > 40
    assert {"MemoryMax", "TasksMax", "SystemCallFilter"} <= {*service}


@pytest.mark.debian
def test_the_unit_is_sound_and_a_host_works_under_its_filter(shell: Shell) -> None:
    text = (FILES / "caxton.service").read_text("utf-8")
    unit = shell.folder / "caxton.service"
    unit.write_text(
        re.sub("^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE)
    )
    for words in (["verify"], ["security", "--offline=true", "--threshold=35"]):
        subprocess.run(["systemd-analyze", *words, unit], check=True)
    filters = re.findall("^SystemCallFilter=(.*)$", text, re.MULTILINE)

    host = f"{sys.executable} -m caxton_host"
    under = [sys.executable, "-m", "tests.filtered", " ".join(filters)]
    done = subprocess.run(
        [*under, "sh", "-c", f"{host} demo && {host} doctor"],
        cwd=ROOT,
        env={"HOME": str(shell.folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Verified: intact" in done.stdout
    assert re.findall("guard +(?:seccomp|landlock) +(.*)", done.stdout) == ["ok", "ok"]


def test_the_container_starts_what_there_is() -> None:
    text = (FILES / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    lines = text.splitlines()
    found = dict(line.split(" ", 1) for line in lines if line and line[0] != " ")

    assert json.loads(found["ENTRYPOINT"]) == ["caxton"]
    assert _parses(json.loads(found["CMD"]))
    assert {*SETTINGS.values()} - _named(found["ENV"]) == {
        f"CAXTON_SERVE_{part}" for part in ("MCP", "API", "UI")
    }
    assert found["STOPSIGNAL"] == "SIGTERM"
    # As in compose.yaml and kubernetes.yaml.
    assert found["USER"] == "10001:10001"
    # Without a digest there is no such image.
    assert found["FROM"] == "${BASE}@sha256:${DIGEST}"
    installs = found["RUN"].split(" && ")
    assert "--require-hashes --no-deps -r /wheels/requirements.txt" in installs[0]
    assert "--no-index --no-deps" in installs[1]


def test_the_compose_file_is_one_and_starts_what_there_is() -> None:
    found = yaml.safe_load((FILES / "compose.yaml").read_text("utf-8"))
    vendor = files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((vendor / "compose-spec.json").read_text("utf-8"))

    jsonschema_rs.validator_for(schema).validate(found)

    host, migrate = found["services"]["host"], found["services"]["migrate"]
    assert _parses(host["command"])
    assert migrate["command"] == ["db", "migrate"]
    assert {*host["environment"]} - {"XDG_CACHE_HOME"} <= {*SETTINGS.values()}
    assert int(host["stop_grace_period"].removesuffix("s")) > HAND_OVER_S
    for one in (host, migrate):
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert not one["user"].startswith("0")


def test_the_manifests_are_valid_and_grant_the_hosts_nothing() -> None:
    whole = yaml.safe_load((FILES / "kubernetes.yaml").read_text("utf-8"))
    kinds = {one["kind"]: one for one in whole["items"]}

    for one in whole["items"]:
        kubernetes_validate.validate(one, "1.34", strict=True)

    for kind in ("Job", "Deployment"):
        pod = kinds[kind]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    (host,) = pod["containers"]
    assert _parses(host["args"])
    env = {one["name"] for one in host["env"]} - {"XDG_CACHE_HOME"}
    assert env <= {*SETTINGS.values(), "CAXTON_CONFIG"}
    assert host["readinessProbe"]["httpGet"]["path"] == "/readyz"
    pause = int(host["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + HAND_OVER_S
    (metric,) = kinds["HorizontalPodAutoscaler"]["spec"]["metrics"]
    name = WAITING.name.replace(".", "_")
    assert metric["external"]["metric"]["name"] == name


def _named(text: str) -> set[str]:
    """Return the settings that variables make there."""
    return {word.partition("=")[0] for word in re.findall(r"CAXTON_\w+=", text)}


def _parses(words: list[str]) -> bool:
    """Return whether *words* are a command line of ``caxton serve``."""
    context = caxton.make_context("caxton", [*words])
    name, command, rest = caxton.resolve_command(context, context._protected_args)
    assert command is not None
    command.make_context(name, [*rest, *context.args], parent=context)
    return name == "serve"
