"""Who is let in to a host that serves, and when."""

from __future__ import annotations

import asyncio

import pytest

from caxton_host.core.grants.principals import Principal
from caxton_host.errors import OverloadedError
from caxton_host.runs.admission import RunQueue, Ticket
from caxton_host.testing import FakeClock


def line(
    *, places: int = 2, queue: int = 2, each: int = 4, rate: int = 600
) -> tuple[RunQueue, FakeClock]:
    clock = FakeClock()
    return (
        RunQueue(places=places, queue=queue, each=each, rate=rate, now=clock.monotonic),
        clock,
    )


async def test_so_many_are_inside_and_the_others_wait_their_turn() -> None:
    here, clock = line()
    tickets = [here.take("ann") for _ in range(3)]
    await tickets[0].turn()
    await tickets[1].turn()
    third = asyncio.create_task(tickets[2].turn())
    await asyncio.sleep(0)
    assert (here.inside, here.waiting, third.done()) == (2, 1, False)
    before, clock.time = here.waited_s, clock.time + 5_000_000
    assert (before, here.waited_s) == (0, 5)

    tickets[0].leave()
    await third

    assert (here.inside, here.waiting, here.waited_s) == (2, 0, 0)


def test_a_full_line_refuses_at_once_and_says_when_to_come_again() -> None:
    # attack 44
    here, _ = line()
    for who in "abcd":
        here.take(who)

    with pytest.raises(OverloadedError) as caught:
        here.take("e")

    assert (caught.value.whose, caught.value.retry_after) == ("host", 1.0)


def test_one_principal_has_so_many_tickets_and_others_still_get_theirs() -> None:
    here, _ = line(each=1)
    ticket = here.take("ann")

    with pytest.raises(OverloadedError) as caught:
        here.take("ann")
    here.take("bob")

    assert caught.value.whose == "principal"
    ticket.leave()
    here.take("ann")


def test_one_principal_takes_so_many_tickets_a_minute() -> None:
    here, clock = line(rate=2)
    for _ in range(2):
        here.take("ann").leave()

    with pytest.raises(OverloadedError) as caught:
        here.take("ann")

    assert caught.value.retry_after == pytest.approx(30)
    clock.time += 30_000_000
    here.take("ann").leave()


async def test_turns_go_round_so_that_one_who_asks_for_much_waits_for_itself() -> None:
    # attack 44
    here, _ = line(places=1, queue=5)
    came: list[str] = []

    async def visit(ticket: Ticket) -> None:
        with ticket:
            await ticket.turn()
            came.append(ticket.who)
            await asyncio.sleep(0)

    tickets = [here.take(who) for who in ("ann", "ann", "ann", "ann", "bob")]
    await asyncio.gather(*map(visit, tickets))

    assert came.index("bob") < 4
    assert (here.inside, here.present) == (0, 0)


async def test_a_tenant_has_one_turn_however_many_of_its_callers_wait() -> None:
    here, _ = line(places=1, queue=9)
    came: list[str] = []

    async def visit(ticket: Ticket) -> None:
        with ticket:
            await ticket.turn()
            came.append(ticket.who)
            await asyncio.sleep(0)

    callers = [f"@acme/token/{number}" for number in range(6)]
    tickets = [here.take(who) for who in (*callers, "@bolt/token/1", "token/ann")]
    await asyncio.gather(*map(visit, tickets))

    assert max(came.index("@bolt/token/1"), came.index("token/ann")) < 4
    assert sorted(came) == sorted(ticket.who for ticket in tickets)


async def test_who_is_refused_for_all_hosts_takes_nothing_of_this_one() -> None:
    here, _ = line(rate=1)
    ann = Principal(kind="token", id="ann", scopes=frozenset({"run"}))

    async def refuse(who: Principal) -> None:
        assert who is ann
        raise OverloadedError("too many", retry_after=1, whose="principal")

    here.fleet = refuse
    for _ in range(3):
        with pytest.raises(OverloadedError, match="too many"):
            await here.enter(ann)
    assert here.present == 0
    here.take(ann.key)


async def test_who_gives_up_waiting_takes_no_place() -> None:
    here, _ = line(places=1)
    first, second, third = (here.take("ann") for _ in range(3))
    await first.turn()
    waiting = asyncio.create_task(second.turn())
    after = asyncio.create_task(third.turn())
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])
    second.leave()
    first.leave()
    await after

    assert (here.inside, here.present) == (1, 1)


async def test_who_gives_up_at_its_turn_hands_the_place_on() -> None:
    here, _ = line(places=1)
    first, second, third = (here.take("ann") for _ in range(3))
    await first.turn()
    waiting = asyncio.create_task(second.turn())
    after = asyncio.create_task(third.turn())
    await asyncio.sleep(0)

    first.leave()
    waiting.cancel()
    await asyncio.wait([waiting])
    second.leave()
    await after
    third.leave()

    assert (here.inside, here.present) == (0, 0)


def test_a_ticket_is_given_back_once() -> None:
    here, _ = line()
    with here.take("ann") as ticket:
        ticket.leave()

    assert here.present == 0


def test_nobody_is_let_in_to_a_host_that_is_about_to_stop() -> None:
    here, _ = line()
    here.closed = True

    with pytest.raises(OverloadedError, match="stop"):
        here.take("ann")


def test_a_run_that_is_taken_over_waits_whatever_there_is() -> None:
    here, _ = line(places=1, queue=0)
    here.take("ann")

    here.admit("host")

    assert here.present == 2


async def test_who_hangs_up_while_another_leaves_is_gone_and_nothing_else() -> None:
    here, _ = line(places=1)
    first, second = here.take("ann"), here.take("ann")
    await first.turn()
    waiting = asyncio.create_task(second.turn())
    await asyncio.sleep(0)

    waiting.cancel()
    first.leave()
    await asyncio.wait([waiting])
    second.leave()

    assert waiting.cancelled()
    assert (here.inside, here.present) == (0, 0)


def test_who_does_not_come_again_is_forgotten_in_time() -> None:
    # law 9: an authorization server may have any number of subjects
    here, clock = line(rate=2)
    staying = here.take("ann")
    for n in range(500):
        here.take(f"guest {n}").leave()
    clock.time += 60_000_000

    here.take("bob").leave()

    assert repr(here).count("_Visitor(") == 2
    staying.leave()
