"""The trace of a client goes on in the run that it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client

from tests.collector import collecting, connect
from tests.integration.serving.clients import Mode, meta, serving
from tests.office import Office

TRACE, SPAN = "ab" * 16, "cd" * 8


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("sent", "kept"),
    [(f"00-{TRACE}-{SPAN}-01", True), ("00-nonsense", False), ("0" * 600, False)],
)
async def test_a_run_is_part_of_the_trace_of_who_asks(
    tmp_path: Path, mode: Mode, sent: str, *, kept: bool
) -> None:
    office = Office(tmp_path)
    with collecting() as collector:
        telemetry = connect(collector.url, {})
        office.service.host = replace(office.scene.host, telemetry=telemetry)
        async with serving(office.service) as url, Client(url, mode=mode) as served:
            await served.call_tool("sky", {}, meta=meta(traceparent=sent))
        telemetry.close()
        run = collector.named("invoke_agent weather")

    assert (run.trace_id.hex() == TRACE) is kept
    assert (run.parent_span_id.hex() == SPAN) is kept
