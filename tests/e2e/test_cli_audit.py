"""An auditor at work: no access to the host, no database, no configuration."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from caxton_host.core.grants.bounds import bounds_of
from caxton_host.core.log.checkpoint import parse_notes
from caxton_host.core.names import run_of
from caxton_host.lib.signing import Keyring
from caxton_host.runs.recording import Recording
from caxton_host.store.bundle_store import BundleStore, read_bundle

from .shell import SOON, Shell, toml
from .test_docs import ROOT, blocks, commands


@pytest.fixture
def host(shell: Shell) -> Shell:
    shell.set(XDG_STATE_HOME=str(shell.home / "state"))
    shell("init")
    assert shell("run", "weather", "-q").code == 0
    return shell


def elsewhere(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to another machine: an empty home and an empty folder."""
    home = shell.home / "another"
    (home / "work").mkdir(parents=True)
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        shell.set(**{f"XDG_{name}_HOME": str(home / name.lower())})
    shell.set(HOME=str(home))
    monkeypatch.chdir(home / "work")
    return home


def key_of(shell: Shell) -> str:
    key: str = shell("audit", "key", "--json").document["public_key"]
    return key


def exported(shell: Shell, *more: str) -> Path:
    done = shell("audit", "export", "@last", "-o", "run.caxton", *more)
    assert (done.code, done.out) == (0, "run.caxton\n"), done.err
    return shell.folder / "run.caxton"


