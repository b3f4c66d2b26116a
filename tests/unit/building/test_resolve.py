"""pip chooses wheels for the runtime's Python, from wherever it is configured."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from caxton_host.building import resolve
from caxton_host.building.resolve import Resolver, Target
from caxton_host.core.dependencies import Metadata
from caxton_host.errors import UsageError
from tests.wheels import make_wheel

TARGET = Target(version="3.14.0", markers={"sys_platform": "wasi", "os_name": "posix"})
NATIVE = "cp314-cp314-manylinux_2_17_x86_64"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wheels, which is all that pip is configured to use."""
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return folder


def resolver(scratch: Path, *dependencies: str, requires: str = "") -> Resolver:
    metadata = Metadata(dependencies=dependencies, requires_python=requires)
    scratch.mkdir(exist_ok=True)
    return Resolver("report.py", metadata, TARGET, scratch)


def test_wheels_are_chosen_for_the_python_of_the_runtime(
    index: Path, tmp_path: Path
) -> None:
    make_wheel(
        index,
        "one",
        {"one.py": ""},
        "both>=1",
        'wasi; sys_platform == "wasi"',
        'old; python_version < "3.14"',
        'linux; sys_platform == "linux"',
    )
    make_wheel(index, "wasi", {})
    make_wheel(index, "both", {"both.so": ""}, tag=NATIVE)
    pure = make_wheel(index, "both", {"both.py": ""})
    found = resolver(tmp_path / "s", "one >= 1", requires=">=3.12").wheels()
    assert [wheel.name for wheel, _ in found] == ["both", "one", "wasi"]
    both, path = found[0]
    assert path.read_bytes() == pure.read_bytes()
    assert both.sha256 == hashlib.sha256(pure.read_bytes()).hexdigest()


def test_a_package_with_parts_in_c_is_named_and_the_way_to_it(
    index: Path, tmp_path: Path
) -> None:
    make_wheel(index, "pydantic", {}, "pydantic-core")
    make_wheel(index, "pydantic_core", {}, tag=NATIVE)
    with pytest.raises(UsageError) as raised:
        resolver(tmp_path / "s", "pydantic").wheels()
    assert str(raised.value) == (
        "pydantic_core 1.0 has parts in C, which no program can have "
        "(report.py wants pydantic wants pydantic_core)"
    )
    assert raised.value.fix == "use a package that is pure Python instead of pydantic"


def test_what_pip_says_is_told(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "one", {})
    with pytest.raises(UsageError, match="No matching distribution found for two"):
        resolver(tmp_path / "s", "two").wheels()
    with pytest.raises(UsageError, match=r"<3\.14; the runtime has 3\.14\.0") as raised:
        resolver(tmp_path / "s", "one", requires="<3.14").wheels()
    assert raised.value.fix.startswith("correct the metadata in report.py")


def test_pip_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="pip is not installed") as raised:
        resolver(tmp_path / "s", "one").wheels()
    assert raised.value.fix.endswith("-m ensurepip")
