"""Programs in Python, executed by their runtime in the sandbox."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from caxton_host.building.python import build_python_runtime
from tests.programs import Programs, text

#: The runtime is built and compiled once for a test run.
pytestmark = pytest.mark.timeout(400)

LIBRARY = """
argparse calendar cmd colorsys csv concurrent.futures.thread dbm.dumb decimal doctest
email.mime.text encodings.cp437 fractions graphlib http.client http.server imaplib
importlib.resources json.tool lib2to3 logging.handlers mailbox optparse pdb plistlib
profile shelve smtplib sqlite3 symtable tarfile tomllib trace unittest.mock
urllib.robotparser wsgiref.handlers xml.dom.minidom xml.sax xmlrpc.client zipapp
"""
ASK = {"mcp__x__ask": lambda params: text(f"{params}")}


def test_statements_run_and_set_the_output(python_programs: Programs) -> None:
    ran = python_programs(
        "import csv, colorsys, caxton_agent as ca\n"
        "print('printed')\n"
        "ca.output([ca.input(), ca.mcp_call('mcp__x__ask', {'n': 1}).message])",
        ASK,
        input="given",
    )
    assert ran.output == ["given", "{'n': 1}"]
    assert ran.tools.logs == ["1 printed"]


@pytest.mark.parametrize(
    ("source", "times"),
    [
        ("def run(): print('ran')", 1),
        ("def run(n=1): print('ran')", 1),
        ("async def run(): print('ran')", 1),
        ("def run(): print('ran')\nif __name__ == '__main__': run()", 1),
        ("def run(): print('ran')\ndef main(): run(), run()\nmain()", 2),
        ("import asyncio\nasync def run(): print('ran')\nasyncio.run(run())", 1),
        ("def run(needed): print('ran')", 0),
        ("from subprocess import run", 0),
    ],
)
def test_a_function_run_is_called_once_unless_the_program_has_called_it(
    python_programs: Programs, source: str, times: int
) -> None:
    assert python_programs(source).tools.logs == ["1 ran"] * times


def test_what_run_returns_is_the_output(python_programs: Programs) -> None:
    assert python_programs("def run(): return {'a': [1]}").output == {"a": [1]}


@pytest.mark.long
def test_a_build_is_the_same_in_another_folder(
    python_runtime: Path, zig_cache: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "another"
    scratch.mkdir()
    (scratch / "cache").symlink_to(zig_cache)
    build_python_runtime(tmp_path / "again.wasm", scratch)
    digests = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (python_runtime, tmp_path / "again.wasm")
    }
    assert len(digests) == 1


def test_the_whole_pure_standard_library_can_be_imported(
    python_programs: Programs,
) -> None:
    source = (
        "import caxton_agent, importlib\nmissing = []\n"
        "for name in caxton_agent.input():\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: missing.append(str(error))\n"
        "caxton_agent.output(missing)"
    )
    ran = python_programs(source, input=LIBRARY.split())
    # Python 3.13 removed it.
    assert ran.output == ["No module named 'lib2to3'"]
