"""A program names its dependencies; the lock holds them to what was resolved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.dependencies import (
    Lock,
    Metadata,
    Wheel,
    chain,
    metadata_of,
    wheels_of,
)
from caxton_host.errors import UsageError

DIGEST = "ab" * 32


def script(*lines: str, end: str = "# ///") -> str:
    return "\n".join(["import sys", "# /// script", *lines, end, "print(1)"])


def test_metadata_is_a_block_of_comments() -> None:
    text = script(
        '# requires-python = ">=3.11"',
        "#",
        "# dependencies = [",
        '#   "attrs>=25,<27",',
        "#   'rich[jupyter] (>=13) ; python_version > \"3.8\"', # why",
        "# ]",
        "# [tool.caxton]",
        "# x = 1",
    )
    assert metadata_of(text, "a.py") == Metadata(
        dependencies=(
            "attrs>=25,<27",
            'rich[jupyter] (>=13) ; python_version > "3.8"',
        ),
        requires_python=">=3.11",
    )
    crlf = text.replace("\n", "\r\n")
    assert metadata_of(crlf, "a.py") == metadata_of(text, "a.py")


@pytest.mark.parametrize(
    "text", ["", "import attrs", "# /// other\n# dependencies = 1\n# ///", script("#")]
)
def test_a_program_without_metadata_names_nothing(text: str) -> None:
    assert metadata_of(text, "a.py") == Metadata()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (script("# a = 1", end=""), "begins in line 2 does not end"),
        (script("# a = 1", end="import x"), "begins in line 2 does not end"),
        ("# /// script", "begins in line 1 does not end"),
        (script(), "does not end, or is empty"),
        (script("#a = 1"), "does not end"),
        (
            f"{script('#')}\n{script('#')}",
            "a second block of metadata begins in line 7",
        ),
        (script(f"# a = '{'x' * 70_000}'"), "of 65,536 allowed"),
        (script("# a = "), "line 2: Invalid value"),
        (script(f"# a = {'[' * 5_000}"), "line 2: "),
        (script("# dependencies = 1"), "dependencies is missing, or of another type"),
        (script("# dependencies = [1]"), "dependencies is not a list of texts"),
        (script("# requires-python = 3"), "requires-python is missing, or of another"),
        (script("# requires-python = '/x'"), "requires-python is not a list"),
        (script(f"# requires-python = '{'>' * 301}'"), "requires-python is not a list"),
        (script(f"# dependencies = {['a'] * 101}"), "more than 100 dependencies"),
        (script(f"# dependencies = ['{'a' * 301}']"), "is not a name with versions"),
    ],
)
def test_what_is_wrong_with_metadata_is_told(text: str, message: str) -> None:
    # law 9
    with pytest.raises(UsageError, match=message) as raised:
        metadata_of(text, "a.py")
    assert str(raised.value).startswith("a.py: ")
    assert raised.value.fix


@pytest.mark.parametrize(
    "requirement",
    [
        *("--index-url=https://example.com", "-r other.txt", "./local", "/a.whl"),
        *("a @ https://example.com/a.whl", "git+https://example.com/a", "", "a b"),
        *("https://example.com/a.whl", "a;$(x)", "a\n--pre", "a>=1 --pre", "a==$HOME"),
    ],
)
def test_a_dependency_is_a_name_and_never_an_address_or_an_option(
    requirement: str,
) -> None:
    # law 9
    with pytest.raises(UsageError, match=r"dependencies\[0\]"):
        metadata_of(script(f"# dependencies = [{requirement!r}]"), "a.py")


# -- what pip has resolved -----------------------------------------------------


def install(name: str, *wants: str, **more: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "version": "1.0", "requires_dist": [*wants]},
        "download_info": {
            "url": f"https://example.com/{name}-1.0-py3-none-any.whl",
            "archive_info": {"hashes": {"sha256": DIGEST}},
        },
        **more,
    }


def test_a_report_names_wheels_and_what_they_want() -> None:
    report: dict[str, Any] = {
        "install": [
            install("B_b", "a>=1", "x; extra == 'y'", "(", requested=True),
            install("a"),
        ]
    }
    report["install"][1]["download_info"]["url"] = "file:///a-1.0-cp314-cp314-x.whl"
    assert wheels_of(report) == [
        Wheel(name="a", version="1.0", file="a-1.0-cp314-cp314-x.whl", sha256=DIGEST),
        Wheel(
            name="B_b",
            version="1.0",
            file="B_b-1.0-py3-none-any.whl",
            sha256=DIGEST,
            wants=("a",),
            requested=True,
        ),
    ]
    del report["install"][1]["download_info"]["archive_info"]
    assert wheels_of(report)[0].sha256 == ""
    assert [wheel.is_pure for wheel in wheels_of(report)] == [False, True]


@pytest.mark.parametrize(
    "report",
    [
        None,
        {"install": {}},
        {"install": [1]},
        {"install": [{}]},
        {"install": [install("../x")]},
        {"install": [{**install("a"), "download_info": {"archive_info": 1}}]},
        {"install": [{**install("a"), "download_info": {"url": 1}}]},
    ],
)
def test_another_report_is_refused(report: Any) -> None:  # noqa: ANN401 -- any
    with pytest.raises(ValueError, match=r"it lacks|missing|not valid"):
        wheels_of(report)


def test_a_chain_leads_from_the_program_to_a_package() -> None:
    report: Any = {
        "install": [
            install("a", "b", "gone", requested=True),
            install("b", "a", "c"),
            install("c", "deep.C"),
            install("Deep-c"),
            install("e", "b", requested=True),
        ]
    }
    wheels = wheels_of(report)
    assert chain(wheels, "deep_c") == ["a", "b", "c", "Deep-c"]
    assert chain(wheels, "a") == ["a"]
    assert chain(wheels, "nobody") == ["nobody"]


# -- the lock ------------------------------------------------------------------

LOCK = Lock(
    metadata=Metadata(dependencies=('a; os_name == "x"', "b")),
    python="3.14.0",
    packages=({"name": "a", "version": "1.0+x", "sha256": DIGEST},),
    sha256=DIGEST,
)


def test_a_lock_is_a_text_that_people_review() -> None:
    text = LOCK.to_toml()
    assert Lock.from_toml(text) == LOCK
    assert '[[package]]\nname = "a"\nversion = "1.0+x"\n' in text
    assert Lock.from_toml(replace(LOCK, packages=()).to_toml()).packages == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version = 1\n", "version = 2\n"),
        ("version = 1\n", ""),
        (DIGEST, "x"),
        ('"1.0+x"', '"; rm"'),
        ('"1.0+x"', "1"),
        ("[[package]]", "[package]"),
        ('"3.14.0"', "3.14"),
        ("dependencies = [", "dependencies = [1, "),
        ("# Made", "x" * 1024 * 1024),
    ],
)
def test_another_text_is_not_a_lock(old: str, new: str) -> None:
    # law 9
    with pytest.raises(
        ValueError, match=r"version|sha256|package|python|depend|charact"
    ):
        Lock.from_toml(LOCK.to_toml().replace(old, new))
