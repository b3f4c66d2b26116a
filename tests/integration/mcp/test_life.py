"""What becomes of servers over time: what they say, how they fail, how they end."""

from __future__ import annotations

from pathlib import Path

from .conftest import SECRET, Faulty, request


async def test_what_a_server_writes_for_people_is_kept_without_secrets(
    faulty: Faulty, tmp_path: Path
) -> None:
    # law 8
    folder = tmp_path / "logs"
    async with faulty("dies_at_start", logs=folder) as tools:
        await tools.offered(["faulty"])
    told = (folder / "faulty.log").read_text()
    assert "-- started: " in told
    assert "no luck, [redacted]" in told
    assert SECRET not in told


async def test_a_flood_on_standard_error_fills_no_disk_and_stops_no_call(
    faulty: Faulty, tmp_path: Path
) -> None:
    async with faulty("floods_stderr", logs=tmp_path / "logs") as tools:
        assert (await tools.call_tool(request("act"))).message == "fine"
    assert "bytes left out" in (tmp_path / "logs" / "faulty.log").read_text()
    assert (tmp_path / "logs" / "faulty.log").stat().st_size < 1_000_000
