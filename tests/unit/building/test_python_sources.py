"""What a build of an agent in Python would refuse is told before it begins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from caxton_host.building import build_agent, python_sources
from caxton_host.building.python_sources import check
from caxton_host.errors import UsageError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/').replace('/init', '/__init__')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def checked(folder: Path) -> None:
    check(folder / "agent.py", sorted(folder.rglob("*.py")))


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as raised:
        checked(folder)
    assert raised.value.fix.startswith("change ")
    return str(raised.value)


def test_a_syntax_error_has_its_line_and_a_caret(tmp_path: Path) -> None:
    write(tmp_path, agent="def run():\n    x = = 1\n", other="x = 1")
    assert refused(tmp_path) == ("agent.py:2: invalid syntax\n    x = = 1\n        ^")
    write(tmp_path, agent="import other", other="")
    write(tmp_path, pack__part="x = (\n")
    assert refused(tmp_path) == (
        "pack/part.py:1: '(' was never closed\n    x = (\n        ^"
    )
    write(tmp_path, agent="x = 1\0", pack__part="")
    assert "agent.py" in refused(tmp_path)


def test_a_build_checks_the_sources_first(tmp_path: Path) -> None:
    write(tmp_path, agent="import numpy")
    with pytest.raises(UsageError, match=r"agent\.py:1: no module 'numpy'"):
        build_agent(tmp_path)


def test_an_import_that_no_agent_has_is_shown(tmp_path: Path) -> None:
    write(tmp_path, agent="import json\nfrom numpy.linalg import norm\n")
    assert refused(tmp_path) == (
        "agent.py:2: no module 'numpy' in the folder of the agent or the standard "
        "library\n    from numpy.linalg import norm\n         ^"
    )
    write(tmp_path, agent="class A:\n    import ssl, json\n")
    assert refused(tmp_path).startswith("agent.py:2: agents have no ssl: ")
    (tmp_path / "fast.cpython-314-x86_64-linux-gnu.so").touch()
    write(tmp_path, agent="import fast")
    assert "fast.cpython-314-x86_64-linux-gnu.so is a part in C" in refused(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "import json, os.path, compression.zstd, annotationlib, _thread",
        "from caxton_agent import log",
        "import pack.part\nfrom pack import part\nimport space.deep",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy",
        "def run():\n    import numpy",
        r"x = '\d'",
    ],
)
def test_what_an_agent_may_import_is_not_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, agent=text, pack__init="", pack__part="", space__deep="")
    write(tmp_path, test_agent="import pytest")
    checked(tmp_path)


@pytest.mark.parametrize(
    "text", ["import pack", "from pack import part", "from pack.part import x"]
)
def test_imports_are_followed_through_the_folder(tmp_path: Path, text: str) -> None:
    write(tmp_path, agent=text, pack__init="from . import part\nfrom .part import x")
    write(tmp_path, pack__part="import numpy")
    assert refused(tmp_path).startswith("pack/part.py:1: no module 'numpy'")


@pytest.mark.parametrize(
    "text",
    [
        "type X = int",
        "def f[T](x: T) -> T: ...",
        "class A[T]: ...",
        "x = f'{'a'}'",
        "x = t'{1}'",
        "try:\n    pass\nexcept OSError, KeyError:\n    pass",
    ],
)
def test_syntax_that_only_a_newer_python_knows_is_left_to_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    write(tmp_path, agent=text)
    checked(tmp_path)
    if sys.version_info < (3, 12):
        monkeypatch.setattr(python_sources, "_AGENTS", (3, 0))
        assert refused(tmp_path).startswith("agent.py:")
