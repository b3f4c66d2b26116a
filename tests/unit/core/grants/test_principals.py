"""Tokens of a host, their form and their digest; and what a principal may see."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.grants.principals import (
    SCOPES,
    Callers,
    Principal,
    Scope,
    Token,
    is_agent_pattern,
    is_tenant,
    scopes_in,
)
from caxton_host.core.log.events import Recorded
from tests.unit.store.fakes import FakeEntropy


def test_token_is_read_back_from_its_text() -> None:
    token = Token.new(FakeEntropy())

    assert Token.parse(token.text) == token
    assert len(token.secret) == 43
    assert len(bytes.fromhex(token.id)) == 8


def test_no_two_tokens_are_alike() -> None:
    random = FakeEntropy()
    one, other = Token.new(random), Token.new(random)

    assert one.id != other.id
    assert one.secret != other.secret


def test_only_a_digest_of_the_secret_is_kept() -> None:  # law 8
    token = Token.new(FakeEntropy())

    assert token.digest == hashlib.sha256(token.secret.encode()).hexdigest()
    assert token.secret not in repr(token)
    assert token.secret not in token.digest


def test_token_fits_its_own_digest_and_no_other() -> None:
    # attack 40
    random = FakeEntropy()
    token, other = Token.new(random), Token.new(random)

    assert token.fits(token.digest)
    assert not token.fits(other.digest)
    assert not token.fits("")
    assert not token.fits(None)


def test_time_of_a_comparison_tells_nothing_of_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # attack 40
    token, compared = Token.new(FakeEntropy()), list[tuple[bytes, bytes]]()
    monkeypatch.setattr(hmac, "compare_digest", lambda *two: compared.append(two))

    assert not token.fits(None)
    assert not token.fits("a")
    digests = [token.digest.encode()] * 2
    assert [one for one, _ in compared] == digests


def test_digest_of_nothing_lets_nobody_in() -> None:
    assert not Token(id="0" * 16, secret="").fits("0" * 64)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "caxton_",
        "caxton_0011223344556677_",
        "caxton_0011223344556677_" + 42 * "x",
        "caxton_0011223344556677_" + 44 * "x",
        "caxton_0011223344556677_" + 42 * "x" + "\n",
        "caxton_001122334455667G_" + 43 * "x",
        "CAXTON_0011223344556677_" + 43 * "x",
        "caxton_0011223344556677-" + 43 * "x",
        " caxton_0011223344556677_" + 43 * "x",
    ],
)
def test_what_only_looks_like_a_token_is_none(text: str) -> None:
    assert Token.parse(text) is None


@pytest.mark.parametrize("text", ["", "a/b", "[a-z]", "a?", "a b", "a\n", 65 * "a"])
def test_pattern_of_agents_has_no_other_sign_than_the_star(text: str) -> None:
    assert not is_agent_pattern(text)


def test_only_an_admin_sees_the_position_of_an_event() -> None:
    event = Recorded(
        position=7,
        stream="run/1",
        seq=1,
        type="RunStarted",
        schema_version=1,
        recorded_at=0,
        trace_id=None,
        span_id=None,
        hash=b"",
        event=None,
    )

    def position(scope: Scope) -> int:
        ann = Principal(kind="token", id="t", scopes=frozenset({scope}))
        return ann.shown(event).position

    assert (position("admin"), position("read")) == (7, 0)


def test_an_access_token_is_kept_for_its_principal_as_long_as_it_asks() -> None:
    callers = Callers()
    old = Principal(kind="oauth", id="ann", scopes=frozenset(), token="an old token")  # noqa: S106 -- made up
    new = Principal(kind="oauth", id="ann", scopes=frozenset(), token="a new token")  # noqa: S106 -- made up
    assert old == new
    assert old.token not in repr(old)  # law 8
    with callers.kept(old):
        with callers.kept(new):
            assert callers.token(new.key) == new.token
            assert callers.token("oauth/bob") == callers.token("token/ann") == ""
        assert callers.token("oauth/ann") == old.token
    assert callers.token("oauth/ann") == ""


SUBJECTS = st.text(st.sampled_from("@/abo"), min_size=1, max_size=8)
TENANTS = st.none() | st.sampled_from(["a", "oauth", "token", "b.c"])


@given(*(st.tuples(TENANTS, st.sampled_from(["oauth", "token"]), SUBJECTS),) * 2)
def test_no_two_principals_have_one_key(
    one: tuple[str | None, str, str], other: tuple[str | None, str, str]
) -> None:
    first, second = (
        Principal(kind=kind, id=name, scopes=frozenset({"run"}), tenant=tenant)
        for tenant, kind, name in (one, other)
    )

    assert (first.key == second.key) is (one == other)
    assert first.is_actor(second.actor) is (one == other)


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_of_another_tenant_is_seen_with_any_scope(scope: Scope) -> None:
    run: dict[str, JSON] = {"kind": "oauth", "id": "ann", "tenant": "acme"}
    own = Principal(kind="oauth", id="ann", scopes=frozenset({scope}), tenant="acme")

    assert own.sees("weather", run)
    assert replace(own, tenant=None).sees("weather", run) is (scope != "run")
    assert not replace(own, tenant="globex").sees("weather", run)
    assert not own.sees("weather", {"kind": "oauth", "id": "ann"})


def test_a_tenant_has_no_say_about_the_host() -> None:
    boss = Principal(kind="token", id="b", scopes=frozenset({"admin"}), tenant="acme")

    assert not boss.may("admin")
    assert not boss.may("auditor")
    assert not boss.reads_all
    assert boss.may("admin", "weather")
    assert boss.may("decide")


def test_an_auditor_reads_and_does_nothing_else() -> None:
    auditor = Principal(kind="token", id="a", scopes=scopes_in(["auditor", "run"]))

    assert {scope for scope in SCOPES if auditor.may(scope)} == {"read", "auditor"}
    assert auditor.reads_all
    assert not auditor.owns(auditor.actor)


@pytest.mark.parametrize("scope", ["read", "auditor", "admin"])
def test_who_has_some_agents_does_not_read_all(scope: Scope) -> None:
    some = Principal(
        kind="token", id="a", scopes=frozenset({scope}), agents=("bank-*",)
    )

    assert not some.reads_all
    assert replace(some, agents=("*",)).reads_all


@pytest.mark.parametrize("text", ["", "-a", "a/b", "a b", "@a", "a\n", "a" * 65, "é"])
def test_what_is_no_name_of_a_tenant(text: str) -> None:
    assert not is_tenant(text)
