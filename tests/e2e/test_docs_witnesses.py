"""The page about witnesses: its commands, with a witness in a process of its own."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .shell import CAXTON, SOON, Shell
from .test_docs import ROOT, blocks, commands

PAGE = ROOT / "docs" / "how-to" / "witnesses.md"
NAME = "witness.example.com"


@contextmanager
def witness(shell: Shell, line: str) -> Iterator[dict[str, Any]]:
    words = [CAXTON, *shlex.split(line)[1:], "--port", "0", "--json"]
    with subprocess.Popen(
        words, cwd=shell.folder, env=shell.environ, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        try:
            yield json.loads(child.stdout.readline())
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=SOON)
    assert child.returncode == 0


def two_of(*keys: str) -> str:
    rows = ", ".join(f"{{ url = 'https://w', key = '{key}' }}" for key in keys)
    return f"[audit]\nwitnesses = [{rows}]\n"


def test_the_page_about_witnesses(shell: Shell) -> None:
    # law 6
    lines = [
        line for language, _, text in blocks(PAGE) for line in commands(language, text)
    ]
    of_key, make, serve, *verify = lines
    (table,) = (text for language, _, text in blocks(PAGE) if language == "toml")
    shell("init")
    plain = (shell.folder / "caxton.toml").read_text()
    shell("run", "weather")
    told = shell(*shlex.split(of_key)[1:]).out
    values = dict(line.split(maxsplit=1) for line in told.splitlines())
    key = shell(*shlex.split(make)[1:]).out.strip()
    assert key.startswith(f"{NAME}+")
    shown: list[str] = []
    with witness(shell, serve.replace("VERIFIER", values["verifier"])) as up:
        assert up["key"] == key
        table = table.replace("https://witness.example.com", up["url"])
        shell.write("caxton.toml", plain + table.replace("KEY OF THE WITNESS", key))
        assert shell("run", "weather").code == 0
        for line in verify:
            whole = line.replace("PUBKEY", values["public_key"])
            done = shell(*shlex.split(whole.replace("-key KEY", f"-key {key}"))[1:])
            assert done.code == 0, done.err
            shown.append(done.out)
    assert "witnessed: the first" in shown[0]
    assert f"by {NAME} on" in shown[-1]
    # One that nobody asked has signed nothing; and it is away now.
    other = shell("witness", "key", "--name", "w2", "--folder", "two").out.strip()
    twin = shell("witness", "key", "--name", "w3").out.strip()
    bundle = (
        "audit",
        "verify",
        "--bundle",
        "run.caxton",
        "--key",
        values["public_key"],
    )
    done = shell(*bundle, "--witness-key", other, "--json")
    assert (done.code, done.document["witnessed"]) == (5, None)
    assert "no checkpoint is cosigned by 1 of: w2" in done.err
    both = ("--witness-key", other, "--witness-key", key)
    assert shell(*bundle, *both).code == 5
    done = shell(*bundle, *both, "--quorum", "1", "--json")
    assert done.code == 0
    assert [one["name"] for one in done.document["witnessed"]["by"]] == [NAME]
    done = shell("audit", "export", "@last", "-o", "late.caxton")
    assert done.code == 0
    assert "no witness vouches for the log" in done.err
    for words, said in (
        (("--quorum", "2", "--witness-key", key), "more than the witnesses: 1"),
        (("--quorum", "1"), "add --witness-key"),
        (("--witness-key", key[:-3]), "is no key"),
        (("--witness-key", values["verifier"]), "another kind of signature"),
        (("--witness-key", key, "--witness-key", twin), "names one witness twice"),
    ):
        done = shell("audit", "verify", *words)
        assert done.code == 2
        assert said in done.err
    # It would serve in the clear.
    done = shell(*shlex.split(serve)[1:-1], values["verifier"], "--tls-key", "k.pem")
    assert (done.code, "--tls-cert" in done.err) == (2, True)
    shell.write("caxton.toml", plain + two_of(key, twin))
    assert "audit.witnesses: names one twice" in shell("config", "check").out
