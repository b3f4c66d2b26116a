"""Pins from the key to the log: sign, verify, pin, run, serve and rebuild."""

from __future__ import annotations

import os
import shutil
import signal
from hashlib import sha256
from pathlib import Path

import pytest

from .guests import guest
from .serving import served
from .shell import Shell

GOOD, BAD = guest(output="good"), guest(output="bad")
GOOD_SHA = sha256(GOOD).hexdigest()


def configure(shell: Shell, *pins: str, name: str = "hello") -> None:
    table = f'version = 1\n[agents.{name}]\nmodule = "hello.wasm"\n'
    shell.write("caxton.toml", table + "\n".join(pins) + "\n")


def key(shell: Shell, name: str = "release.key") -> str:
    done = shell("agent", "key", name)
    assert done.code == 0
    return done.out.strip()


@pytest.fixture
def public(shell: Shell) -> str:
    """Return the key of the signer of a good module."""
    shell.write("hello.wasm", GOOD)
    return key(shell)


def test_a_key_signs_and_its_public_half_verifies(shell: Shell, public: str) -> None:
    secret = shell.folder / "release.key"
    assert secret.stat().st_mode & 0o777 == 0o600
    done = shell("agent", "sign", "hello.wasm", "--key", "release.key", "--json")
    (row,) = done.document["files"]
    assert (row["signer"], row["sha256"]) == (public, GOOD_SHA)
    assert row["comment"].endswith("\tfile:hello.wasm\thashed")

    for trusted in (public, "release.key.pub"):
        done = shell("agent", "verify", "hello.wasm", "--key", trusted)
        assert (done.code, GOOD_SHA in done.out) == (0, True)
    other = key(shell, "other.key")
    assert shell("agent", "verify", "hello.wasm", "--key", other).code == 2
    done = shell("agent", "verify", "hello.wasm", "--key", other, "--key", public)
    assert done.code == 0

    shell.write("hello.wasm", BAD)
    done = shell("agent", "verify", "hello.wasm", "--key", public)
    assert done.code == 2
    assert "hello.wasm.minisig line 2 does not sign this file" in done.err
    assert shell("agent", "verify", "hello.wasm", "--key", "RW").code == 2


def test_a_key_is_never_overwritten_and_a_comment_stays_on_its_line(
    shell: Shell, public: str
) -> None:
    before = (shell.folder / "release.key").read_bytes()
    done = shell("agent", "key", "release.key")
    assert (done.code, "File exists" in done.err) == (2, True)
    assert (shell.folder / "release.key").read_bytes() == before
    done = shell(
        *("agent", "sign", "hello.wasm", "--key", "release.key"),
        *("--comment", "a\nuntrusted comment: b"),
    )
    assert (done.code, done.fix) == (2, "pass --comment TEXT")
    assert not (shell.folder / "hello.wasm.minisig").exists()
    assert public


def test_a_password_is_taken_from_the_environment(shell: Shell, public: str) -> None:
    path = shell.folder / "release.key"
    locked = path.read_bytes().replace(b"RWQAAEIy", b"RWRTY0Iy")
    shell.write("locked.key", locked).chmod(0o600)
    shell.set(CAXTON_KEY_PASSWORD="open says me")  # noqa: S106 -- a wrong one
    done = shell("agent", "sign", "hello.wasm", "--key", "locked.key")
    assert (done.code, "the password is wrong" in done.err) == (2, True)
    assert "says" not in done.err  # law 8
    assert public


def test_a_run_executes_only_what_is_pinned_and_signed(
    shell: Shell, public: str
) -> None:
    configure(shell, f'signers = ["{public}"]')
    done = shell("run", "hello")
    assert done.code == 2
    assert done.fix.startswith("caxton agent sign ")
    shell("agent", "sign", "hello.wasm", "--key", "release.key")
    assert shell("agent", "pin", "hello").code == 0
    text = (shell.folder / "caxton.toml").read_text()
    assert f'sha256 = "{GOOD_SHA}"' in text
    assert shell("run", "hello").code == 0
    (started,) = [
        one
        for one in shell("events", "list", "@last", "--json").document
        if one["type"] == "RunStarted"
    ]
    (row,) = started["payload"]["signatures"]
    assert (row["sha256"], row["signer"]) == (GOOD_SHA, public)
    assert f"signed  by {public}" in shell("runs", "show", "@last").out
    assert shell("replay", "@last").code == 0
    listed = shell("agent", "list").out
    assert listed.split("\t")[2] == "sha256, signers"
    assert shell("config", "check").code == 0

    runs = len(shell.runs())
    shell.write("hello.wasm", BAD)
    done = shell("run", "hello")
    assert (done.code, len(shell.runs())) == (2, runs)
    assert "which [agents.hello] does not pin" in done.err
    done = shell("config", "check")
    assert (done.code, "agents.hello: " in done.out) == (2, True)
    done = shell("runs", "fork", "@last", "--at", "1", "--agent", "hello.wasm")
    assert (done.code, len(shell.runs())) == (2, runs)


