"""Errors of programs in Python have a name, a line and a text; none is a bare trap."""

from __future__ import annotations

import re

import pytest

from caxton_host.core.limits import Limits
from tests.programs import LIMITS, Programs

pytestmark = pytest.mark.timeout(400)

THREAD = "RuntimeError: an agent has one thread: this wait would never end"
FILES = "PermissionError: .*an agent has no files: .*"
SOCKETS = "PermissionError: .*an agent has no network: .*"
SIGNALS = "PermissionError: .*an agent has no signals"
DEEP = "(RecursionError|MemoryError): .*"

#: A program, and a pattern of the last line of its reason.
ERRORS = {
    "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()": THREAD,
    "import _thread\nl = _thread.allocate_lock()\nwith l:\n  l.acquire()": THREAD,
    "import queue\nqueue.Queue().get()": THREAD,
    "import queue\nqueue.SimpleQueue().get()": THREAD,
    "import threading\nthreading.Thread(target=print).start()": (
        "RuntimeError: an agent has one thread: call the function directly, .*"
    ),
    "import subprocess\nsubprocess.run(['true'])": "OSError: .*processes.*",
    "import _socket\n_socket.socket()": SOCKETS,
    "import _socket\n_socket.gethostbyname('x')": SOCKETS,
    "import urllib.request as u\nu.urlopen('http://localhost')": ".*no network.*",
    "import _io\n_io.FileIO('x')": FILES,
    "open('/etc/passwd')": FILES,
    "import sqlite3\nsqlite3.connect('x.db')": "PermissionError: .*':memory:'.*",
    "import faulthandler\nfaulthandler._sigsegv()": SIGNALS,
    "import sys\nsys.remote_exec(1, 'w')": "PermissionError: .*",
    "import posix\nposix.urandom(1)\n1/0": "ZeroDivisionError: .*",
    "import sys\nprint('x', file=sys.__stdout__)\n1/0": "ZeroDivisionError: .*",
    "import signal\nsignal.raise_signal(9)": SIGNALS,
    "import json\njson.loads('[' * 100_000)": DEEP,
    "x = []\nfor _ in range(100_000): x = [x]\nx == [x]\nrepr(x)": DEEP,
    "import pickle\nx = []\nfor _ in range(10**5): x = [x]\npickle.dumps(x)": ".*",
    "eval('(' * 5_000 + ')' * 5_000)": DEEP,
    "eval('+'.join(['1'] * 100_000))": DEEP,
    "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()": DEEP,
    "f = lambda n: max(n, key=f)\nf('x')": DEEP,
    "x = []\nwhile True: x.append(bytearray(10**7))": "MemoryError",
    "import sys\nsys.modules.clear()\nraise ValueError('x')": "ValueError: x",
    "import sys\nsys.stdout = sys.stderr = None\n1/0": "ZeroDivisionError: .*",
    "import builtins\nbuiltins.__dict__.clear()": "the agent broke its own inter.*",
    "import caxton_agent._bridge as b\nb._host = None\n1/0": "ZeroDivisionError: .*",
    "class E(Exception):\n  def __str__(s): raise BaseException\nraise E": (
        r"E: <exception str\(\) failed>"
    ),
    "raise ValueError('\\ud800')": r"ValueError: \\ud800",
    "import sys\nsys.exit('bye')": "SystemExit: bye",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "import asyncio\nasync def run(): await asyncio.Event().wait()": (
        r".*DeadlockError: deadlock: .*waits in run \(program\.py:2\)"
    ),
    "import caxton_agent\ncaxton_agent.output({1})": "TypeError: the output: .*",
    "import caxton_agent as c\nc.mcp_call('a', {'b': 'é' * 2**20})": (
        "caxton_agent.*BadRequest: 2,097,160 bytes, of 2,097,152 allowed.*"
    ),
    "import caxton_agent as c\nc.mcp_call('é' * 2**21)": (
        "caxton_agent.*BadRequest: 4,194,304 bytes, of 2,097,152 allowed.*"
    ),
    "import sqlite3 as s\nc = s.connect(':memory:')\n"
    "c.execute(\"ATTACH ':memory:' AS x\")\nc.execute('CREATE TABLE x.t(a)')\n1/0": (
        "ZeroDivisionError: .*"
    ),
    "import ssl": "To fix: .*",
    # Nothing in Python can survive these.
    "exec((lambda: 0).__code__.replace(co_code=b'\\xff' * 40))": (
        "the interpreter aborted: .*"
    ),
}


