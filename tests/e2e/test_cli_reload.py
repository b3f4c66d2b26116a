"""``caxton config reload``: hosts that are up read their configuration again."""

from __future__ import annotations

import signal

from .shell import SOON, Shell
from .test_cli_cancel import configure, until, waiting


def add(shell: Shell, text: str) -> None:
    path = shell.folder / "caxton.toml"
    path.write_text(path.read_text() + text)


def test_a_host_reloads_while_its_run_goes_on(shell: Shell) -> None:
    configure(shell)
    with waiting(shell) as (host, run_id):
        assert shell("config", "reload").out.endswith(": nothing has changed\n")
        add(shell, "[context.name]\ndefault = 1\n")
        (done,) = shell("config", "reload", "--json").document
        assert (done["reloaded"], done["outcome"]) == (True, "generation 2")
        name = done["host"]
        assert shell("config", "reload", "--only", name).code == 0
        other = shell("config", "reload", "--only", "host/1")
        assert (other.code, other.fix) == (2, f"name one of: {name}")

        (shell.folder / "caxton.toml").write_text("version = 2\n")
        assert shell("config", "reload").code == 2, "it is not asked for what is broken"
        assert host.poll() is None
        host.send_signal(signal.SIGINT)
        host.communicate(timeout=SOON)
    types = [row[0] for row in shell.rows("SELECT type FROM events")]
    assert types.count("ConfigLoaded") == 2
    assert run_id


def test_a_host_that_cannot_load_it_goes_on_as_before(shell: Shell) -> None:
    configure(shell)
    with waiting(shell) as (host, _):
        good = (shell.folder / "caxton.toml").read_text()
        other = shell.write("good.toml", good)
        (shell.folder / "caxton.toml").write_text("version = 2\n")
        database = f"sqlite:///{shell.database}"
        done = shell("--config", str(other), "--db", database, "config", "reload")
        assert done.code == 1
        assert "failed: caxton.toml" in done.out
        assert "a host keeps its old configuration" in done.err
        host.send_signal(signal.SIGINT)
        host.communicate(timeout=SOON)


def test_a_hangup_reloads_a_host_that_no_terminal_started(shell: Shell) -> None:
    configure(shell)
    with waiting(shell, start_new_session=True) as (host, _):
        add(shell, "[context.name]\ndefault = 1\n")
        host.send_signal(signal.SIGHUP)
        query = "SELECT count(*) FROM events WHERE type = 'ConfigLoaded'"
        until(lambda: shell.rows(query) == [(2,)])
        assert host.poll() is None
        host.send_signal(signal.SIGINT)
        host.communicate(timeout=SOON)


def test_where_no_host_is_up_the_next_one_reads_the_file(shell: Shell) -> None:
    configure(shell)
    done = shell("config", "reload")
    assert (done.code, done.out) == (0, "")
    assert "the next one reads the file as it is" in done.err
    named = shell("config", "reload", "--only", "host/1")
    assert (named.code, named.fix) == (2, "leave out --only: none is up")
    assert not shell.database.exists()
    assert shell("db", "recount").code != 0
    assert not shell.database.exists()