def test_a_narrowed_run_proves_itself_with_its_narrowing(
    host: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host("run", "weather", "-q", "--narrow", "demo/echo").code == 0
    key, bundle = key_of(host), exported(host)
    elsewhere(host, monkeypatch)
    done = host("audit", "verify", "--bundle", str(bundle), "--key", key)
    assert done.code == 0
    replayed = host("replay", "--bundle", str(bundle), "--key", key)
    assert replayed.out.startswith("identical: ")
    found = read_bundle(bundle)
    run_id = run_of(found.header.parts[-1].stream)
    recording = asyncio.run(Recording.load(run_id, BundleStore(found)))
    (bound,) = bounds_of(recording.started.bounds)
    assert (bound.name, bound.grant.allow[0].tools[0].text) == ("narrow", "demo/echo")


def test_a_run_proves_itself_on_another_machine(
    host: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, bundle = key_of(host), exported(host)
    home = elsewhere(host, monkeypatch)
    done = host("audit", "verify", "--bundle", str(bundle), "--key", key)
    assert done.code == 0
    assert done.out.startswith("intact: 9 events in 1 stream, checked: chain, tree, ")
    assert not any(home.rglob("*.key")), "verifying makes no key"
    replayed = host("replay", "--bundle", str(bundle), "--key", key)
    assert (replayed.code, replayed.out) == (
        0,
        "identical: 3 calls answered from the log\n",
    )
    assert (
        host("replay", "--bundle", str(bundle), "--key", key, "--json").document[
            "verdict"
        ]
        == "identical"
    )


def test_a_bundle_does_not_vouch_for_itself(
    host: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = host("audit", "key", "--json").document["fingerprint"]
    bundle = exported(host)
    elsewhere(host, monkeypatch)
    for words in (("audit", "verify"), ("replay",)):
        done = host(*words, "--bundle", str(bundle))
        assert done.code == 5
        assert mark in done.err
        assert done.fix
    done = host("audit", "verify", "--bundle", str(bundle), "--json")
    assert done.document["verdict"] == "signer_unknown"
    assert done.document["signer"] == {"trusted": False, "fingerprint": mark}
    trusting = toml({"audit": {"trusted_keys": [key_of_file(host)]}})
    Path("caxton.toml").write_text(trusting)
    assert host("audit", "verify", "--bundle", str(bundle)).code == 0


def key_of_file(shell: Shell) -> str:
    return Keyring(shell.home / "state" / "caxton").public_key().hex()


def test_a_damaged_bundle_is_neither_believed_nor_replayed(host: Shell) -> None:
    key, bundle = key_of(host), exported(host)
    data = bundle.read_bytes()
    bundle.write_bytes(data.replace(b'"type":"ToolDenied"', b'"type":"ToolFailed"'))
    for words in (("audit", "verify"), ("replay",)):
        done = host(*words, "--bundle", "run.caxton", "--key", key)
        assert "for a new bundle" in done.fix
        assert done.code == 5
        assert "it is not what was written" in done.err
    bundle.write_bytes(data[:-1])
    done = host("audit", "verify", "--bundle", "run.caxton")
    assert done.code == 5
    assert "not JSON in the one form" in done.err
    assert host("replay", "--bundle", "run.caxton").code == 5


def test_the_same_run_gives_the_same_bundle(host: Shell) -> None:
    first = exported(host).read_bytes()
    assert exported(host).read_bytes() == first


def test_a_bundle_fits_the_checkpoint_that_was_kept(host: Shell) -> None:
    assert host("audit", "checkpoint", "-o", "kept.txt").code == 0
    key = key_of(host)
    assert host("run", "weather", "-q").code == 0
    exported(host)
    check = ("audit", "verify", "--bundle", "run.caxton", "--checkpoint", "kept.txt")
    done = host(*check, "--key", key)
    assert done.code == 5
    assert "--since" in done.err
    exported(host, "--since", "kept.txt")
    assert host(*check, "--key", key).code == 0


def test_a_log_is_checked_with_checkpoints_from_elsewhere(host: Shell) -> None:
    shown = host("audit", "checkpoint")
    (note,) = parse_notes(shown.out.encode())
    host.write("kept.txt", shown.out)
    assert host("audit", "verify", "--checkpoint", "kept.txt").code == 0
    with host.tampering() as database:
        for table in ("payloads", "events"):
            database.execute(f"DELETE FROM {table} WHERE position > 5")  # noqa: S608
        database.execute("DELETE FROM checkpoints")
    done = host("audit", "verify", "--checkpoint", "kept.txt")
    assert done.code == 5
    assert (
        f"the log has 5 events of {note.checkpoint.size}: its tail was cut" in done.err
    )


def test_what_came_behind_the_newest_checkpoint_is_said_to_be_unseen(
    host: Shell,
) -> None:
    shutil.rmtree(host.home / "state" / "caxton" / "signed")
    with host.tampering() as database:
        database.execute(
            "DELETE FROM checkpoints WHERE size = (SELECT max(size) FROM checkpoints)"
        )
    done = host("audit", "verify")
    assert done.code == 0
    assert "removing them cannot be detected" in done.out


@pytest.fixture
def large(host: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A host whose log counts as large."""
    monkeypatch.setattr("caxton_host.store.verify.LARGE", 1)
    return host


def events_of(shell: Shell, *words: str) -> tuple[int, int]:
    """Return how many events are verified now, and were before."""
    done = shell("audit", "verify", "--json", *words)
    assert done.code == 0, done.err
    before = done.document["before"]
    return done.document["events"], before["events"] if before else 0


def test_a_large_log_is_verified_from_where_it_was(large: Shell) -> None:
    whole = large("audit", "verify")
    assert "before:" not in whole.out
    events = large("audit", "verify", "--full", "--json").document["events"]
    assert events_of(large) == (0, events)
    large("run", "weather", "-q")

    done = large("audit", "verify")

    assert done.code == 0, done.err
    assert re.search(
        rf"before: the first {events} events were verified on .* UTC, all at once on "
        r".*; --full checks them again\n",
        done.out,
    )
    document = large("audit", "verify", "--json").document
    assert document["before"]["full_at"] < document["before"]["verified_at"]
    assert (document["verdict"], document["events"]) == ("intact", 0)
    everything = document["before"]["events"]
    assert events_of(large, "--full") == (everything, 0)
    assert events_of(large, "--key", key_of(large)) == (everything, 0)
    assert events_of(large, "--copy") == (everything, 0)
    assert events_of(large, "@last")[1] == 0
    large("audit", "checkpoint", "-o", "kept.txt")
    assert events_of(large, "--checkpoint", "kept.txt") == (everything, 0)


def test_change_since_the_last_verification_is_found(large: Shell) -> None:
    large("audit", "verify")
    large("run", "weather", "-q")
    with large.tampering() as connection:
        connection.execute(
            "UPDATE payloads SET payload = salt WHERE position = "
            "(SELECT max(position) - 1 FROM events)"
        )

    done = large("audit", "verify")

    assert done.code == 5
    assert "its payload is not what was written" in done.err
    assert large("audit", "verify", "--full").code == 5


def test_change_in_place_is_found_with_full(large: Shell) -> None:
    large("audit", "verify")
    with large.tampering() as connection:
        connection.execute("UPDATE payloads SET payload = salt WHERE position = 2")

    unseen = large("audit", "verify")

    assert (unseen.code, "--full checks them again" in unseen.out) == (0, True)
    assert large("audit", "verify", "--full").code == 5
    # What is broken is not where the next one goes on.
    assert large("audit", "verify").code == 0


def test_a_small_log_is_always_verified_in_full(host: Shell) -> None:
    host("audit", "verify")
    with host.tampering() as connection:
        connection.execute("UPDATE payloads SET payload = salt WHERE position = 2")

    assert host("audit", "verify").code == 5


def test_another_database_of_that_name_is_verified_in_full(
    large: Shell, tmp_path: Path
) -> None:
    large("audit", "verify")
    copy = tmp_path / "copy.db"
    assert large("db", "backup", str(copy)).code == 0

    done = large("--db", f"sqlite:///{copy}", "audit", "verify", "--json")

    assert (done.code, done.document["before"]) == (0, None)
    assert events_of(large)[0] == 0


def test_verification_needs_no_folder_that_can_be_written(large: Shell) -> None:
    folder = large.home / "state" / "caxton" / "signed"
    assert large("audit", "verify").code == 0
    (kept,) = folder.glob("*.verified")
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()
    kept.mkdir()  # Nobody, not even root, writes a file there.

    assert events_of(large)[1] == 0


def test_a_key_is_rotated_and_what_it_signed_stays_valid(host: Shell) -> None:
    old = key_of(host)
    before = exported(host).read_bytes()
    done = host("audit", "key", "rotate")
    new = key_of(host)
    assert done.code == 0
    assert new in done.out
    assert new != old
    assert old in host("audit", "key").out
    query = "SELECT type FROM events WHERE stream LIKE 'host/%' ORDER BY position"
    assert host.rows(query)[-1] == ("KeyRotated",)
    assert host("run", "weather", "-q").code == 0
    assert host("audit", "verify").code == 0
    assert host("audit", "verify", "--key", new).code == 0
    (host.folder / "old.caxton").write_bytes(before)
    exported(host)
    for name, key, code in (
        ("old.caxton", old, 0),
        ("old.caxton", new, 5),
        ("run.caxton", new, 0),
        ("run.caxton", old, 5),
    ):
        check = ("audit", "verify", "--bundle", name, "--key", key)
        assert host(*check).code == code, (name, key == new)


def test_a_read_only_copy_is_checked_as_it_is(host: Shell, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with closing(sqlite3.connect(host.database)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(host.database, copy / "caxton.db")
    data = (copy / "caxton.db").read_bytes()
    (copy / "caxton.db").chmod(0o400)
    copy.chmod(0o500)
    try:
        done = host("--db", f"sqlite:///{copy}/caxton.db", "audit", "verify")
    finally:
        copy.chmod(0o700)
    assert done.code == 0
    assert (copy / "caxton.db").read_bytes() == data


def test_a_foreign_database_is_of_an_unknown_signer(
    host: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, database = key_of(host), host.database
    home = elsewhere(host, monkeypatch)
    check = ("--db", f"sqlite:///{database}", "audit", "verify")
    assert host(*check).code == 5
    assert host(*check, "--key", key).code == 0
    assert not any(home.rglob("*.key"))


def test_checkpoints_go_into_a_file_as_they_are_signed(host: Shell) -> None:
    text = (host.folder / "caxton.toml").read_text()
    host.write("caxton.toml", text + '\n[audit]\nanchor = "file:anchored.txt"\n')
    assert host("run", "weather", "-q").code == 0
    notes = parse_notes((host.folder / "anchored.txt").read_bytes())
    ((size,),) = host.rows("SELECT max(size) FROM checkpoints")
    assert notes[-1].checkpoint.size == size
    assert host("audit", "verify", "--checkpoint", "anchored.txt").code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('anchor = "http://example.com/x"', "could be changed in transit"),
        ('anchor = "somewhere"', "is not a valid URL"),
        ('trusted_keys = ["abc"]', "is not a public key"),
        ('trusted = ["abc"]', "trusted"),
    ],
)
def test_what_audit_cannot_say_is_named(host: Shell, line: str, words: str) -> None:
    text = (host.folder / "caxton.toml").read_text()
    host.write("caxton.toml", f"{text}\n[audit]\n{line}\n")
    done = host("config", "show")
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "verify", "--key", "abc"),
        ("audit", "verify", "--checkpoint", "caxton.toml"),
        ("audit", "verify", "@last", "--bundle", "caxton.toml"),
        ("audit", "export", "nobody", "-o", "x"),
        ("audit", "export", "@last"),
        ("audit", "verify", "--bundle", "nowhere"),
        ("replay",),
        ("replay", "@last", "--bundle", "caxton.toml"),
    ],
)
def test_what_cannot_be_is_refused(host: Shell, words: tuple[str, ...]) -> None:
    done = host(*words)
    assert done.code == 2
    assert done.fix


def test_a_second_program_says_the_same(host: Shell) -> None:
    key, bundle = key_of(host), exported(host)
    script = Path(__file__).parents[2] / "docs" / "reference" / "verify_bundle.py"
    for pinned, verdict in ((key, "intact"), ("00" * 32, "signer_unknown")):
        done = subprocess.run(
            [sys.executable, script, bundle, pinned],
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
        )
        assert done.stdout == f"{verdict}\n", done.stderr
        assert done.returncode == (0 if verdict == "intact" else 5)


def test_the_page_about_verifying_is_right(host: Shell) -> None:
    pages = Path(__file__).parents[2] / "docs" / "how-to"
    text = (pages / "verify.md").read_text("utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert host("audit", "checkpoint", "-o", "checkpoints.txt").code == 0
    with closing(sqlite3.connect(host.database)) as database:
        database.execute("VACUUM INTO 'copy.db'")
    key = key_of(host)
    for line in lines:
        words = line.replace("PUBKEY", key).split()
        if words[0] == "caxton":
            assert host(*words[1:]).code == 0, line
    assert len(lines) == 8


def test_the_page_about_handing_a_run_over_is_right(host: Shell) -> None:
    key = key_of(host)
    for block in blocks(ROOT / "docs" / "how-to" / "hand-over.md"):
        if block.language == "python":
            words = [sys.executable, "-c", block.text]
            subprocess.run(words, cwd=host.folder, timeout=SOON, check=True)
            continue
        for line in commands(block.language, block.text.replace("PUBKEY", key)):
            assert host(*line.split()[1:]).code == 0, line
    taken = (host.folder / "run.caxton").read_bytes()
    assert exported(host).read_bytes() == taken
