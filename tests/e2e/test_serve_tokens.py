"""Who may call a host that is up: its tokens, and those of an authorization server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from caxton_host.core.grants.principals import Token
from caxton_host.lib.machine import SystemClock
from tests.answering import HERE, Answers, answering
from tests.canaries import found_in

from .guests import call, guest
from .serving import Host, served, token
from .shell import Shell, toml

RUNS = "/api/v1/runs"
OK, UNAUTHORIZED = httpx.codes.OK, httpx.codes.UNAUTHORIZED


@pytest.fixture
def desk(shell: Shell) -> Shell:
    shell.write("caxton.toml", toml({"agents.quick": {"module": "quick.wasm"}}))
    shell.write("quick.wasm", guest(output="done"))
    return shell


def status(host: Host, text: str) -> int:
    return host.ask("GET", RUNS, text).status_code


def test_token_outlives_the_host_until_it_is_revoked(desk: Shell) -> None:
    kept = token(desk, "--scope", "run", "--name", "kept")
    gone = token(desk, "--scope", "run", "--name", "gone")
    with served(desk, good=kept) as host:
        assert (status(host, kept), status(host, gone)) == (OK, OK)

        assert desk("serve", "token", "revoke", "gone").code == 0

        assert (status(host, kept), status(host, gone)) == (OK, UNAUTHORIZED)
        host.stop(signal.SIGTERM)

    with served(desk, good=kept) as host:
        assert (status(host, kept), status(host, gone)) == (OK, UNAUTHORIZED)


def test_nobody_is_served_without_a_token_and_none_is_found_in_what_is_written(
    desk: Shell,
) -> None:  # law 8
    good = token(desk, "--scope", "run")
    stranger = Token.new(lambda size: bytes(range(size))).text
    answers: list[httpx.Response] = []
    with served(desk, good=good) as host:
        for path in (RUNS, f"{RUNS}/x", "/mcp", "/api/v1/nothing"):
            answers.append(httpx.post(f"{host.url}{path}", json={}))
            assert answers[-1].headers["www-authenticate"] == 'Bearer realm="caxton"'
        answers += [
            httpx.get(
                f"{host.url}{RUNS}", headers=[("Authorization", one) for one in sent]
            )
            for sent in (
                ["Basic YTpi"],
                [f"Bearer {stranger}"],
                [f"Bearer {good}x"],
                [f"Bearer {good[:-1]}~"],
                [f"Bearer {good}", f"Bearer {good}"],
            )
        ]
        *others, twice = [answer.status_code for answer in answers]
        assert {*others} == {UNAUTHORIZED}
        assert twice in {UNAUTHORIZED, httpx.codes.BAD_REQUEST}
        host.start("quick")
        _, err = host.stop(signal.SIGTERM)

    said = b"".join(one.content + str(one.headers).encode() for one in answers)
    log = desk("events", "export", "--all").out
    files = [path for path in desk.folder.glob("caxton.db*") if path.is_file()]
    places = {"answers": said, "errors": err.encode(), "log": log.encode()}
    places |= {path.name: path.read_bytes() for path in files}
    # There may be more of them in a secret.
    secrets = [text.split("_", 2)[2] for text in (good, stranger)]
    assert found_in(secrets, places) == []


def test_tool_is_not_told_the_token_of_who_calls(shell: Shell) -> None:  # law 8
    heard: list[bytes] = []

    class Tool(Answers):
        def respond(self) -> None:
            heard.append(str(self.headers).encode() + self.body())
            self.answer(b"{}")

    shell.write("asks.wasm", guest(call("mcp__webhook__hook", text="hello")))
    with answering(ThreadingHTTPServer(HERE, Tool)) as url:
        tables: dict[str, dict[str, object]] = {
            "webhooks.hook": {"url": url, "allow_private": True},
            "agents.asks": {"module": "asks.wasm"},
        }
        grant = '[[agents.asks.allow]]\ntools = ["webhook/*"]'
        shell.write("caxton.toml", toml(tables, grant))
        good = token(shell, "--scope", "run")
        with served(shell, good=good) as host:
            host.start("asks")
            host.stop(signal.SIGTERM)

    assert b"hello" in b"".join(heard)
    secret = good.split("_", 2)[2]
    assert found_in([secret], {"tool": b"".join(heard)}) == []


# -- an authorization server ---------------------------------------------------


class Issuer:
    """An authorization server, as far as a host asks it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.get_algorithm_by_name("ES256").to_jwk(
            self.key.public_key(), as_dict=True
        )
        answers = {"/keys": {"keys": [{**public, "kid": "k"}]}}

        class Handler(Answers):
            def respond(self) -> None:
                self.answer(json.dumps(answers.get(self.path, {})).encode())

        self.server = ThreadingHTTPServer(HERE, Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        answers["/.well-known/openid-configuration"] = {
            "issuer": self.url,  # type: ignore[dict-item] # as JSON has it
            "jwks_uri": f"{self.url}/keys",  # type: ignore[dict-item] # the same
        }

    def token(self, **claims: object) -> str:
        said = {
            "iss": self.url,
            "aud": "https://agents.test/mcp",
            "sub": "ann@example.com",
            "exp": SystemClock().now() // 1_000_000 + 60,
            "scope": "caxton:run",
        }
        return jwt.encode(said | claims, self.key, "ES256", {"kid": "k"})


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with answering(made.server):
        yield made


def test_access_token_of_the_issuer_is_taken_and_its_owner_recorded(
    desk: Shell, issuer: Issuer
) -> None:
    oauth = {"issuer": issuer.url, "audience": "https://agents.test/mcp"}
    tables = {"agents.quick": {"module": "quick.wasm"}, "serve.oauth": oauth}
    desk.write("caxton.toml", toml(tables))
    own, good = token(desk, "--scope", "read"), issuer.token()

    with served(desk, good=good) as host:
        run_id = host.start("quick")
        assert status(host, own) == OK
        assert status(host, issuer.token(exp=1)) == UNAUTHORIZED
        assert status(host, issuer.token(aud="https://other.test")) == UNAUTHORIZED
        nobody = httpx.get(f"{host.url}{RUNS}")
        place = nobody.headers["www-authenticate"].partition('resource_metadata="')[2]
        assert place == 'https://agents.test/.well-known/oauth-protected-resource/mcp"'
        found = httpx.get(f"{host.url}/.well-known/oauth-protected-resource/mcp")
        assert found.json()["authorization_servers"] == [issuer.url]
        actor = host.get(f"{RUNS}/{run_id}").json()["actor"]
        _, err = host.stop(signal.SIGTERM)

    assert actor == {"kind": "oauth", "id": "ann@example.com", "authenticated": True}
    log = desk("events", "export", "--all").out
    assert good.rpartition(".")[2] not in err + log  # law 8


def test_tenants_share_a_host_and_reads_are_in_its_log(desk: Shell) -> None:
    acme = token(desk, "--scope", "run", "--tenant", "acme")
    globex = token(desk, "--scope", "admin", "--tenant", "globex")
    auditor = token(desk, "--scope", "auditor")
    with served(desk) as host:
        body = {"agent": "quick"}
        run = host.ask("POST", f"{RUNS}?wait=30", acme, json=body).json()["run_id"]
        gone = host.ask("GET", f"{RUNS}/{run}", globex)
        listed = host.ask("GET", RUNS, globex).json()
        events = host.ask("GET", "/api/v1/events", globex).json()
        for _ in range(3):
            assert host.ask("GET", f"{RUNS}/{run}/result", auditor).status_code == OK
        refused = host.ask("POST", f"{RUNS}/{run}/cancel", auditor, json={})
        host.stop(signal.SIGTERM)

    assert (gone.status_code, refused.status_code) == (404, 403)
    assert (listed["runs"], listed["next"]) == ([], None)
    assert (events["events"], events["more"]) == ([], False)
    lines = map(json.loads, desk("events", "export", "--all").out.splitlines())
    reads = [one["payload"] for one in lines if one["type"] == "RunRead"]
    (output,) = [one for one in reads if one["what"] == "output"]
    assert output["run"] == run
    assert output["actor"]["id"] == Token.parse(auditor).id  # type: ignore[union-attr]  # it is one
    lists = [one["actor"]["tenant"] for one in reads if not one["run"]]
    assert lists == ["globex", "globex"]
