"""Programs for WASI as the page about them shows them, and what of them is kept."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from caxton_host.sandbox.interface import WASI_FUNCTIONS
from caxton_host.sandbox.wasi import UNSUPPORTED

from .shell import Shell
from .test_cli_run import payload
from .test_docs import ROOT, add, blocks, commands, transcript, type_in

PAGE = ROOT / "docs" / "how-to" / "wasi.md"
TABLE = ROOT / "docs" / "reference" / "wasi.md"
_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", re.MULTILINE)
#: They build a large library first: for the slow test.
_LARGE = ("GOOS=", "python -m ziglang")


def _follow(shell: Shell, *, large: bool) -> None:
    """Do what the page says."""
    shell.write("caxton.toml", "")
    for language, name, text in blocks(PAGE):
        if name:
            (shell.folder / name).parent.mkdir(exist_ok=True)
            shell.write(name, text)
        elif language == "toml":
            add(shell, text)
        shown = dict(transcript(text))
        for line in commands(language, text):
            if large or not line.startswith(_LARGE):
                out = type_in(shell, line)
                assert shown.get(line, out) == out


@pytest.mark.debian
def test_the_page_about_wasi_and_what_it_promises(shell: Shell) -> None:
    _follow(shell, large=False)
    command = payload(shell, "RunStarted")["command"]
    assert isinstance(command, dict)
    assert (command["args"], command["env"]) == (
        ["total", "data/sales.csv"],
        {"TZ": "UTC"},
    )
    assert isinstance(command["files"], dict)
    assert [*command["files"]] == ["data/sales.csv"]
    found = shell("agent", "inspect", "total.wasm", "--json").document
    assert (found["accepted"], found["problem"]) == (True, None)

    # The log has its file, and so has what is exported of it.
    shutil.rmtree(shell.folder / "data")
    assert shell("replay", "@last").out.startswith("identical")
    assert shell("audit", "export", "@last", "-o", "run.caxton").code == 0
    key = shell("audit", "key").out.split()[-1]
    words = ("--bundle", "run.caxton", "--key", key)
    assert shell("replay", *words).out.startswith("identical")
    gone = shell("run", "total", "-i", '"north"')
    assert gone.code == 2
    assert "files: cannot read data: No such file" in gone.err

    shell.write("caxton.toml", '[agents.total]\nmodule = "total.wasm"\nargs = ["/x"]\n')
    assert shell("run", "total", "-i", '"north"').code == 1
    assert "panicked at" in shell("events", "list", "@last", "--json").out


def test_a_module_that_is_no_program_has_no_arguments(shell: Shell) -> None:
    module = ROOT / "agents" / "weather" / "weather.wasm"
    shutil.copy(module, shell.folder)
    shell.write("caxton.toml", '[agents.a]\nmodule = "weather.wasm"\nargs = ["x"]\n')
    refused = shell("run", "a")
    assert refused.code == 2
    assert "args, env and files are for WASI programs" in refused.err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_about_wasi_in_every_language(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.e2e.test_docs.SOON", 300.0)
    _follow(shell, large=True)
    for language in ("go", "c"):
        words = json.dumps(f"total-{language}.wasm")
        text = (shell.folder / "caxton.toml").read_text("utf-8")
        shell.write("caxton.toml", re.sub(r'"total\S*\.wasm"', words, text))
        done = shell("run", "total", "-i", '"north"')
        assert done.document == {"region": "north", "total": 12.5}


def test_the_page_says_what_every_function_answers() -> None:
    rows = _ROW.findall(TABLE.read_text("utf-8").partition("## The functions")[2])
    told = {
        name: answer for names, answer in rows for name in re.findall(r"`(\w+)`", names)
    }
    assert told.keys() == WASI_FUNCTIONS.keys()
    assert {name for name in told if told[name] == "`ENOTSUP`"} == UNSUPPORTED
