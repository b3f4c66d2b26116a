"""A server that connects often, or to many names, writes few events."""

from __future__ import annotations

from typing import Any

from caxton_host.core.log.egress_tally import NAMES, NOBODY, OTHERS, Tally
from caxton_host.core.log.events import EgressAllowed, EgressRefused
from caxton_host.core.tools.egress import Target

HERE = Target("a.test", 443)


def allowed(**amounts: Any) -> EgressAllowed:  # noqa: ANN401 -- numbers
    return EgressAllowed(server="s", host="a.test", port=443, **amounts)


def test_the_first_connection_is_an_event_at_once_and_the_others_are_added_up() -> None:
    tally = Tally("s")

    assert tally.add(HERE, connections=1) == allowed(connections=1)
    assert tally.add(HERE, sent=5) is None
    assert tally.add(HERE, connections=1, failed=1) is None
    assert tally.add(HERE, sent=2, received=9) is None
    assert tally.flush() == [allowed(connections=1, failed=1, sent=7, received=9)]


def test_what_goes_on_is_one_event_an_interval() -> None:
    tally = Tally("s")
    tally.add(HERE, connections=1)
    tally.add(HERE, sent=1)
    tally.flush()

    assert tally.add(HERE, connections=1) is None
    assert tally.flush() == [allowed(connections=1)]


def test_a_name_that_was_silent_for_an_interval_is_an_event_at_once_again() -> None:
    tally = Tally("s")
    tally.add(HERE, connections=1)

    assert tally.flush() == []
    assert tally.add(HERE, connections=1) == allowed(connections=1)


def test_nothing_is_counted_of_nothing() -> None:
    tally = Tally("s")
    tally.add(HERE, connections=1)
    tally.add(HERE, sent=0)

    assert tally.flush() == []


def test_a_refusal_has_its_reason_and_is_not_mixed_with_another() -> None:
    tally = Tally("s")
    one, other = (
        EgressRefused(server="s", host=host, port=port, reason=reason, attempts=1)
        for (host, port), reason in ((HERE, "private"), (NOBODY, "invalid"))
    )

    assert tally.add(HERE, "private", attempts=1) == one
    assert tally.add(NOBODY, "invalid", attempts=1) == other
    assert tally.add(HERE, connections=1) == allowed(connections=1)


def test_a_flood_of_names_is_added_up_under_one() -> None:
    tally = Tally("s")
    for n in range(1000):
        tally.add(Target(f"{n}.test", 443), "unlisted", attempts=1)
    events = tally.flush()

    assert len(events) == 1
    assert events[0] == EgressRefused(
        server="s", host=OTHERS.host, port=0, reason="unlisted", attempts=999 - NAMES
    )
