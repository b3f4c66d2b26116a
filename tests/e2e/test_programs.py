"""``caxton run FILE.py`` as a stranger types it: no build, no compile, no module."""

from __future__ import annotations

import pytest

from .shell import Shell

#: The first test builds and compiles the runtime, for all others.
pytestmark = pytest.mark.timeout(400)

HELLO = """\
from caxton_agent import input, output
print("hello", input())
output({"sum": sum(range(10))})
"""


def write(shell: Shell, name: str, text: str) -> str:
    (shell.folder / name).write_text(text, "utf-8")
    return name


def test_file_runs_as_it_is_and_again_after_a_change(runtimes: Shell) -> None:
    write(runtimes, "hello.py", HELLO)

    done = runtimes("run", "hello.py", "-i", '"you"')

    assert (done.code, done.out) == (0, '{"sum": 45}\n')
    write(runtimes, "hello.py", "def run():\n    return 'changed'\n")
    assert runtimes("run", "hello.py", "-q").out == '"changed"\n'


def run_id(shell: Shell) -> str:
    found: str = shell("runs", "list", "--json").document[0]["run_id"]
    return found


def test_program_replays_and_forks_with_another_text(runtimes: Shell) -> None:
    write(runtimes, "a.py", HELLO)
    assert runtimes("run", "a.py").code == 0
    assert "\nprogram a.py  " in runtimes("runs", "show", "@last").out
    write(runtimes, "b.py", HELLO.replace("range(10)", "range(3)"))
    run = run_id(runtimes)

    assert runtimes("replay", run).code == 0
    assert runtimes("replay", run, "--against", "a.py").code == 0
    assert runtimes("replay", run, "--against", "b.py").code == 4
    forked = runtimes("runs", "fork", run, "--at", "1", "--agent", "b.py")
    assert (forked.code, forked.out) == (0, '{"sum": 3}\n')


def test_program_may_come_from_stdin(runtimes: Shell) -> None:
    done = runtimes("run", "-", "-q", stdin=b"def run():\n    return __file__\n")
    assert (done.code, done.out) == (0, '"<stdin>"\n')


def test_program_that_only_prints_is_told_where_the_lines_are(runtimes: Shell) -> None:
    done = runtimes("run", write(runtimes, "hi.py", "print('hello')\nprint('you')\n"))

    assert (done.code, done.out) == (0, "")
    told = f"2 lines in its log: caxton events list {run_id(runtimes)}\n"
    assert done.err.endswith(told)
    write(runtimes, "mute.py", "def run(needed):\n    return 1\n")
    done = runtimes("run", "mute.py")
    assert done.err.endswith("no output: what run() returns is the output\n")
    assert runtimes("run", "hi.py", "-q").err == ""


def test_error_shows_the_lines_of_the_program(runtimes: Shell) -> None:
    write(runtimes, "bad.py", "def half(x):\n    return x / 0\n\nhalf(1)\n")

    done = runtimes("run", "bad.py")

    assert done.code == 1
    assert (
        "Error: agent_error:\n"
        "  Traceback (most recent call last):\n"
        '    File "bad.py", line 4, in <module>\n'
        "      half(1)\n"
    ) in done.err
    assert "  ZeroDivisionError: division by zero\nTo fix: " in done.err


def test_syntax_error_has_a_line_and_a_caret(runtimes: Shell) -> None:
    done = runtimes("run", write(runtimes, "bad.py", "x = (1\n"))

    assert done.code == 1
    assert '  File "bad.py", line 1\n      x = (1\n          ^\n' in done.err


def test_call_needs_a_grant_and_is_recorded(runtimes: Shell) -> None:
    runtimes("init")
    write(
        runtimes,
        "ask.py",
        "from caxton_agent import Denied, tools\n"
        "def run():\n"
        "    try:\n"
        "        return tools.demo.echo(text='hi')\n"
        "    except (AttributeError, Denied):\n"
        "        return 'denied'\n",
    )

    assert runtimes("run", "ask.py", "-q").out == '"denied"\n'
    done = runtimes("run", "ask.py", "--allow", "demo/echo")
    assert done.out == '"hi"\n'
    assert 'mcp__demo__echo {"text": "hi"}  ok' in done.err
    told = runtimes("replay", "@last", "--lines")
    assert (told.code, told.out.splitlines()[0]) == (0, "call 1: line 4")
    assert runtimes("replay", "@last", "--lines", "--json").document["lines"] == {
        "1": 4
    }
    assert runtimes("replay", "@last", "--lines", "--step").code == 2


def test_agent_may_be_a_program(runtimes: Shell) -> None:
    write(runtimes, "report.py", HELLO)
    write(runtimes, "caxton.toml", '[agents.report]\nprogram = "report.py"\n')

    assert runtimes("run", "report", "-q").out == '{"sum": 45}\n'


def test_agent_may_execute_what_its_caller_sends(runtimes: Shell) -> None:
    write(
        runtimes,
        "caxton.toml",
        '[agents.sandbox]\nruntime = "python"\nprogram = "caller"\n',
    )
    code = "from caxton_agent import input\ndef run():\n    return input() + 1\n"

    done = runtimes("run", "sandbox", "-q", "-i", dumps(code))

    assert (done.code, done.out) == (0, "42\n")
    refused = runtimes("run", "sandbox", "-i", '{"cod": "1"}')
    assert (refused.code, refused.fix[:4]) == (2, "pass")


def dumps(code: str) -> str:
    import json  # noqa: PLC0415 -- here alone

    return json.dumps({"code": code, "input": 41})


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (("none.py",), "", "cannot read the program none.py"),
        (("a.py",), " ", "the program a.py is empty"),
        (("a.py", "--language", "javascript"), "1", "the suffix of a.py is of python"),
        (("-", "-i", "-"), "", "stdin cannot be both"),
    ],
)
def test_what_is_no_program_is_refused_with_a_fix(
    runtimes: Shell, words: tuple[str, ...], text: str, message: str
) -> None:
    write(runtimes, "a.py", text)

    done = runtimes("run", *words)

    assert (done.code, message in done.err) == (2, True)
    assert done.fix


# -- runtimes ------------------------------------------------------------------


def test_runtime_is_listed_and_exported_and_imported(runtimes: Shell) -> None:
    assert runtimes("runtime", "list", "--json").document[0]["origin"] == "built"
    exported = runtimes("runtime", "export", "python", "python.wasm", "--json").document
    assert (runtimes.folder / "python.wasm").stat().st_size == exported["bytes"]

    runtimes.environ["XDG_CACHE_HOME"] = str(runtimes.home / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", runtimes.environ["XDG_CACHE_HOME"])
        assert runtimes("runtime", "list").out == ""
        assert "is not installed" in runtimes("runtime", "export", "python", "x").err
        done = runtimes("runtime", "import", "python", "python.wasm", "--json")
        assert done.document["sha256"] == exported["sha256"]
        (listed,) = runtimes("runtime", "list", "--json").document
        assert (listed["origin"], listed["used"]) == ("imported", True)


def test_what_is_no_runtime_is_not_imported(runtimes: Shell) -> None:
    write(runtimes, "x.wasm", "text")

    done = runtimes("runtime", "import", "python", "x.wasm")

    assert done.code == 2
    assert done.fix == "name a file that caxton runtime export wrote"
