"""The control API against its own OpenAPI document, by schemathesis."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.core.tools.servers import ServerConfig
from tests.office import Office, on_a_port

#: All but what asks of a host that other hosts answer: it would wait for those.
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "ignored_auth",
    "missing_required_header",
)

#: Long texts are refused before anybody looks at what they are.
_CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 403, 404, 405, 409, 413, 414, 415, 422, 429, 431]
"""


def busy(folder: Path) -> Office:
    """Return a service whose runs wait for an approval, then go on."""
    rule = Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),), approve=Approve())
    office = Office(folder, grant=Grant(allow=(rule,)))
    office.config = replace(
        office.config,
        servers={"demo": ServerConfig(name="demo", command=("demo",))},
        origins={"demo": Path("caxton.toml")},
    )
    tasks: set[asyncio.Task[None]] = set()

    def decided(run_id: str) -> None:
        task = asyncio.create_task(office.service.go_on(run_id, "weather", "decided"))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    office.service.decided = decided
    return office


@pytest.mark.long
async def test_every_answer_is_as_the_document_says(tmp_path: Path) -> None:
    office = busy(tmp_path)
    for _ in range(3):
        await office.done(await office.start())

    (tmp_path / "schemathesis.toml").write_text(_CONFIG)
    async with on_a_port(office) as client:
        command = (
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"{client.base_url}/api/v1/openapi.json",
            *("--header", "Authorization: Bearer boss"),
            *("--checks", ",".join(_CHECKS)),
            *("--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "10"),
            *("--request-timeout", "20", "--generation-deterministic"),
            *("--warnings", "off", "--no-color"),
        )
        ran = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=PIPE, stderr=STDOUT
        )
        told, _ = await ran.communicate()

    assert ran.returncode == 0, told.decode()[-20_000:]