def test_a_pin_needs_a_table_of_its_own(shell: Shell) -> None:
    shell.write("hello.wasm", GOOD)
    content = 'version = 1\nagents = { hello = { module = "hello.wasm" } }\n'
    path = shell.write("caxton.toml", content)
    done = shell("agent", "pin", "hello")
    assert (done.code, path.read_text()) == (2, content)
    assert done.fix == f'write it with an editor: sha256 = "{GOOD_SHA}"'
    done = shell("agent", "pin", "helo")
    assert (done.code, done.fix) == (2, "write hello")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('sha256 = "12"', "caxton.toml:4: agents.hello.sha256: is not a SHA-256"),
        ("sha256 = []", "agents.hello.sha256: is empty"),
        ('signers = ["RWQ"]', "agents.hello.signers.1: is not a public key: line 1"),
        ("signers = []", "agents.hello.signers: is empty"),
        (f'sha256 = "{GOOD_SHA}"', "agents.hello.sha256: is set without a file"),
    ],
)
def test_a_pin_that_says_nothing_is_an_error(
    shell: Shell, line: str, problem: str
) -> None:  # law 4
    configure(shell, line)
    if "without a file" in problem:
        path = shell.folder / "caxton.toml"
        path.write_text(
            path.read_text().replace(
                'module = "hello.wasm"', 'program = "caller"\nruntime = "python"'
            )
        )
    done = shell("config", "check")
    assert done.code == 2
    assert problem in done.out


def test_a_served_agent_stays_in_force_until_its_pin_holds(
    shell: Shell, public: str
) -> None:
    configure(shell, f'sha256 = "{GOOD_SHA}"')
    with served(shell) as host:
        ran = host.post("/api/v1/runs?wait=10", {"agent": "hello"})
        assert ran.json()["output"] == "good"
        other = shell.write("other.wasm", BAD)
        text = (shell.folder / "caxton.toml").read_text()
        shell.write("caxton.toml", text.replace("hello.wasm", "other.wasm"))
        done = shell("config", "reload")
        assert (done.code, "does not pin" in done.out) == (1, True)
        assert host.start("hello"), "the former configuration is in force"
        page = host.get("/api/v1/agents/hello").json()
        assert page["pin"] == {"sha256": [GOOD_SHA], "signers": []}

        # A file that is replaced is refused, whatever was executed before.
        other.replace(shell.folder / "hello.wasm")
        answer = host.post("/api/v1/runs", {"agent": "hello"})
        assert answer.status_code >= 400
        assert GOOD_SHA not in answer.text
        code, said = host.stop(signal.SIGTERM)
        assert code == 0
        assert "which [agents.hello] does not pin" in said

    configure(shell, f'sha256 = "{GOOD_SHA}"')
    done = shell("serve", "--port", "0")
    assert (done.code, "does not pin" in done.err) == (2, True)
    assert public


@pytest.fixture
def built(shell: Shell) -> Path:
    """Build an agent in C, configured and pinned."""
    shell("agent", "new", "hello")
    shell("agent", "build", "hello", "--no-compile")
    configure(shell)
    assert shell("agent", "pin", "hello").code == 0
    return shell.folder / "hello.wasm"


def test_a_module_is_rebuilt_to_the_same_bytes(shell: Shell, built: Path) -> None:
    done = shell("agent", "rebuild", "hello", "--json")
    assert (done.code, done.document["same"]) == (0, True)
    digest = sha256(built.read_bytes()).hexdigest()
    assert done.document["sha256"] == {"module": digest, "rebuilt": digest}

    source = shell.folder / "hello" / "agent.c"
    shutil.copy(built, shell.folder / "kept.wasm")
    source.write_text('#include "caxton.h"\nCX_RUN { return 3; }\n')
    done = shell("agent", "rebuild", "hello")
    assert done.code == 1
    assert done.out.count("sha256 ") == 2
    assert built.read_bytes() == (shell.folder / "kept.wasm").read_bytes()


def test_a_build_that_a_pin_refuses_is_not_compiled(shell: Shell, built: Path) -> None:
    shell.set(XDG_CACHE_HOME=str(shell.folder / "cache"))
    shell.write("hello/agent.c", '#include "caxton.h"\nCX_RUN { return 3; }\n')
    done = shell("agent", "build", "hello")
    assert (done.code, "does not pin" in done.err) == (2, True)
    assert not (shell.folder / "cache" / "caxton" / "modules").exists()
    assert shell("agent", "pin", "hello").code == 0
    assert shell("agent", "build", "hello", "--no-compile").code == 0
    assert built.exists()
    shutil.rmtree(shell.folder / "hello")
    done = shell("agent", "rebuild", "hello")
    assert (done.code, done.fix) == (2, "name its folder with --source")


def test_what_is_no_module_is_not_rebuilt(shell: Shell) -> None:
    shell.write("caxton.toml", 'version = 1\n[agents.r]\nprogram = "r.py"\n')
    shell.write("r.py", "1\n")
    done = shell("agent", "rebuild", "r")
    assert (done.code, "a program is its own source" in done.fix) == (2, True)
    done = shell("agent", "pin", "r")
    assert sha256(b"1\n").hexdigest() in done.out


def test_a_signature_with_a_secret_is_not_recorded(shell: Shell, public: str) -> None:
    # law 8
    shell.set(CANARY="canary-4711-aaaa-bbbb")
    sign = ("agent", "sign", "hello.wasm", "--key", "release.key", "--comment")
    shell(*sign, "made with canary-4711-aaaa-bbbb")
    server = '[servers.demo]\ncommand = "python"\nenv = { KEY = "${env:CANARY}" }'
    configure(shell, f'signers = ["{public}"]', server)

    done = shell("run", "hello")

    assert (done.code, "canary" in done.err) == (2, False)
    assert "holds a secret of the configuration" in done.err
    assert done.fix.startswith("sign again")


def test_a_signature_that_is_a_pipe_is_not_waited_for(
    shell: Shell, public: str
) -> None:
    # law 9
    os.mkfifo(shell.folder / "hello.wasm.minisig")
    configure(shell, f'signers = ["{public}"]')

    done = shell("run", "hello")

    assert (done.code, "not a regular file" in done.err) == (2, True)
