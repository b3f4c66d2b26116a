"""What a caller and a tenant may have, at whichever host they ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from caxton_host.config.model import Serve
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import RunCompleted
from caxton_host.errors import OverloadedError
from caxton_host.service.quotas import Quotas
from caxton_host.store.memory import MemoryStore
from tests.unit.store.fakes import FakeClock, FakeEntropy, run_queued, run_started

ANN = Principal(kind="token", id="ann", scopes=frozenset({"run"}), tenant="acme")
CARL = replace(ANN, id="carl")
BOB = replace(ANN, id="bob", tenant="bolt")
OPERATOR = replace(ANN, id="olga", tenant=None)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock=clock, entropy=FakeEntropy())


def hosts(store: MemoryStore, serve: Serve) -> list[Quotas]:
    return [Quotas(store=store, serve=serve) for _ in range(2)]


async def refused(quotas: Quotas, who: Principal) -> str:
    with pytest.raises(OverloadedError) as caught:
        await quotas.check(who)
    assert caught.value.whose == "principal"
    assert caught.value.fix
    return f"{caught.value} {caught.value.retry_after:g}"


async def test_a_rate_is_that_of_a_caller_at_all_hosts(
    store: MemoryStore, clock: FakeClock
) -> None:
    one, other = hosts(store, Serve(rate=2))
    await one.check(ANN)
    await other.check(ANN)
    for host in (one, other):
        said = await refused(host, ANN)
        assert said == "you have started 2 runs in a minute, which is the most 30"
    await one.check(CARL)
    clock.time += 30_000_000
    await other.check(ANN)


async def test_a_rate_of_a_tenant_is_that_of_all_its_callers(
    store: MemoryStore,
) -> None:
    one, other = hosts(store, Serve(tenant_rate=2, rate=100))
    await one.check(ANN)
    await other.check(CARL)
    assert "your tenant has started 2 runs in a minute" in await refused(one, ANN)
    await one.check(BOB)
    for _ in range(3):
        await one.check(OPERATOR)


async def test_what_is_refused_spends_no_other_rate(
    store: MemoryStore, clock: FakeClock
) -> None:
    one, _ = hosts(store, Serve(tenant_rate=1, rate=2))
    await one.check(ANN)
    await refused(one, ANN)
    clock.time += 60_000_000
    await one.check(ANN)


async def test_runs_are_counted_wherever_they_go_on(store: MemoryStore) -> None:
    one, other = hosts(store, Serve(concurrency=2, tenant_concurrency=3))
    first = replace(run_started(), actor=ANN.actor)
    log = store.create("run/1")
    await log.append(first)
    await one.check(ANN)
    await store.enter("run/2", replace(run_queued(), actor=ANN.actor))
    assert "you have 2 runs under way" in await refused(other, ANN)
    await other.check(CARL)
    await store.create("run/3").append(replace(first, actor=CARL.actor))
    assert "your tenant has 3 runs under way" in await refused(one, CARL)
    await one.check(BOB)
    await one.check(OPERATOR)
    await log.append(RunCompleted(output=None, output_sha256="", fuel=None))
    await other.check(CARL)


async def test_who_is_not_limited_costs_the_log_nothing() -> None:
    nothing: Any = object()
    await Quotas(store=nothing, serve=Serve()).check(ANN)


async def test_no_row_names_a_caller(store: MemoryStore) -> None:
    # law 8: an erasure does not find these rows
    one, _ = hosts(store, Serve(rate=2, tenant_rate=2))
    await one.check(ANN)
    assert len(store.budgets) == 2
    assert not any("ann" in key or "acme" in key for key in store.budgets)
