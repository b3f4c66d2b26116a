"""Programs: what is taken as one, and what the log holds of it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.programs import (
    LARGEST,
    LARGEST_OF_CALLERS,
    Program,
    called_with,
    digests_of,
    program_of,
)
from caxton_host.errors import UsageError

REPORT = Program(
    name="report.py",
    language="python",
    source=b"print(1)",
    packages=b"cGFja2Vk",
    locked=({"name": "pocketflow", "version": "0.0.3", "sha256": "ab"},),
)


def test_program_is_read_again_from_what_the_log_holds() -> None:
    again = Program.from_payload(REPORT.to_payload(), REPORT.blobs)

    assert again == REPORT
    assert set(digests_of(REPORT.to_payload())) == REPORT.blobs.keys()


def test_program_without_packages_has_one_blob() -> None:
    program = program_of("a.js", b"1", language="javascript")

    assert program.blobs == {sha256(b"1").hexdigest(): b"1"}
    assert "packages" not in program.to_payload()
    assert Program.from_payload(program.to_payload(), program.blobs) == program


def test_runtime_is_given_name_language_source_and_packages() -> None:
    assert REPORT.to_guest() == {
        "name": "report.py",
        "language": "python",
        "source": "print(1)",
        "packages": "cGFja2Vk",
    }
    assert program_of("a.py", b"1", language="python").to_guest()["packages"] is None


def test_typescript_runs_in_the_javascript_runtime() -> None:
    assert program_of("a.ts", b"1", language="typescript").runtime == "javascript"


def test_mark_of_the_byte_order_is_no_part_of_a_program() -> None:
    assert program_of("a.py", b"\xef\xbb\xbfx", language="python").source == b"x"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "the program a.py is empty"),
        (b" \n\t\n", "the program a.py is empty"),
        (b"x\ny = '\xe9'\n", "the program a.py is not UTF-8: byte 0xe9 in line 2"),
        (b"x" * (LARGEST + 1), "has more than the 1,048,576 bytes allowed"),
    ],
    ids=["empty", "blank", "latin-1", "large"],
)
def test_what_is_no_program_is_refused(source: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        program_of("a.py", source, language="python")
    assert caught.value.fix


def test_caller_passes_code_and_an_input() -> None:
    program, value, _ = called_with({"code": "run()", "input": [1]}, "javascript")

    assert (program.name, program.source, value) == ("code.js", b"run()", [1])
    assert called_with({"code": "run()"}, "python")[1] is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "a text under code"),
        ("print(1)", "a text under code"),
        ({"input": 1}, "a text under code"),
        ({"code": 1}, "a text under code"),
        ({"code": "1", "inputs": 1}, "no 'inputs'"),
        ({"code": "1", "x": 1}, "no 'x'"),
        ({"code": ""}, "the program code.py is empty"),
        ({"code": "\ud800"}, "half a character"),
        (
            {"code": "x" * (LARGEST_OF_CALLERS + 1)},
            "more than the 262,144 bytes allowed",
        ),
    ],
)
def test_call_without_a_program_is_refused(value: JSON, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        called_with(value, "python")
    assert caught.value.fix
