"""Which definition of a tool was accepted. Each store passes all of it."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.lib.codec import canonical, sha256
from tests.contract.conftest import Store

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
ONE, OTHER = canonical({"name": "lookup"}), canonical({"name": "lookup", "x": 1})
LOOKUP = ("crm", "lookup")


async def test_definition_that_is_seen_first_is_kept(store: Store) -> None:
    assert await store.definitions.accepted(["crm"]) == {}

    await store.definitions.accept(
        {LOOKUP: ONE, ("crm", "same"): ONE, ("time", "now"): ONE}, ANN
    )
    await store.definitions.accept({LOOKUP: OTHER}, ANN)

    same = sha256(ONE)
    assert await store.definitions.accepted(["crm"]) == {
        LOOKUP: same,
        ("crm", "same"): same,
    }
    assert await store.definitions.accepted(["crm", "time"]) == {
        LOOKUP: same,
        ("crm", "same"): same,
        ("time", "now"): same,
    }
    assert await store.definitions.accepted([]) == {}
    assert await store.reader.blob(same) == ONE


async def test_definition_that_is_accepted_anew_replaces_the_one_before(
    store: Store,
) -> None:
    await store.definitions.accept({LOOKUP: ONE}, ANN)

    await store.definitions.accept({LOOKUP: OTHER}, ANN, anew=True)

    assert await store.definitions.accepted(["crm"]) == {LOOKUP: sha256(OTHER)}
    assert [await store.reader.blob(sha256(data)) for data in (ONE, OTHER)] == [
        ONE,
        OTHER,
    ]
