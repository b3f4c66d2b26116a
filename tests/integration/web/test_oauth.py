"""Access tokens of an authorization server, good ones and hostile ones."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from caxton_host.config import OAuth, Serve
from caxton_host.core.grants.principals import SIGNATURES, Principal, Scope, Token
from caxton_host.lib.http import Client
from caxton_host.store.memory import MemoryStore
from caxton_host.web.edge import issuer as issuers
from caxton_host.web.edge.authentication import Unauthenticated, identity_of
from tests.unit.store.fakes import FakeClock, FakeEntropy

from ..webhooks.conftest import Server

Key: TypeAlias = (
    rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
)

NOW = 1_800_000_000
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Key, algorithm: str, kid: str, **more: object) -> dict[str, Any]:
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "use": "sig", **more}


PUBLISHED = [
    jwk(RSA, "RS256", "r", alg="RS256"),
    jwk(EC, "ES256", "e"),
    jwk(ED, "EdDSA", "o"),
]


@dataclass
class Issuer:
    """An authorization server, and what knows its tokens."""

    server: Server
    client: Client
    published: list[dict[str, Any]] = field(default_factory=lambda: [*PUBLISHED])
    answers: dict[str, Any] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW * 1_000_000))

    def __post_init__(self) -> None:
        self.server.script = self._script
        self.oauth = OAuth(
            issuer=self.server.url, audience="https://a.test/mcp", algorithms=ALL
        )
        self.answers |= {
            "/.well-known/openid-configuration": {
                "issuer": self.server.url,
                "jwks_uri": f"{self.server.url}/keys",
            }
        }
        self.renew()

    def renew(self, **changed: object) -> None:
        """Know nothing yet, by another configuration."""
        given: dict[str, Any] = {
            "issuer": self.oauth.issuer,
            "audience": self.oauth.audience,
        }
        given |= {"algorithms": self.oauth.algorithms, "jwks": self.oauth.jwks}
        self.oauth = OAuth(**given | changed)
        self.store = MemoryStore(clock=self.clock, entropy=FakeEntropy())
        self.identity = identity_of(
            Serve(oauth=self.oauth), self.store.tokens, self.clock, self.client
        )

    async def _script(self, writer: asyncio.StreamWriter) -> None:
        path = self.asked[-1]
        body = {"keys": self.published} if path == "/keys" else self.answers.get(path)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status = "200 OK" if body is not None else "404 Not Found"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        )
        writer.write(data)
        await writer.drain()

    @property
    def asked(self) -> list[str]:
        return [head.split(" ")[1] for head, _ in self.server.requests]

    def token(
        self,
        key: Key = EC,
        algorithm: str = "ES256",
        head: dict[str, Any] | None = None,
        **claims: object,
    ) -> str:
        said = {
            "iss": self.server.url,
            "aud": "https://a.test/mcp",
            "sub": "ann",
            "exp": NOW + 60,
            "scope": "caxton:run openid",
        } | claims
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, key, algorithm, {"kid": "e"} if head is None else head)

    async def who(self, token: str) -> Principal:
        return await self.identity.principal(f"Bearer {token}")

    async def refusal(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as found:
            await self.who(token)
        assert 'error="invalid_token"' in found.value.challenge
        assert "resource_metadata=" in found.value.challenge
        assert token not in f"{found.value!r} {found.value.challenge}"  # law 8
        return str(found.value)


ALL = ("RS256", "ES256", "EdDSA")


@pytest.fixture
def issuer(server: Server, client: Client) -> Issuer:
    return Issuer(server, client)


def raw(head: dict[str, Any], claims: bytes, signature: bytes = b"") -> str:
    parts = (json.dumps(head).encode(), claims, signature)
    return ".".join(base64.urlsafe_b64encode(p).rstrip(b"=").decode() for p in parts)


# -- good ones -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "o")],
)
async def test_whoever_has_a_good_token_is_its_subject(
    key: Key, algorithm: str, kid: str, issuer: Issuer
) -> None:
    who = await issuer.who(issuer.token(key, algorithm, {"kid": kid}))

    assert (who.kind, who.id, who.authenticated) == ("oauth", "ann", True)
    assert who.scopes == {"run"}
    assert (who.agents, who.roles) == (("*",), ())
    assert who.claims["sub"] == "ann"
    assert "claims" not in repr(who)


@pytest.mark.parametrize(
    ("claims", "scopes", "agents", "roles"),
    [
        ({"scope": "run read"}, {"run", "read"}, ("*",), ()),
        ({"scope": None, "scp": ["caxton:decide"]}, {"decide"}, ("*",), ()),
        ({"scope": None, "scp": "admin"}, {"admin"}, ("*",), ()),
        ({"scope": None}, set(), ("*",), ()),
        ({"scope": "caxton:caxton:run Run admin2"}, set(), ("*",), ()),
        ({"scope": {"run": True}}, set(), ("*",), ()),
        ({"agents": ["weather", "bank*"]}, {"run"}, ("weather", "bank*"), ()),
        ({"agents": "weather bank*"}, {"run"}, ("weather", "bank*"), ()),
        ({"agents": []}, {"run"}, (), ()),
        ({"agents": {}}, {"run"}, (), ()),
        ({"roles": ["finance", "a/b", 7]}, {"run"}, ("*",), ("finance", "7")),
    ],
)
async def test_what_it_may_is_what_its_claims_say(
    claims: dict[str, Any],
    scopes: set[Scope],
    agents: tuple[str, ...],
    roles: tuple[str, ...],
    issuer: Issuer,
) -> None:
    who = await issuer.who(issuer.token(**claims))

    assert (who.scopes, who.agents, who.roles) == (
        frozenset(scopes),
        agents,
        roles,
    )


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (NOW - 60, NOW - 60),
        (NOW - 0.5, NOW - 0.5),
        (NOW + 20, NOW),
        *((odd, None) for odd in (NOW + 40, 10**400, -1, float("nan"))),
        *((odd, None) for odd in (float("inf"), float("-inf"), True)),
        *((odd, None) for odd in ("1", "soon")),
        (None, None),
        ({}, None),
    ],
)
async def test_it_signed_in_when_its_issuer_says_if_that_can_be(
    said: object, known: float | None, issuer: Issuer
) -> None:
    # law 4
    who = await issuer.who(issuer.token(auth_time=said))
    at = who.signed_in_at
    assert (None if at is None else at / 1e6) == known


@pytest.mark.parametrize(
    ("scope", "sessions", "scopes"),
    [
        ("caxton:session:dev", ("dev",), set()),
        ("session:ops session:dev", ("dev", "ops"), set()),
        ("session:dev run", ("dev",), {"run"}),
        ("session admin", (), {"admin"}),
    ],
)
async def test_its_scopes_name_the_sessions_that_it_opens(
    scope: str, sessions: tuple[str, ...], scopes: set[Scope], issuer: Issuer
) -> None:
    who = await issuer.who(issuer.token(scope=scope))

    assert (who.sessions, who.scopes) == (sessions, frozenset(scopes))
    assert who.is_client == (not scopes)
    assert not who.opens("other")


@pytest.mark.parametrize("claim", ["org", "https://id.test/org"])
async def test_its_tenant_is_what_the_configured_claim_says(
    claim: str, issuer: Issuer
) -> None:
    issuer.renew(tenant_claim=claim)
    claims: dict[str, Any] = {claim: "acme"}
    who = await issuer.who(issuer.token(**claims))

    assert (who.tenant, who.key) == ("acme", "@acme/oauth/ann")
    assert who.actor["tenant"] == "acme"


@pytest.mark.parametrize("said", [None, "", "a/b", "@acme", ["acme"], {}, 7, "a" * 65])
async def test_who_names_no_tenant_is_not_let_in_where_tenants_are(
    said: object, issuer: Issuer
) -> None:  # law 4: without a tenant it would see what all have
    issuer.renew(tenant_claim="org")

    assert await issuer.refusal(issuer.token(org=said)) == "it names no tenant"


async def test_a_claim_that_is_not_configured_is_no_tenant(issuer: Issuer) -> None:
    assert (await issuer.who(issuer.token(org="acme"))).tenant is None


async def test_an_auditor_has_no_other_scope(issuer: Issuer) -> None:
    who = await issuer.who(issuer.token(scope="caxton:auditor admin"))

    assert who.scopes == {"auditor"}


async def test_token_of_the_host_is_taken_as_well(issuer: Issuer) -> None:
    text = Token.new(FakeEntropy()).text

    assert await issuer.refusal(text) == "the token is unknown"
    assert issuer.asked == []


async def test_keys_are_asked_for_once(issuer: Issuer) -> None:
    await asyncio.gather(*(issuer.who(issuer.token()) for _ in range(10)))
    await issuer.who(issuer.token())

    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_key_needs_no_name_where_it_is_the_only_one(issuer: Issuer) -> None:
    assert (await issuer.who(issuer.token(head={}))).id == "ann"

    issuer.published.append(jwk(STRANGER, "ES256", "s"))
    issuer.renew()

    assert "key" in await issuer.refusal(issuer.token(head={}))


async def test_keys_can_be_where_the_operator_says(issuer: Issuer) -> None:
    issuer.renew(jwks=f"{issuer.server.url}/keys")

    assert (await issuer.who(issuer.token())).id == "ann"
    assert issuer.asked == ["/keys"]


async def test_metadata_can_be_those_of_an_authorization_server(
    issuer: Issuer,
) -> None:
    base = issuer.server.url
    found = issuer.answers.pop("/.well-known/openid-configuration")
    place = "/.well-known/oauth-authorization-server/realm"
    issuer.answers[place] = found | {"issuer": f"{base}/realm"}
    issuer.renew(issuer=f"{base}/realm")

    assert (await issuer.who(issuer.token(iss=f"{base}/realm"))).id == "ann"
    assert issuer.asked[0] == "/realm/.well-known/openid-configuration"
    assert issuer.asked[1] == place


async def test_new_key_is_found_and_old_ones_are_forgotten(issuer: Issuer) -> None:
    await issuer.who(issuer.token())
    issuer.published[:] = [jwk(STRANGER, "ES256", "new")]
    issuer.clock.time += 11_000_000

    assert (await issuer.who(issuer.token(STRANGER, head={"kid": "new"}))).id == "ann"
    assert "key" in await issuer.refusal(issuer.token())


# -- hostile ones --------------------------------------------------------------


CLAIMS = {"iss": "x", "aud": "https://a.test/mcp", "sub": "ann", "exp": NOW + 60}


async def test_token_that_nobody_signed_is_refused(issuer: Issuer) -> None:
    claims = json.dumps(CLAIMS | {"iss": issuer.server.url}).encode()

    for alg in ("none", "None", "NONE", "", None, ["ES256"], {"ES256": 1}, 1):
        token = raw({"alg": alg, "kid": "e"}, claims)
        assert "signature" in await issuer.refusal(token)
    for alg, kid in zip(ALL, "reo", strict=True):
        token = raw({"alg": alg, "kid": kid}, claims)
        assert "valid" in await issuer.refusal(token)


async def test_public_key_is_no_shared_secret(issuer: Issuer) -> None:
    claims = json.dumps(CLAIMS | {"iss": issuer.server.url}).encode()
    public = RSA.public_key()
    forms = [
        public.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
    ]

    for secret in [*forms, json.dumps(PUBLISHED[0]).encode(), b""]:
        signed = raw({"alg": "HS256", "kid": "r"}, claims).rpartition(".")[0]
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        token = raw({"alg": "HS256", "kid": "r"}, claims, mac)
        assert "signature" in await issuer.refusal(token)


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"aud": "https://b.test/mcp"}, "another service"),
        ({"aud": "https://a.test/mcp/"}, "another service"),
        ({"aud": ["https://b.test", "https://c.test"]}, "another service"),
        ({"aud": None}, "not valid"),
        ({"iss": "https://evil.test"}, "issuer"),
        ({"iss": None}, "not valid"),
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "not valid"),
        ({"exp": "tomorrow"}, "not valid"),
        ({"exp": True}, "not valid"),
        ({"exp": float("nan")}, "expired"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"nbf": []}, "not valid"),
        ({"iat": NOW + 31}, "not valid yet"),
        ({"sub": None}, "not valid"),
        ({"sub": ""}, "cannot be"),
        ({"sub": "a\nb"}, "cannot be"),
        ({"sub": "a\0b"}, "cannot be"),
        ({"sub": 256 * "a"}, "cannot be"),
        ({"sub": ["ann"]}, "not valid"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
        ({"agents": ["[a-z]"]}, "cannot be"),
        ({"agents": 101 * ["a"]}, "cannot be"),
        ({"agents": [None, {}]}, "cannot be"),
    ],
)
async def test_token_for_others_or_of_another_time_is_refused(
    claims: dict[str, Any], problem: str, issuer: Issuer
) -> None:
    assert problem in await issuer.refusal(issuer.token(**claims))


@pytest.mark.parametrize(
    "kind", ["logout+jwt", "dpop+jwt", "secevent+jwt", " ", 7, ["JWT"]]
)
async def test_what_was_signed_for_something_else_is_no_token(
    kind: object, issuer: Issuer
) -> None:
    token = issuer.token(head={"kid": "e", "typ": kind})

    assert "no access token" in await issuer.refusal(token)


@pytest.mark.parametrize("kind", ["JWT", "at+jwt", "AT+JWT", "application/at+jwt"])
async def test_kind_of_a_token_may_be_said(kind: str, issuer: Issuer) -> None:
    assert (await issuer.who(issuer.token(head={"kid": "e", "typ": kind}))).id == "ann"


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    token = issuer.token(exp=NOW - 29, nbf=NOW + 29, iat=NOW + 30)

    assert (await issuer.who(token)).id == "ann"


async def test_token_says_not_where_its_key_is(issuer: Issuer) -> None:
    evil = f"{issuer.server.url}/evil"
    own = jwk(STRANGER, "ES256", "e")
    issuer.answers["/evil"] = {"keys": [own]}

    for head in (
        {"kid": "e", "jku": evil},
        {"kid": "e", "x5u": evil},
        {"kid": "e", "jwk": own},
        {"kid": "e", "x5c": ["AAAA"]},
        {"kid": evil},
        {"kid": "../../etc/passwd"},
        {"kid": "e' OR 1=1 --"},
        {"kid": "e" * 5000},
    ):
        await issuer.refusal(issuer.token(STRANGER, head=head))

    assert "/evil" not in issuer.asked


@pytest.mark.parametrize("kid", [None, 7, ["e"], {"e": 1}])
async def test_name_of_a_key_is_a_text(kid: object, issuer: Issuer) -> None:
    await issuer.refusal(raw({"alg": "ES256", "kid": kid}, b"{}"))


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"alg": "ES384"},
        {"kty": "RSA"},
        {"kty": "oct", "k": "AAAA"},
        {"crv": "P-384"},
        {"d": "AAAA"},
        {"x": "not a point"},
        {"x": 7},
        {"kid": ["e"]},
        {"crv": ["P-256"]},
        {"use": {}},
    ],
)
async def test_key_that_is_not_there_to_check_this_checks_nothing(
    change: dict[str, Any], issuer: Issuer
) -> None:
    issuer.published[:] = [jwk(EC, "ES256", "e") | change]

    assert "key" in await issuer.refusal(issuer.token())


async def test_short_key_is_refused(issuer: Issuer) -> None:
    short = rsa.generate_private_key(65537, 1024)  # noqa: S505 -- refused
    issuer.published[:] = [jwk(short, "RS256", "r")]
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.token(short, "RS256", {"kid": "r"})

    assert "valid" in await issuer.refusal(token)


async def test_signature_of_another_kind_than_allowed_is_refused(
    issuer: Issuer,
) -> None:
    issuer.renew(algorithms=("RS256",))

    assert "signature" in await issuer.refusal(issuer.token())
    assert issuer.asked == []


@pytest.mark.parametrize(
    "token",
    [
        "e30.e30",
        "e30..",
        "..",
        "a.b.c.d.e",
        raw({"alg": "ES256", "kid": "e"}, b"[]", b"x"),
        raw({"alg": "ES256", "kid": "e"}, b"{" * 5000, b"x"),
        raw({"alg": "ES256", "kid": "e", "crit": ["x"], "x": 1}, b"{}", b"x"),
        raw({"alg": "ES256", "kid": "e", "b64": False, "crit": ["b64"]}, b"", b"x"),
        base64.urlsafe_b64encode(b"[" * 9000).decode().rstrip("=") + ".e30.e30",
        base64.urlsafe_b64encode(b'{"a":' + b"9" * 9000 + b"}").decode().rstrip("=")
        + ".e30.e30",
        raw({"alg": "ES256", "kid": "e"}, b"a" * 16_000, b"x"),
    ],
)
async def test_what_is_no_token_at_all_is_refused(token: str, issuer: Issuer) -> None:
    await issuer.refusal(token)


async def test_token_within_a_token_is_none(issuer: Issuer) -> None:
    inner = issuer.token().encode()
    signed = jwt.api_jws.encode(inner, EC, "ES256", {"kid": "e", "cty": "JWT"})

    assert "valid" in await issuer.refusal(signed)


async def test_changed_token_is_refused(issuer: Issuer) -> None:
    head, _, signature = issuer.token().split(".")
    _, claims, _ = issuer.token(sub="boss", scope="admin").split(".")

    assert "valid" in await issuer.refusal(f"{head}.{claims}.{signature}")


# -- an authorization server that misbehaves -----------------------------------


async def test_unknown_keys_are_asked_for_seldom(issuer: Issuer) -> None:
    await issuer.who(issuer.token())
    issuer.clock.time += 11_000_000

    for n in range(50):
        await issuer.refusal(issuer.token(STRANGER, head={"kid": f"x{n}"}))

    assert issuer.asked.count("/keys") == 2


async def test_keys_that_do_not_come_hold_nobody_for_long(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(issuers, "_TIMEOUT", 0.05)
    issuer.server.script = None
    token = issuer.token()

    assert "key" in await issuer.refusal(token)
    assert "no keys from" in caplog.text
    assert token not in caplog.text  # law 8


async def test_who_hangs_up_does_not_undo_what_others_wait_for(
    issuer: Issuer,
) -> None:
    rude = asyncio.create_task(issuer.who(issuer.token()))
    await asyncio.sleep(0)
    rude.cancel()

    assert (await issuer.who(issuer.token())).id == "ann"
    assert issuer.asked.count("/keys") == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": [7, null]}',
        b"[" * 100_000,
        b'{"keys": [' + b" " * 300_000 + b"]}",
    ],
)
async def test_keys_that_are_none_let_nobody_in(answer: bytes, issuer: Issuer) -> None:
    issuer.answers["/odd"] = answer
    issuer.renew(jwks=f"{issuer.server.url}/odd")

    assert "key" in await issuer.refusal(issuer.token())


async def test_redirect_to_keys_is_not_followed(issuer: Issuer) -> None:
    issuer.server.answers(
        b"", f"Location: {issuer.server.url}/keys", status="302 Found"
    )

    assert "key" in await issuer.refusal(issuer.token())
    assert "/keys" not in issuer.asked


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.test"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "http://evil.test/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "https://127.0.0.1:9/keys"},
        {"jwks_uri": "https://[::1/keys"},
        {"jwks_uri": "https://evil.test:99999/keys"},
    ],
)
async def test_metadata_that_lead_elsewhere_let_nobody_in(
    change: dict[str, Any], issuer: Issuer
) -> None:
    issuer.answers["/.well-known/openid-configuration"] |= change

    assert "key" in await issuer.refusal(issuer.token())


async def test_keys_outlive_a_short_failure_of_their_server(issuer: Issuer) -> None:
    await issuer.who(issuer.token())
    issuer.server.answers(b"", status="503 Service Unavailable")

    issuer.clock.time += 3500 * 1_000_000
    assert (await issuer.who(issuer.token(exp=NOW + 9999))).id == "ann"

    issuer.clock.time += 200 * 1_000_000
    assert "key" in await issuer.refusal(issuer.token(exp=NOW + 9999))


def test_no_signature_that_is_taken_needs_a_shared_secret() -> None:
    assert not [name for name in SIGNATURES if name.startswith("HS") or name == "none"]
