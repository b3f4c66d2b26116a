"""Tokens: nobody makes one that may more, or lasts longer, than their own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from caxton_host.config import Config
from caxton_host.core.grants.principals import SESSION, Principal
from caxton_host.errors import ForbiddenError
from caxton_host.ports.serving import TokenRow
from caxton_host.service.token_making import Wanted, check_strength, make
from tests.office import who

ADMIN = replace(
    who("lea", "admin", agents=("bank-*", "w?")), roles=("ops",), sessions=("dev",)
)
HOUR = 3600 * 1_000_000
WEAK = TokenRow(
    id="0",
    name="",
    digest="",
    scopes=("run",),
    agents=("bank-1",),
    created_at=0,
    expires_at=HOUR,
)
OWN = replace(WEAK, id="lea", scopes=("admin",))


@pytest.mark.parametrize(
    ("more", "stronger"),
    [
        ({}, ""),
        ({"scopes": ("run", "read", "decide", "admin")}, ""),
        ({"scopes": ("auditor",)}, ""),
        ({"agents": ("bank-*", "bank-eu-*", "w1")}, ""),
        ({"agents": ("*",)}, "agents"),
        ({"agents": ("w*",)}, "agents"),
        ({"agents": ("bank*",)}, "agents"),
        ({"roles": ("ops",)}, ""),
        ({"roles": ("ops", "finance")}, "roles"),
        ({"scopes": (SESSION,), "agents": ("dev",)}, ""),
        ({"scopes": (SESSION,), "agents": ("prod",)}, "sessions"),
        ({"expires_at": HOUR + 1}, "longer than yours"),
        ({"expires_at": None}, "longer than yours"),
    ],
)
def test_a_token_may_no_more_and_lasts_no_longer_than_who_makes_it(
    more: dict[str, Any], stronger: str
) -> None:
    # law 4
    row = replace(WEAK, **more)
    if not stronger:
        check_strength(ADMIN, OWN, row)
        return
    with pytest.raises(ForbiddenError, match=stronger):
        check_strength(ADMIN, OWN, row)


def test_who_lacks_a_scope_gives_none() -> None:
    # law 4
    for scope in ("run", "read", "decide", "auditor"):
        other = who("x", scope)
        for given in ("run", "read", "decide", "auditor", "admin"):
            row = replace(WEAK, scopes=(given,))
            if other.may(given):
                check_strength(other, None, row)
            else:
                with pytest.raises(ForbiddenError, match="scopes"):
                    check_strength(other, None, row)


def test_the_local_user_may_what_the_command_line_may() -> None:
    me = Principal(kind="local", id="me", scopes=frozenset({"admin"}))
    check_strength(me, None, replace(WEAK, roles=("ops",), expires_at=None))


def test_a_token_for_ever_has_no_end_and_its_secret_is_not_in_its_row() -> None:
    # law 8
    wanted = Wanted(name="a", scopes=("run", "run"), seconds=math.inf)
    token, row = make(wanted, Config(store_url="memory"), 7, bytes)

    assert (row.expires_at, row.scopes, row.created_at) == (None, ("run",), 7)
    assert token.fits(row.digest)
    assert token.secret not in repr(row)
