"""The page about upgrades, with what the version before wrote: tests/corpus/release."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from caxton_host.building import find_shared
from caxton_host.store import migrate

from .shell import Shell
from .test_docs import ROOT, blocks, commands, type_in

RELEASE = ROOT / "tests" / "corpus" / "release"


@pytest.fixture
def old(shell: Shell, compiled: Path) -> Shell:
    """Return a folder as an older version left it, with its keys."""
    state = shell.home / "state" / "caxton"
    shutil.copytree(RELEASE / "signed", state / "signed")
    shutil.copy(compiled / "state" / "caxton" / "cache.key", state)
    shutil.copy(RELEASE / "signing.key", state)
    (state / "signing.key").chmod(0o600)
    state.chmod(0o700)
    shell.set(XDG_STATE_HOME=str(shell.home / "state"))
    shutil.copy(RELEASE / "caxton.toml", shell.folder)
    module = find_shared("agents/weather/weather.wasm").read_bytes()
    shell.write("agents/weather.wasm", module)
    database = gzip.decompress((RELEASE / "caxton.db.gz").read_bytes())
    shell.write("caxton.db", database)
    return shell


def test_the_page_about_upgrading_one_host(old: Shell) -> None:  # laws 5 and 10
    lines = [
        line
        for block in blocks(ROOT / "docs" / "how-to" / "upgrade.md")
        for line in commands(block.language, block.text)
    ]
    assert old("db", "status", "--json").document["schema"] == "0010"

    told = {line: type_in(old, line) for line in lines}

    assert old("db", "status", "--json").document["schema"] == migrate.head()
    assert told["caxton audit verify"].startswith("intact: 21 events")
    assert "0 differences" in told["caxton db verify-projections"]
    waiting, done = old("runs", "list", "--json").document
    assert (waiting["state"], done["state"]) == ("suspended", "completed")
    assert old("replay", done["run_id"]).out.startswith("identical: ")
    (token,) = old("serve", "token", "list", "--json").document
    assert (token["name"], token["state"]) == ("laptop", "good")
    approved = old("approval", "approve", waiting["run_id"], "--as", "ops")
    assert approved.code == 0, approved.err
    assert old("audit", "verify").code == 0

    copy = ("--db", "sqlite:///before-upgrade.db")
    assert old(*copy, "db", "status", "--json").document["schema"] == "0010"
    # The copy can also be restored by the new version.
    assert old("db", "restore", "before-upgrade.db", "--lose-events").code == 0
    assert old("db", "status", "--json").document["schema"] == migrate.head()
    assert old("audit", "verify").code == 0
