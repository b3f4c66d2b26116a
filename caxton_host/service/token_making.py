"""Tokens of callers: what one may be for, and that nobody makes one that may more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..config import Config
from ..config.fields import parse_duration
from ..core.calls import JSON
from ..core.grants.principals import (
    SESSION,
    Principal,
    Token,
    TokenScope,
    is_agent_pattern,
    is_tenant,
)
from ..core.names import nearest
from ..core.text.redact import Redactor
from ..errors import ForbiddenError, UsageError
from ..ports.serving import TokenRow

_LONGEST_NAME = 64
_MOST_YEARS = 100
_YEAR = 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    What a token is to be.

    Attributes:
        session: The session that it is for, instead of scopes.

        seconds: How long it lasts; may be infinite.
    """

    name: str = ""
    scopes: tuple[TokenScope, ...] = ()
    agents: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()
    tenant: str | None = None
    session: str | None = None
    seconds: float


def lifetime(text: str) -> float:
    """
    Return how long a token lasts, in seconds.

    >>> lifetime("12h"), lifetime("never")
    (43200.0, inf)

    Raises:
        UsageError: It is no such time.
    """
    if text == "never":
        return math.inf
    seconds = parse_duration(text)
    if not seconds:
        raise UsageError(f"{text!r} is not like 12h, 30d or never", fix="write 90d")
    if seconds > _MOST_YEARS * _YEAR:
        raise UsageError(f"that is more than {_MOST_YEARS} years", fix="write never")
    return seconds


def check_wanted(wanted: Wanted, config: Config) -> None:
    """
    Check what a token is to be, against the configuration.

    Raises:
        UsageError: It would be for nothing, or for what does not exist.
    """
    if len(wanted.name) > _LONGEST_NAME or not wanted.name.isprintable():
        raise UsageError(
            "the name is too long, or has characters that cannot be shown",
            fix=f"choose one of at most {_LONGEST_NAME} letters",
        )
    if wanted.tenant is not None and not is_tenant(wanted.tenant):
        raise UsageError(
            f"--tenant {wanted.tenant[:80]!r} is not the name of a tenant",
            fix="write at most 64 letters, digits and . _ : - only",
        )
    if wanted.session is None:
        _check_scopes(wanted.scopes)
        _check_agents(wanted.agents, config)
        _check_roles(wanted.roles, wanted.scopes, config)
        return
    if wanted.scopes or wanted.roles or wanted.agents != ("*",):
        raise UsageError(
            "a token for a session has no scopes, agents or roles",
            fix=f"caxton serve token create --session {wanted.session}",
        )
    if wanted.session not in config.sessions:
        raise UsageError(
            f"there is no session {wanted.session!r}",
            fix=_meant(
                wanted.session,
                config.sessions,
                "add [sessions.NAME] to caxton.toml first",
            ),
        )


def make(
    wanted: Wanted, config: Config, now: int, random: Callable[[int], bytes]
) -> tuple[Token, TokenRow]:
    """Return a new token, and what is stored of it."""
    token, of_session = Token.new(random), wanted.session is not None
    lasts = None if wanted.seconds == math.inf else now + int(wanted.seconds * 1e6)
    return token, TokenRow(
        id=token.id,
        name=Redactor(config.secrets).text(wanted.name),
        digest=token.digest,
        scopes=(SESSION,) if of_session else tuple(dict.fromkeys(wanted.scopes)),
        agents=(wanted.session,)
        if wanted.session is not None
        else tuple(dict.fromkeys(wanted.agents)),
        roles=tuple(dict.fromkeys(wanted.roles)),
        created_at=now,
        expires_at=lasts,
        tenant=wanted.tenant,
    )


def check_strength(who: Principal, own: TokenRow | None, row: TokenRow) -> None:
    """
    Check that a token may no more than who makes it, and no longer.

    The local user may all that the command line may.

    Args:
        who: Makes it.

        own: Their token, if they have one of this host.

        row: The token.

    Raises:
        ForbiddenError: It is stronger.
    """
    if who.kind == "local":
        return
    new = row.bearer
    ends = own.expires_at if own else None
    if {*new.scopes} - {scope for scope in new.scopes if who.may(scope)}:
        _stronger("scopes")
    if not all(map(who.covers, new.agents)):
        _stronger("agents")
    if not {*new.roles} <= {*who.roles}:
        _stronger("roles")
    if not all(map(who.opens, new.sessions)):
        _stronger("sessions")
    if ends is not None and (row.expires_at is None or row.expires_at > ends):
        raise ForbiddenError(
            "the token would last longer than yours",
            fix="choose an earlier end, or use caxton serve token create on the host",
        )


def _stronger(what: str) -> None:
    raise ForbiddenError(
        f"the token would have {what} that yours does not have",
        fix="leave them out, or use caxton serve token create on the host",
    )


def token_document(row: TokenRow, now: int) -> dict[str, JSON]:
    """Return the ``caxton.token/v1`` document of a token, without its secret."""
    return {
        "$type": "caxton.token/v1",
        "id": row.id,
        "name": row.name,
        "scopes": [*row.scopes],
        "agents": [*row.agents],
        "roles": [*row.roles],
        "tenant": row.tenant,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "state": token_state(row, now),
    }


def token_state(row: TokenRow, now: int) -> str:
    """Return ``good``, ``expired`` or ``revoked``."""
    if row.revoked_at is not None:
        return "revoked"
    is_over = row.expires_at is not None and row.expires_at <= now
    return "expired" if is_over else "good"


def _check_scopes(scopes: tuple[TokenScope, ...]) -> None:
    if not scopes:
        raise UsageError(
            "the token would allow nothing", fix="add --scope run, or --session NAME"
        )
    if "auditor" in scopes and len({*scopes}) > 1:
        raise UsageError("an auditor has no other scope", fix="create two tokens")


def _check_agents(patterns: tuple[str, ...], config: Config) -> None:
    for pattern in patterns:
        if not is_agent_pattern(pattern):
            raise UsageError(
                f"--agent {pattern!r} is no name of an agent",
                fix="write a name, with * for any characters",
            )
        who = Principal(kind="", id="", scopes=frozenset(), agents=(pattern,))
        if pattern != "*" and not any(map(who.reaches, config.agents)):
            raise UsageError(
                f"--agent {pattern!r} means no agent",
                fix=_meant(pattern, config.agents, "add it under [agents] first"),
            )


def _check_roles(
    roles: tuple[str, ...], scopes: tuple[TokenScope, ...], config: Config
) -> None:
    known = {
        role
        for agent in config.agents.values()
        for rule in agent.grant.allow
        if rule.approve
        for role in rule.approve.by
    }
    for role in roles:
        if role not in known:
            raise UsageError(
                f"--role {role!r} is in no rule",
                fix=_meant(role, known, 'add approve = { by = ["ROLE"] } to a rule'),
            )
    if roles and not {"decide", "admin"}.intersection(scopes):
        raise UsageError(
            "a role is for approvals, and this token gives none",
            fix="add --scope decide",
        )


def _meant(word: str, known: Iterable[str], otherwise: str) -> str:
    names = sorted(known)
    if not names:
        return otherwise
    close = nearest(word, names)
    return f"did you mean {close}?" if close else f"known are: {', '.join(names)}"
