"""What a watched program tells of its calls, and what of that is believed."""

from __future__ import annotations

import pytest

from caxton_host.core.calling_lines import Account
from caxton_host.core.programs import Language, program_of

MARK = "line_0123456789abcdef"


def account(source: str = "a\nb\nc", language: Language = "python") -> Account:
    program = program_of("a", source.encode(), language=language)
    found = Account.of(program, MARK)
    assert found
    return found


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ("[2]", {4: 2, 5: 2}),
        ("[3, null]", {4: 3}),
        ("[1,3]", {4: 1, 5: 3}),
        ("[0, 4]", {}),
        ("[1, 2, 3]", {}),
        ("[]", {}),
        ("[-1, 1]", {}),
        ("[1.0, 1]", {}),
        ("[[1, 1]]", {}),
        ("[1, 1] ", {}),
        ("[" * 60_000, {}),
        ("[" + "1, " * 60_000 + "1]", {}),
        ("[99999999999999999999999, 1]", {}),
        ("\udc00".encode(errors="replace").decode(), {}),
    ],
)
def test_calls_that_are_made_together_have_the_lines_that_were_told_before(
    told: str, lines: dict[int, int]
) -> None:
    found = account()

    assert found.hears(f"{MARK}{told}".encode())
    found.called([4, 5])
    assert found.lines == lines


def test_the_last_word_counts_and_for_one_call() -> None:
    found = account()
    found.hears(f"{MARK}[1]".encode())
    found.hears(f"{MARK}[2]".encode())
    found.called([1])
    found.called([2])

    assert found.lines == {1: 2}


def test_a_line_of_the_programs_own_log_is_left_to_it() -> None:
    assert not account().hears(b"[2]")


@pytest.mark.parametrize("end", ["\r", "\u2028", "\u2029"])
def test_a_program_whose_lines_are_counted_in_two_ways_is_not_watched(end: str) -> None:
    program = program_of("a.py", f"a{end}b\r\nc".encode(), language="python")

    assert Account.of(program, MARK) is None


def test_statements_before_a_script_leave_its_lines_where_they_are() -> None:
    source = "#!/usr/bin/env run\nlet a: number = 1;\n"
    first, *others = account(source, "typescript").watched.source.decode().split("\n")

    assert others == source.split("\n")[1:]
    assert first.endswith("//#!/usr/bin/env run")
