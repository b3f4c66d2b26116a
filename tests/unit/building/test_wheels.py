"""The modules of wheels are read within bounds, whatever the file holds (law 9)."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path

import pytest

from caxton_host.building.wheels import modules_of
from caxton_host.errors import UsageError
from tests.wheels import make_wheel


def read(folder: Path, files: dict[str, str | bytes]) -> dict[str, tuple[bool, str]]:
    found = modules_of([make_wheel(folder, "a", files)])
    assert "Name: a\n" in found.pop("a-1.0.dist-info")[1]
    return found


def test_modules_are_the_python_files_by_their_full_names(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "b/__init__.py": "1",
        "b/c.py": "2",
        "d.py": "3",
        "space/e/f.py": "4",
        "a-1.0.data/purelib/g.py": "5",
        "a-1.0.data/scripts/h.py": "6",
        "b/py.typed": "",
        "b/templates/{{name}}.py": "7",
        "b/2to3.py": "8",
        "__init__.py": "9",
        "a-1.0.dist-info/more/x.py": "10",
    }
    assert read(tmp_path, files) == {
        "__init__": (False, "9"),
        "b": (True, "1"),
        "b.c": (False, "2"),
        "d": (False, "3"),
        "g": (False, "5"),
        "space": (True, ""),
        "space.e": (True, ""),
        "space.e.f": (False, "4"),
    }


def test_a_text_is_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.py": b"# coding: latin-1\r\nx = '\xe9'\r\n",
        "b.py": b"\xef\xbb\xbfx = '\xc3\xa9'",
    }
    assert read(tmp_path, files) == {
        "a": (False, "# coding: latin-1\nx = 'é'\n"),
        "b": (False, "x = 'é'"),
    }


def test_two_wheels_share_a_namespace_and_the_last_one_counts(tmp_path: Path) -> None:
    one = make_wheel(tmp_path, "one", {"n/a.py": "1", "n/b.py": "1"})
    two = make_wheel(tmp_path, "two", {"n/b.py": "2", "n/__init__.py": "2"})
    found = modules_of([one, two])
    assert [found[name] for name in ("n", "n.a", "n.b")] == [
        (True, "2"),
        (False, "1"),
        (False, "2"),
    ]


@pytest.mark.parametrize(
    "file",
    ["../x.py", "/etc/x.py", "a/../x.py", "a\\..\\x.py", "C:/x.py", "a/./\x00.py"],
)
def test_a_file_outside_of_a_package_is_no_module(tmp_path: Path, file: str) -> None:
    assert read(tmp_path, {file: "bad = 1", "good.py": ""}) == {"good": (False, "")}


def test_a_link_is_its_own_text_and_leads_nowhere(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "a", {})
    info = zipfile.ZipInfo("link.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    assert modules_of([path])["link"] == (False, "/etc/passwd")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.py": b"\0" * (3 << 20)}, r"a-1.0.*: a.py has more than 2,097,152 bytes"),
        (
            {f"a{at}.py": "#" * (2 << 20) for at in range(9)},
            r"more than 16,777,216 bytes of source, with a-1.0",
        ),
        ({f"{at}": "" for at in range(10_001)}, "has more than 10,000 files"),
        ({"a.py": b"\xff"}, r"a-1.0.*: a.py cannot be read: "),
        ({"a.py": b"# coding: nonsense\n"}, "cannot be read: unknown encoding"),
        ({"a.py": b"# coding: rot13\n"}, "cannot be read: 'rot13' is not a text enc"),
    ],
)
def test_what_exceeds_a_bound_is_named(
    tmp_path: Path, files: dict[str, str | bytes], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        modules_of([make_wheel(tmp_path, "a", files)])
    assert raised.value.fix


def test_a_size_that_the_zip_file_claims_is_not_believed(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "a", {"bomb.py": b"\0" * (3 << 20)})
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", 3 << 20), struct.pack("<I", 9)))
    with pytest.raises(UsageError, match=r"bomb\.py"):
        modules_of([path])


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 100])
def test_a_file_that_is_no_wheel_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a-1.0-py3-none-any.whl"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"a-1\.0-py3-none-any\.whl cannot be read"):
        modules_of([path])


def test_damaged_and_encrypted_files_are_named(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "a", {"a.py": "x = 1\n" * 1_000})
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + b"\xff" * 8 + whole[48:])
    with pytest.raises(UsageError, match=r"a\.py cannot be read"):
        modules_of([path])
    at = whole.index(b"PK\x01\x02") + 8
    path.write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])
    with pytest.raises(UsageError, match=r"a\.py cannot be read: .*encrypted"):
        modules_of([path])


def test_a_wheel_that_is_too_large_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "a-1.0-py3-none-any.whl"
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(UsageError, match="more than 67,108,864 bytes"):
        modules_of([path])