@pytest.mark.parametrize("source", ERRORS)
def test_what_a_program_does_wrong_has_a_name(
    python_programs: Programs, source: str
) -> None:
    error = python_programs(source).error
    assert re.fullmatch(ERRORS[source], error.splitlines()[-1])
    assert len(error.encode()) <= 4096


SYNTAX = {
    "x = 1\ndef run(:\n  pass\n": (2, "    def run(:\n            ^\n", "SyntaxError"),
    "def f():\n  x = 1\n  global x\n": (
        3,
        "    global x\n    ^^^^^^^^\n",
        "SyntaxError",
    ),
    "return 5": (1, "    return 5\n    ^^^^^^^^\n", "SyntaxError"),
    "if 1:\n    x\n  y\n": (3, "    y\n     ^\n", "IndentationError"),
    "if 1:\n        x\n\ty\n": (3, "    \ty\n", "TabError"),
}


@pytest.mark.parametrize("source", SYNTAX)
def test_a_syntax_error_has_its_line_and_caret(
    python_programs: Programs, source: str
) -> None:
    line, shown, kind = SYNTAX[source]
    error = python_programs(source).error
    assert error.startswith(f'  File "program.py", line {line}\n')
    assert shown in error
    assert error.splitlines()[-1].startswith(f"{kind}: ")


@pytest.mark.parametrize("check", ["compile('x =', 'f', 'exec')", "ast.parse('x =')"])
def test_a_program_may_catch_a_syntax_error(
    python_programs: Programs, check: str
) -> None:
    source = (
        f"import ast\nfrom caxton_agent import output\ntry: {check}\n"
        "except SyntaxError as error: output([error.lineno, error.text])"
    )
    assert python_programs(source).output == [1, "x =\n"]


def test_a_page_break_in_a_text_is_not_the_end_of_a_line(
    python_programs: Programs,
) -> None:
    error = python_programs("x = '\f \u2028'\r\n1 / 0  # here\r\n").error
    assert '  File "program.py", line 2' in error
    assert "    1 / 0  # here\n" in error


def test_a_traceback_has_the_lines_of_the_program_alone(
    python_programs: Programs,
) -> None:
    ran = python_programs(
        "def ask():\n"
        "    return mcp_call('x')\n"
        "from caxton_agent import mcp_call\n"
        "def run():\n"
        "    ask()\n",
        name="report.py",
    )
    assert ran.error == (
        "Traceback (most recent call last):\n"
        '  File "report.py", line 5, in run\n'
        "    ask()\n"
        "    ~~~^^\n"
        '  File "report.py", line 2, in ask\n'
        "    return mcp_call('x')\n"
        "caxton_agent.Denied: no rule allows it (not_granted)"
    )
    assert ran.tools.logs == [f"3 {line}" for line in ran.error.splitlines()]


def test_a_long_error_keeps_its_beginning_and_its_end(
    python_programs: Programs,
) -> None:
    error = python_programs("raise ValueError('x' * 100_000 + 'end')").error
    assert error.startswith("Traceback (most recent call last):\n")
    assert error.endswith("xend")
    assert len(error.encode()) <= 4096


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("10 ** 10 ** 8", "fuel"),
        ("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", "fuel"),
        ("x = ()\nfor _ in range(10**6): x = (x,)\ndel x", "stack"),
        ("from caxton_agent import random_bytes\nrandom_bytes(10**6)", "host_calls"),
    ],
)
def test_a_bomb_ends_by_the_name_of_its_limit(
    python_programs: Programs, source: str, limit: str
) -> None:
    limits = Limits(memory=LIMITS.memory, fuel=3_000_000_000)
    ending = python_programs(source, limits=limits).ending
    assert (ending.kind, ending.limit) == ("limit", limit)


def test_a_program_uses_the_same_fuel_each_time(python_programs: Programs) -> None:
    source = (
        "import asyncio, random, uuid\nfrom caxton_agent import aio, output\n"
        "async def ask(n): return (await aio.mcp_call('x', {'n': n})).message\n"
        "async def run():\n"
        "    calls = map(ask, range(9))\n"
        "    found = await asyncio.gather(*calls, return_exceptions=True)\n"
        "    await asyncio.sleep(random.random())\n"
        "    return [str(uuid.uuid4()), len({*map(str, found)}), hash('a')]\n"
    )
    first, second = (python_programs(source) for _ in "ab")
    assert first.ending == second.ending  # law 5
    assert first.output[1] == 1
