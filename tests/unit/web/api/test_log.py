"""Bytes that runs speak of, over the control API."""

from __future__ import annotations

from pathlib import Path

from caxton_host.lib.codec import sha256
from tests.office import Office, calling

ANN, BOB, EVE = ({"authorization": f"Bearer {name}"} for name in ("ann", "bob", "eve"))


async def test_who_may_read_gets_what_a_run_was_given(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    module = sha256(b"\0asm")
    started = (await office.scene.store.reader.read(f"run/{run_id}"))[0].event
    shown = next(iter(started.catalogue.values()))["definition_sha256"]  # type: ignore[union-attr]
    where = f"/api/v1/runs/{run_id}/blobs"

    async with calling(office) as client:
        found = await client.get(f"{where}/{module}", headers=EVE)
        defined = await client.get(f"{where}/{shown}", headers=EVE)
        starts_only = await client.get(f"{where}/{module}", headers=ANN)

    assert (found.status_code, found.content) == (200, b"\0asm")
    assert found.headers["content-type"] == "application/octet-stream"
    assert sha256(defined.content) == shown
    assert starts_only.status_code == 403


async def test_bytes_that_a_run_does_not_speak_of_are_not_found(tmp_path: Path) -> None:
    # What other runs have is in the same store.
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    office.scene.store.blobs[secret := sha256(b"secret")] = b"secret"

    async with calling(office) as client:
        foreign = await client.get(f"/api/v1/runs/{run_id}/blobs/{secret}", headers=EVE)
        none = await client.get(f"/api/v1/runs/0/blobs/{secret}", headers=EVE)

    assert (foreign.status_code, none.status_code) == (404, 404)
    assert b"secret" not in foreign.content
