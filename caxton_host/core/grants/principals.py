"""
Callers over the network: their tokens, scopes, agents and tenants.

A scope says what a principal may do; its agents say with which of them, and its tenant
whose runs. A run that a principal may not see looks to it as if it did not exist.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, Self, TypeAlias

from ..calls import JSON
from ..log.events import Recorded

Scope: TypeAlias = Literal["run", "read", "decide", "auditor", "admin"]

#: Each scope, with its description.
SCOPES: Mapping[Scope, str] = {
    "run": "start agents; see, cancel, resume and fork the runs that it started",
    "read": "see the runs of everybody, and their events",
    "decide": "see the runs of everybody, approve and deny calls, and resolve those "
    "in doubt",
    "auditor": "read everything, freezes, servers and the host's events too; change "
    "nothing",
    "admin": "all of it; servers, tools, tokens, erasure and the configuration too",
}

#: The scopes that include each scope.
_INCLUDED_IN: Mapping[Scope, frozenset[Scope]] = {
    "run": frozenset({"run", "admin"}),
    "read": frozenset({"read", "auditor", "admin"}),
    "decide": frozenset({"decide", "admin"}),
    "auditor": frozenset({"auditor", "admin"}),
    "admin": frozenset({"admin"}),
}
#: Without an agent, they concern the host, and are for principals without a tenant.
_OF_HOST: frozenset[Scope] = frozenset({"auditor", "admin"})

#: In place of the scopes of a token: it is good for the sessions that its agents name,
#: and for nothing else.
SESSION: Literal["session"] = "session"
TokenScope: TypeAlias = Scope | Literal["session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """
    An authenticated caller, or the local user.

    Attributes:
        kind: ``local``, ``token`` or ``oauth``.

        id: Its id within its kind: of a user, a token or a subject.

        authenticated: Whether the id was verified.

        scopes: What it may do.

        agents: The agents it may use: names, with ``*`` for any characters.

        roles: The roles in which it may approve calls.

        sessions: The sessions whose client it may be. No scope includes that.

        token: Its access token, if an authorization server issued it. Never recorded.

        claims: What its token says of it, if an authorization server issued it.

        tenant: What other tenants have does not exist for it; ``None``: it is an
            operator of the host, and sees what all have.

        signed_in_at: When the person signed in, in microseconds since 1970; ``None``:
            nothing says so. A token of a host alone is no sign-in.

    >>> ann = Principal(kind="token", id="t1", scopes=frozenset({"run"}))
    >>> ann.may("run", "weather"), ann.may("read", "weather")
    (True, False)
    >>> ann.key
    'token/t1'
    >>> replace(ann, tenant="acme").key
    '@acme/token/t1'
    """

    kind: str
    id: str
    authenticated: bool = True
    scopes: frozenset[Scope]
    agents: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    token: str = field(default="", repr=False, compare=False)
    claims: Mapping[str, JSON] = field(
        default_factory=dict[str, JSON], repr=False, compare=False
    )
    tenant: str | None = None
    signed_in_at: int | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Its key for quotas and stored values."""
        return named(self.actor)

    @property
    def actor(self) -> dict[str, JSON]:
        """The actor in events."""
        actor: dict[str, JSON] = {
            "kind": self.kind,
            "id": self.id,
            "authenticated": self.authenticated,
        }
        return actor if self.tenant is None else {**actor, "tenant": self.tenant}

    def may(self, scope: Scope, agent: str | None = None) -> bool:
        """
        Return whether it has a scope: for that agent, or else for the host.

        >>> boss = Principal(kind="", id="", scopes=frozenset({"admin"}), tenant="acme")
        >>> boss.may("admin", "weather"), boss.may("admin"), boss.may("run")
        (True, False, True)
        """
        if not self.scopes & _INCLUDED_IN[scope]:
            return False
        if agent is None:
            return self.tenant is None or scope not in _OF_HOST
        return self.reaches(agent)

    def reaches(self, agent: str) -> bool:
        """Return whether it may use an agent."""
        return any(fnmatchcase(agent, pattern) for pattern in self.agents)

    def covers(self, pattern: str) -> bool:
        """
        Return whether it may use every agent that a pattern means.

        >>> ann = Principal(kind="", id="", scopes=frozenset(), agents=("bank-*",))
        >>> ann.covers("bank-eu-*"), ann.covers("bank*"), ann.covers("*")
        (True, False, False)
        """
        # A star of the pattern is matched by a star only, not by one character.
        is_open = "*" in pattern
        return any(
            fnmatchcase(pattern, own)
            for own in self.agents
            if not (is_open and {*"?["} & {*own})
        )

    def opens(self, session: str) -> bool:
        """Return whether it may be the client of a session."""
        return session in self.sessions or self.kind == "local"

    @property
    def is_client(self) -> bool:
        """Whether it may be the client of sessions, and nothing else."""
        return bool(self.sessions) and not self.scopes

    @property
    def reads_all(self) -> bool:
        """Whether it may read the runs of every agent and tenant."""
        return self.tenant is None and "*" in self.agents and self.may("read")

    def sees(self, agent: str, actor: Mapping[str, JSON]) -> bool:
        """Return whether it may read a run of *agent* that *actor* started."""
        if self.tenant is not None and self.tenant != actor.get("tenant"):
            return False
        return self.may("read", agent) or self.may("decide", agent) or self.owns(actor)

    @property
    def limits(self) -> dict[str, Any]:
        """What a `RunFilter` has to say so that few are found that it may not see."""
        found: dict[str, Any] = {"tenant": self.tenant}
        reads = self.may("read") or self.may("decide")
        if reads and any(set(agent) & set("*?[") for agent in self.agents):
            return found  # Patterns are compared with each run.
        return found | {"agents": self.agents if reads else (), "owner": self.id}

    def shown(self, recorded: Recorded) -> Recorded:
        """Return an event without its position, which would count events of others."""
        return recorded if self.may("auditor") else replace(recorded, position=0)

    def owns(self, actor: Mapping[str, JSON]) -> bool:
        """Return whether it started the run of *actor*."""
        return self.may("run") and self.is_actor(actor)

    def is_actor(self, actor: Mapping[str, JSON]) -> bool:
        """Return whether it is *actor*."""
        return named(actor) == self.key


