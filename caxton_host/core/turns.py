"""
Fair shares of a queue: the order of jobs of one priority class.

Each job of a tenant gets the turn behind its last one, but none before the head of the
queue. So tenants alternate however many jobs one of them has, and one that comes late
neither waits for a backlog nor makes up for the time before.

    queued by a: 1 2 3 4 5    claimed: 1 2 3
    queued by b: 3 4          the order is then: a3 b3 a4 b4 a5
"""

from __future__ import annotations


def sharer_of(who: str) -> str:
    """
    Return who shares the places with others: the tenant of a principal, or itself.

    Args:
        who: The key of the principal.

    >>> sharer_of("token/t1"), sharer_of("@acme/token/t1")
    ('token/t1', '@acme')
    """
    return who.partition("/")[0] if who.startswith("@") else who


#: Turns in a class; those beyond share the last one.
MOST = 10_000_000

#: The lowest and the highest class.
CLASSES = -100, 100


def turn_behind(head: int | None, last: int | None) -> int:
    """
    Return the turn of the next job of a tenant.

    Args:
        head: The turn of the next job of the class; ``None``: there is none.

        last: The turn of the last one of this tenant that waits; ``None``: none does.

    >>> turn_behind(None, None), turn_behind(3, None), turn_behind(3, 5)
    (1, 3, 6)
    """
    return min(max(head or 1, (last or 0) + 1), MOST)


def rank(priority: int, turn: int) -> int:
    """
    Return the place of a job as one number of 32 bits: the highest comes first.

    >>> rank(1, 2_000_000) > rank(0, 1) > rank(0, 2)
    True
    """
    return priority * MOST - turn


def turn_of(place: int) -> int:
    """
    Return the turn that `rank` put into a number.

    >>> [turn_of(rank(priority, 7)) for priority in (-100, 0, 100)]
    [7, 7, 7]
    """
    return -place % MOST
