"""A build of the JavaScript runtime takes only what its lock names from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caxton_host.building import find_shared, javascript
from caxton_host.building.runtimes import RuntimeFolder
from caxton_host.errors import UsageError

LOCK = json.loads(find_shared("agents/runtimes/javascript/lock.json").read_text())


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "typescript"),
    [
        (f"quickjs_ng-{LOCK['engine']['version']}.tar.gz", False),
        (f"sucrase-{LOCK['eraser']['version']}.tgz", True),
    ],
)
def test_an_altered_source_is_refused_and_not_kept(
    name: str, *, typescript: bool, scratch: Path
) -> None:
    archive = scratch / "cache" / name
    archive.write_bytes(b"altered")
    with pytest.raises(UsageError, match=f"{name} was altered"):
        javascript.build_javascript_runtime(
            scratch / "out.wasm", scratch, typescript=typescript
        )
    assert not archive.exists()
    assert not (scratch / "out.wasm").exists()


def test_typescript_without_npm_is_answered_with_the_package_that_has_it(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(scratch))
    with pytest.raises(UsageError, match="npm is not installed") as caught:
        javascript.build_with_typescript(scratch / "out.wasm", scratch)
    assert caught.value.fix == "apt-get install nodejs npm"


def test_a_download_that_fails_names_the_engine(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(scratch / "nowhere"))
    with pytest.raises(UsageError, match="the JavaScript engine, cannot be down"):
        javascript.build_javascript_runtime(scratch / "out.wasm", scratch)


def test_only_a_command_builds_what_has_to_be_downloaded() -> None:
    assert RuntimeFolder.fetches("javascript")
    assert not RuntimeFolder.fetches("python")


def test_the_lock_names_a_digest_for_everything() -> None:
    assert len(bytes.fromhex(LOCK["engine"]["sha256"])) == 32
    assert LOCK["eraser"]["integrity"].startswith("sha512-")