def named(actor: Mapping[str, JSON]) -> str:
    """
    Return what tells an actor from others: kind and id, with its tenant before them.

    >>> named({"kind": "oauth", "id": "ann", "tenant": "acme"})
    '@acme/oauth/ann'
    """
    tenant = actor.get("tenant")
    name = f"{actor.get('kind')}/{actor.get('id')}"
    return name if tenant is None else f"@{tenant}/{name}"


def trust_domain(agent: str, actor: Mapping[str, JSON]) -> str:
    """
    Return what an agent's runs are kept apart by: itself, and the tenant they are for.

    Runs of one trust domain may share workers and the processes of tool servers.

    >>> trust_domain("clerk", {"kind": "oauth", "id": "ann", "tenant": "acme"})
    '@acme/clerk'
    """
    tenant = actor.get("tenant")
    return agent if tenant is None else f"@{tenant}/{agent}"


def scopes_in(words: Collection[str]) -> frozenset[Scope]:
    """
    Return the scopes among *words*; an auditor has no other.

    >>> scopes_in(["admin", "auditor", "email"])
    frozenset({'auditor'})
    """
    if "auditor" in words:
        return frozenset({"auditor"})
    return frozenset(scope for scope in SCOPES if scope in words)


class Callers:
    """The access tokens of principals, kept while their calls and runs last."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str]] = []

    @contextmanager
    def kept(self, who: Principal) -> Generator[None]:
        """Keep the access token of *who* in memory, if it has one."""
        one = who.key, who.token
        self._kept.append(one)
        try:
            yield
        finally:
            self._kept.remove(one)

    def token(self, key: str) -> str:
        """Return the newest token of the principal with that key, or ``""``."""
        return next((token for of, token in reversed(self._kept) if of == key), "")


#: The prefix lets secret scanners recognise a token.
PREFIX = "caxton_"

#: Accepted algorithms of JSON Web Tokens, with key type and curve. Algorithms with a
#: shared secret are not accepted: a verifier could sign.
SIGNATURES: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512"), ("RSA", None)),
    **dict.fromkeys(("PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}

_PATTERN = re.compile(r"[A-Za-z0-9_.*-]{1,64}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_FORM = re.compile(PREFIX + "([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_ID_SIZE, _SECRET_SIZE = 8, 32
#: Compared where there is no token, so that the time does not reveal that.
_NONE = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """
    A token of a caller. The store keeps its id and its digest only.

    Attributes:
        id: Its id; not secret.

        secret: The secret part.
    """

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls, random: Callable[[int], bytes]) -> Self:
        """Return a new token; *random* returns that many random bytes."""
        secret = base64.urlsafe_b64encode(random(_SECRET_SIZE)).rstrip(b"=")
        return cls(id=random(_ID_SIZE).hex(), secret=secret.decode())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """
        Parse a token; ``None``: *text* is not a token of a host.

        >>> Token.parse("caxton_0011223344556677_" + 43 * "x")
        Token(id='0011223344556677')
        """
        found = _FORM.fullmatch(text)
        return cls(id=found[1], secret=found[2]) if found else None

    @property
    def text(self) -> str:
        """The token as it is sent."""
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """SHA-256 of the secret, which the store keeps."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def fits(self, digest: str | None) -> bool:
        """Return whether *digest* matches, in constant time."""
        same = hmac.compare_digest(self.digest.encode(), (digest or _NONE).encode())
        return same and digest is not None


def digest_recorded(digest: str) -> str:
    """Return what an event records of the digest of a token, which it does not tell."""
    return hashlib.sha256(digest.encode()).hexdigest()


def is_agent_pattern(text: str) -> bool:
    """
    Return whether *text* is a pattern of agents: a name, ``*`` for any characters.

    >>> is_agent_pattern("bank-*"), is_agent_pattern("bank/[a-z]")
    (True, False)
    """
    return _PATTERN.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    """
    Return whether *text* can be the name of a tenant.

    >>> is_tenant("acme.eu"), is_tenant("acme/ann"), is_tenant("")
    (True, False, False)
    """
    return _TENANT.fullmatch(text) is not None
