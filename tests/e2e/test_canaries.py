"""No secret is found anywhere that this host writes, in any form: law 8."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.answering import HERE, Answers, answering
from tests.canaries import forms, found_in

from .guests import call, guest, log
from .shell import Done, Shell, toml

SERVER = Path(__file__).with_name("canary_server.py")
#: One for each place; with what each encoding writes in its own way.
SECRETS = {
    place: f'{place}"/{number}<&+~ü pass/{place * 2}!'
    for number, place in enumerate(("argument", "variable", "input", "named"))
} | {
    "query": "query-key~8a7b!$&+/x",
    "header": "header-~!/+token-8f2e9a",
    "proxy": "proxy-pass~word-77",
    "db": "db-pass-word-55",
}


class Mirror:
    """An HTTP server that answers what it was asked, in every form; and a proxy."""

    def __init__(self) -> None:
        self.signals = b""
        mirror = self

        class Handler(Answers):
            def respond(self) -> None:
                body = self.body()
                if self.path.endswith(("/v1/traces", "/v1/metrics", "/v1/logs")):
                    mirror.signals += body
                    return self.answer()
                said = "\n".join([self.path, str(self.headers), body.decode()])
                known = [s for name, s in SECRETS.items() if name != "db"]
                every = [form for s in known for form in forms(s).values()]
                told = "\n".join([said, *every]).encode()
                return self.answer(told, 500, "text/plain; charset=utf-8")

        self.server = ThreadingHTTPServer(HERE, Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    made = Mirror()
    with answering(made.server):
        yield made


def payloads(bundle: Path) -> Iterator[bytes]:
    """Yield a bundle as it is, and what each of its lines holds."""
    data = bundle.read_bytes()
    yield data
    for line in data.splitlines():
        known = json.loads(line)
        for name in ("payload", "bytes"):
            yield b64decode(known.get(name, ""))


def configured(shell: Shell, mirror: Mirror) -> None:
    names = ("argument", "variable", "named", "query", "proxy")
    shell.set(**{name.upper(): SECRETS[name] for name in names})
    shell.set(INPUT=SECRETS["input"])
    shell.write("header.secret", SECRETS["header"] + "\n").chmod(0o600)
    shell.write(
        "caxton.toml",
        toml(
            {
                "http": {"proxy": f"http://me:{SECRETS['proxy']}@{mirror.address}"},
                "telemetry": {"endpoint": f"http://{mirror.address}"},
                "servers.canary": {
                    "command": sys.executable,
                    "args": [str(SERVER), "${env:ARGUMENT}"],
                    "start": "eager",
                },
                "servers.canary.env": {
                    "API_TOKEN": SECRETS["named"],
                    "PLAIN_NAME": "${env:VARIABLE}",
                    "UNUSED": "${env:INPUT}",
                },
                "servers.dead": {
                    "command": "no-such-program",
                    "args": ["${env:INPUT}"],
                },
                "webhooks.hook": {
                    "url": f"http://{mirror.address}/hook?key=${{env:QUERY}}",
                    "headers": {"Authorization": "Bearer ${file:header.secret}"},
                    "allow_private": True,
                },
                "context.who": {"default": "x"},
                "agents.canary": {"module": "canary.wasm"},
            },
            '[[agents.canary.allow]]\ntools = ["canary/*", "webhook/*", "dead/*"]',
        ),
    )
    calls = [
        call(f"mcp__canary__{name}", text="x")
        for name in ("echo", "fail", "refuse", "die", "echo", "denied__one")
    ]
    hook = call("mcp__webhook__hook", text="x")
    shell.write("canary.wasm", guest(*calls, hook, log("done"), output={"n": 1}))


def test_no_secret_is_left_anywhere(shell: Shell, mirror: Mirror) -> None:  # law 8
    # attacks 39 and 46
    configured(shell, mirror)
    secret = SECRETS["input"]
    commands = [
        ("run", "canary", "-i", f'{{"given": ["{secret.encode().hex()}"]}}'),
        ("run", "canary", "--var", f"who={secret}", "--json", "--wire-log=wire.log"),
        ("runs", "show", "@last"),
        ("runs", "show", "@last", "--json"),
        ("runs", "list"),
        ("runs", "explain", "@last", "2", "--json"),
        ("events", "list", "@last"),
        ("events", "export", "--all"),
        ("events", "export", "--all", "--format", "json"),
        ("events", "tail", "--all", "--json"),
        ("replay", "@last"),
        ("config", "show"),
        ("tool", "list", "--json"),
        ("tool", "call", "canary/echo"),
        ("tool", "call", "canary/die"),
        ("tool", "call", "canary/refuse"),
        ("tool", "call", "webhook/hook"),
        ("server", "list"),
        ("server", "test", "canary", "--json"),
        ("server", "test", "dead"),
        ("server", "test", "canary", "--wire-log"),
        ("server", "logs", "canary"),
        ("db", "status"),
        ("db", "backup", "copy.db"),
        ("doctor",),
        ("audit", "verify"),
        ("audit", "export", "@last", "-o", "c.caxton"),
        ("audit", "verify", "--bundle", "c.caxton"),
        ("replay", "--bundle", "c.caxton"),
        ("audit", "erase", "@last", "--reason", f"because of {secret}"),
        ("--db", f"postgresql://me:{SECRETS['db']}@127.0.0.1:1/x", "db", "status"),
        ("--db", f"postgresql://me:{SECRETS['db']}@127.0.0.1:1/x", "runs", "list"),
        (
            "--log-format=json",
            "--log-level=debug",
            "run",
            "canary",
            "--var",
            f"who={secret}",
        ),
    ]
    places: dict[str, bytes] = {}
    done: dict[str, Done] = {}
    for number, words in enumerate(commands):
        name = f"{number} {' '.join(words[:2])}"
        done[name] = shell(*words)
        places[f"{name}: stdout"] = done[name].out.encode()
        places[f"{name}: stderr"] = done[name].err.encode()
        stores = [*shell.folder.glob("c*.db*"), *shell.folder.glob("c*.db.hosts/*")]
        for path in filter(Path.is_file, stores):
            places[f"{path.name} after {name}"] = path.read_bytes()
    places["signals"] = mirror.signals
    kept = Path(shell.environ["XDG_STATE_HOME"], "caxton", "servers", "canary.log")
    places["server log"] = kept.read_bytes()
    assert places["server log"].count(b"[redacted]") > 7 * len(forms(secret))
    places["wire log"] = (shell.folder / "wire.log").read_bytes()
    assert places["wire log"].count(b"tools/call") > 3
    assert places["wire log"].count(b"MCP RESP canary [redacted]") > 3
    # Of a line the payload is Base64, which hides what it says from the search.
    places["bundle"] = b"".join(payloads(shell.folder / "c.caxton"))
    assert places["bundle"].count(b"[redacted]") > 7

    assert found_in(SECRETS.values(), places) == []
    # It was all there to be told: the calls were made, and came back masked.
    run = done["1 run canary"].document
    assert run["calls"]["total"] == 7
    assert (run["calls"]["ok"], run["calls"]["tool_error"]) == (2, 2)
    for kind in (b"execute_tool", b"caxton.calls", b"call settled"):
        assert kind in mirror.signals
    masked = done["7 events export"].out
    assert masked.count("[redacted]") > 7 * len(forms(secret))
    assert "its last words: " not in masked
    assert done["0 run canary"].code == 0


def test_the_search_finds_each_form() -> None:
    secret = SECRETS["query"]
    for name, form in forms(secret).items():
        if name != "upper":
            assert found_in([secret], {"here": f"<{form}>".encode()}), name
