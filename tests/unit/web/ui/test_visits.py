"""Cookies of people: who has one is checked again, and others cannot make one."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace

import pytest

from caxton_host.core.grants.principals import Principal
from caxton_host.testing import FakeClock
from caxton_host.web.edge.authentication import LocalIdentity, Unauthenticated
from caxton_host.web.edge.messages import Refusal
from caxton_host.web.ui.visits import IDLE_S, LONGEST_S, Visit, Visits, name_for
from tests.office import BOSS, Names, who

KEY = b"k" * 32
NAME = "caxton-0123456789ab.localhost"
SECOND = 1_000_000


def visits(clock: FakeClock | None = None, **more: object) -> Visits:
    told = {"key": KEY, "name": NAME, "others": frozenset({"host.test"}), **more}
    return Visits(
        identity=Names(),
        clock=clock or FakeClock(),
        local=Principal(kind="local", id="me", scopes=frozenset({"admin"})),
        **told,  # type: ignore[arg-type]  # a test says less
    )


def headers(cookie: str, host: str = f"{NAME}:8080") -> dict[str, list[str]]:
    return {"host": [host], "cookie": [cookie.partition(";")[0]]}


async def test_a_cookie_stands_for_the_credentials_it_was_given_for() -> None:
    here = visits()
    cookie = here.cookie(await here.begin("Bearer boss"))

    assert await here.principal(here.read(headers(cookie))) == BOSS
    assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= {*cookie.split("; ")}
    assert "Secure" not in cookie
    assert "boss" not in cookie


async def test_under_tls_a_cookie_is_for_tls_only() -> None:
    here = visits(secure=True)
    cookie = here.cookie(await here.begin("Bearer boss"))

    assert "; Secure" in cookie
    assert cookie.startswith("__Secure-")


async def test_who_has_no_good_token_gets_no_cookie() -> None:
    # law 4
    with pytest.raises(Unauthenticated):
        await visits().begin("Bearer nobody")


async def test_what_is_taken_away_counts_with_the_next_request() -> None:
    # law 4
    here = visits()
    visit = await here.begin("Bearer boss")
    here.identity = Names({})
    with pytest.raises(Unauthenticated):
        await here.principal(visit)


@pytest.mark.parametrize("seconds", [IDLE_S, LONGEST_S])
async def test_a_visit_ends_without_requests_and_in_the_end(seconds: int) -> None:
    clock = FakeClock()
    here = visits(clock)
    visit = await here.begin("Bearer boss")
    if seconds == LONGEST_S:
        visit = replace(visit, seen=visit.began + LONGEST_S)
    cookie = here.cookie(visit)
    clock.time += seconds * SECOND
    assert here.read(headers(cookie)) == visit
    clock.time += SECOND
    with pytest.raises(Unauthenticated):
        here.read(headers(cookie))


async def test_a_visit_that_is_used_is_renewed_but_not_begun_anew() -> None:
    clock = FakeClock()
    here = visits(clock)
    visit = await here.begin("Bearer boss")
    assert here.renewed(visit) is None
    clock.time += 60 * SECOND
    again = here.renewed(visit)
    assert again is not None
    found = here.read(headers(again))
    assert (found.began, found.seen) == (visit.began, visit.began + 60)


async def test_who_was_signed_in_long_ago_stays_so_until_the_next_sign_in() -> None:
    # law 4
    clock = FakeClock()
    here = visits(clock)
    visit = await here.begin("Bearer boss")
    began = clock.time // SECOND * SECOND
    clock.time += 60 * SECOND
    again = here.read(headers(here.renewed(visit) or ""))
    linked = await here.enter(here.link("http://127.0.0.1:8080").rpartition("=")[2])

    assert (await here.principal(again)).signed_in_at == began
    assert (await here.principal(linked)).signed_in_at == began + 60 * SECOND


async def test_where_callers_need_no_token_a_visit_is_no_sign_in() -> None:
    # law 4
    here = visits()
    here.identity = LocalIdentity(Names())
    visit = await here.begin(None)
    assert (await here.principal(visit)).signed_in_at is None


async def test_a_copy_of_a_cookie_ends_with_the_sign_out() -> None:
    here = visits()
    visit = await here.begin("Bearer boss")
    cookie = here.cookie(visit)
    here.end(visit)
    with pytest.raises(Unauthenticated):
        here.read(headers(cookie))


async def test_cookies_are_taken_at_no_other_name_of_loopback() -> None:
    here = visits()
    cookie = here.cookie(await here.begin("Bearer boss"))

    for host in ("127.0.0.1:8080", "localhost:8080", "evil.localhost", ""):
        with pytest.raises(Unauthenticated):
            here.read(headers(cookie, host))
    assert here.read(headers(cookie, "host.test:443")).authorization == "Bearer boss"


async def test_every_changed_byte_of_a_cookie_makes_it_void() -> None:
    here = visits()
    name, _, value = here.cookie(await here.begin("Bearer boss")).partition("=")
    box = urlsafe_b64decode(value.partition(";")[0])
    for n in range(len(box)):
        changed = bytes([*box[:n], box[n] ^ 1, *box[n + 1 :]])
        with pytest.raises(Unauthenticated):
            here.read(headers(f"{name}={urlsafe_b64encode(changed).decode()}"))


@pytest.mark.parametrize(
    "value", ["", "x", "%00", "a" * 30_000, "ö", "=" * 40, '"quoted"']
)
def test_what_no_host_has_sealed_is_no_cookie(value: str) -> None:
    with pytest.raises(Unauthenticated):
        visits().read(headers(f"caxton={value}"))


async def test_the_cookie_of_another_machine_is_none() -> None:
    theirs = visits(key=b"x" * 32)
    cookie = theirs.cookie(await theirs.begin("Bearer boss"))
    with pytest.raises(Unauthenticated):
        visits().read(headers(cookie))


async def test_a_link_signs_in_once_and_ends_with_its_host() -> None:
    here = visits()
    code = here.link("http://127.0.0.1:8080").rpartition("=")[2]

    visit = await here.enter(code)

    assert (await here.principal(visit)).kind == "local"
    for used in (code, "", "x"):
        with pytest.raises(Unauthenticated):
            await here.enter(used)
    with pytest.raises(Unauthenticated):
        await visits().principal(visit)


def test_a_link_leads_to_the_name_of_the_pages() -> None:
    link = visits().link("http://127.0.0.1:8080")
    assert link.startswith(f"http://{NAME}:8080/ui/link?code=")
    assert visits(name="").link("https://a.test").startswith("https://a.test/ui/link")


async def test_a_token_of_a_session_opens_no_pages() -> None:
    # law 4
    here = visits()
    client = replace(who("client"), scopes=frozenset(), sessions=("a",))
    here.identity = Names({"client": client})
    with pytest.raises(Unauthenticated):
        await here.begin("Bearer client")


async def test_a_form_is_of_one_visit() -> None:
    here = visits()
    one, other = await here.begin("Bearer boss"), await here.begin("Bearer boss")
    here.check_form(one, here.form_token(one))
    for token in ("", here.form_token(other), "ö"):
        with pytest.raises(Refusal):
            here.check_form(one, token)


async def test_what_was_signed_out_of_takes_a_bounded_room() -> None:
    here = visits()
    visit = await here.begin("Bearer boss")
    for n in range(10_050):
        here.end(replace(visit, id=str(n)))
    assert len(here._ended) == 10_000


def test_names_differ_by_port_and_key_and_stay() -> None:
    found = {name_for(key, port) for key in (KEY, b"x" * 32) for port in (1, 2)}
    assert len(found) == 4
    assert name_for(KEY, 1) in found


def test_credentials_are_not_shown() -> None:
    visit = Visit(authorization="Bearer secret", id="id-secret", began=1, seen=1)
    assert "secret" not in repr(visit)
