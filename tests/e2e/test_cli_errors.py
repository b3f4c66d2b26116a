"""Bad input: exit code 2, a way out in the last line, and no run in the log."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import stat
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from caxton_host.building import find_shared
from caxton_host.sandbox import confine
from tests import standin

from .guests import SPINS, call, guest
from .shell import Done, Shell

FAULTY = Path(__file__).parents[1] / "integration" / "mcp" / "faulty_server.py"
CANARY = "hunter2-?canary>correct~horse"

Arranged: TypeAlias = Callable[[Shell], object]

CONFIG = (
    f"version = 1\n[servers.demo]\n{standin.toml()}\n"
    """\
env = { API_KEY = "${env:CANARY}" }
[context]
customer_id = { required = true }
[agents.weather]
module = "weather.wasm"
limits = { input = "1KiB" }
[[agents.weather.allow]]
tools = ["demo/get_weather"]
"""
)


def _section(number: int, body: bytes) -> bytes:
    return bytes([number, len(body)]) + body


#: (import "env" "f" (func)), which no agent can have.
UNDECLARED = (
    b"\0asm\x01\0\0\0"
    + _section(1, b"\x01\x60\0\0")
    + _section(2, b"\x01\x03env\x01f\0\0")
)


@pytest.fixture
def weather(shell: Shell) -> Shell:
    """A folder with a configuration that holds a secret, and a sound agent."""
    shell.set(CANARY=CANARY)
    shell.write("caxton.toml", CONFIG)
    module = find_shared("agents/weather/weather.wasm")
    shell.write("weather.wasm", module.read_bytes())
    return shell


def check(shell: Shell, done: Done, *names: str, code: int = 2) -> None:
    """Check what every refusal keeps."""
    assert done.code == code, done
    assert done.fix
    told = [line for line in done.err.splitlines() if not line.startswith("warning: ")]
    assert told[0].startswith("Error: ")
    for name in names:
        assert name in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert shell.runs() == []
    _no_canary(done.out.encode() + done.err.encode())
    for path in shell.folder.glob("*.db*"):
        _no_canary(path.read_bytes() if path.is_file() else b"")


def _no_canary(data: bytes) -> None:
    plain = CANARY.encode()
    for form in (plain, base64.b64encode(plain), plain.hex().encode()):
        assert form not in data  # law 8


def _edit(old: str, new: str) -> Arranged:
    def edit(shell: Shell) -> None:
        assert old in CONFIG
        shell.write("caxton.toml", CONFIG.replace(old, new))

    return edit


def _module(content: bytes) -> Arranged:
    return lambda shell: shell.write("weather.wasm", content)


def _nothing(_shell: Shell) -> None:
    """Change nothing."""


def _sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def _later(shell: Shell) -> None:
    shell("db", "migrate")
    _sql(shell.database, "UPDATE alembic_version SET version_num = '9999'")


WEATHER = find_shared("agents/weather/weather.wasm").read_bytes()
RUN = ("run", "weather", "--var", "customer_id=7")
FILE = ("run", "weather.wasm", "--var", "customer_id=7")

REFUSED: dict[str, tuple[Arranged, tuple[str, ...], tuple[str, ...]]] = {
    # -- the configuration
    "broken TOML": (_edit("[context]", "[context"), RUN, ("caxton.toml", "line 6")),
    "no TOML at all": (
        lambda shell: shell.write("caxton.toml", b"\xff\xfe\0"),
        RUN,
        ("caxton.toml", "UTF-8"),
    ),
    "an unknown key": (
        _edit("command =", "comand ="),
        RUN,
        ("caxton.toml: servers.demo.comand", "write command"),
    ),
    "an unset variable": (
        _edit("env:CANARY", "env:NO_SUCH"),
        RUN,
        ("caxton.toml: servers.demo.env.API_KEY", "NO_SUCH"),
    ),
    "a limit that is none": (
        _edit('"1KiB"', '"many"'),
        RUN,
        ("agents.weather.limits.input",),
    ),
    "a pattern of every server": (
        _edit('"demo/get_weather"', '"*/get_weather"'),
        RUN,
        ("agents.weather.allow[1]",),
    ),
    "no such file": (_nothing, ("-c", "no.toml", "config", "show"), ("no.toml",)),
    "a folder for a file": (_nothing, ("-c", ".", "config", "show"), ("'.'",)),
    # -- the agent
    "an unknown agent": (
        _nothing,
        ("run", "wether", "--var", "customer_id=7"),
        ("wether", "caxton run weather"),
    ),
    "an agent without a module": (
        _edit('module = "weather.wasm"', ""),
        RUN,
        ("[agents.weather] names no module",),
    ),
    "no such module": (_nothing, ("run", "none.wasm"), ("none.wasm",)),
    "a folder for a module": (
        lambda shell: (shell.folder / "x.wasm").mkdir(),
        ("run", "x.wasm"),
        ("x.wasm", "not a regular file"),
    ),
    "a text for a module": (_module(b"(module)"), FILE, ("weather.wasm: ",)),
    "an empty module": (_module(b""), FILE, ("weather.wasm: ",)),
    "a component": (
        _module(b"\0asm\x0d\0\x01\0"),
        FILE,
        ("weather.wasm: ", "component"),
    ),
    "half a module": (_module(WEATHER[: len(WEATHER) // 2]), FILE, ("weather.wasm: ",)),
    "an undeclared import": (_module(UNDECLARED), FILE, ("env", "f")),
    "no entry point": (_nothing, (*FILE, "--entry", "start"), ("start",)),
    "a module that is too large": (
        _edit('input = "1KiB"', 'module = "1KiB"'),
        RUN,
        ("module weather.wasm is", "1024 bytes", "limits.module"),
    ),
    "too much memory": (
        _edit('input = "1KiB"', 'memory = "64KiB"'),
        RUN,
        ("limits.memory",),
    ),
    # -- the options of a run
    "input that is no JSON": (_nothing, (*RUN, "-i", "{location: x}"), ("--input",)),
    "input that is no text": (_nothing, (*RUN, "-i", '"\udcff"'), ("--input",)),
    "input with a number of absurd length": (
        _nothing,
        (*RUN, "-i", "9" * 5000),
        ("--input",),
    ),
    "input of no file": (_nothing, (*RUN, "-i", "@no.json"), ("no.json",)),
    "input that is too long": (
        _nothing,
        (*RUN, "-i", '"' + "x" * 2000 + '"'),
        ("2003 bytes", "limits.input"),
    ),
    "a variable without a value": (_nothing, (*RUN, "--var", "name"), ("--var",)),
    "an unknown variable": (
        _nothing,
        (*RUN, "--var", "custmer_id=8"),
        ("custmer_id", "write customer_id"),
    ),
    "a required variable": (
        _nothing,
        ("run", "weather"),
        ("customer_id", "--var customer_id=VALUE"),
    ),
    "a variable that is no text": (
        _nothing,
        ("run", "weather", "--var", "customer_id=\udcff"),
        ("--var",),
    ),
    "a server without a name": (_nothing, (*RUN, "--server", "python"), ("--server",)),
    "a server without a command": (_nothing, (*RUN, "--server", "a="), ("--server",)),
    "a server with half a quote": (_nothing, (*RUN, "--server", "a='b"), ("--server",)),
    "a server without a host": (
        _nothing,
        (*RUN, "--server", "a=http:///mcp"),
        ("--server a", "https://HOST/PATH"),
    ),
    "a server that is a file": (
        _nothing,
        (*RUN, "--server", "a=ftp://h/mcp"),
        ("--server a", "https://HOST/PATH"),
    ),
    "a server of that other name": (
        _nothing,
        (*RUN, "--server", "webhook=x"),
        ("--server",),
    ),
    "a pattern without a slash": (_nothing, (*RUN, "--allow", "echo"), ("--allow",)),
    "a pattern of all servers": (_nothing, (*RUN, "--allow", "*/echo"), ("--allow",)),
    "a host without a name": (_nothing, ("--host", "", "runs", "list"), ("--host",)),
    # -- names
    "an unknown command": (_nothing, ("rnus",), ("'rnus'", "'runs'")),
    "an unknown subcommand": (_nothing, ("runs", "lst"), ("'lst'", "'list'")),
    "an unknown option": (_nothing, ("run", "x", "--jsn"), ("'--jsn'", "'--json'")),
    "a missing argument": (_nothing, ("replay",), ("RUN", "caxton replay --help")),
    "a choice that is missing": (
        _nothing,
        ("mcp", "install"),
        ("'CLIENT'. Choose from: claude-desktop, claude-code,",),
    ),
    "a number that is none": (_nothing, ("runs", "list", "-n", "0"), ("--limit",)),
    "a shell that nobody has": (_nothing, ("completion", "tcsh"), ("tcsh",)),
    "an unknown server": (
        _nothing,
        ("server", "test", "demmo"),
        ("demmo", "write demo"),
    ),
    "a server to remove that is not there": (
        _nothing,
        ("server", "remove", "demmo"),
        ("demmo", "name demo"),
    ),
    "a server that is there": (
        _nothing,
        ("server", "add", "demo", "--", "x"),
        ("servers.demo",),
    ),
    "a server of nothing": (_nothing, ("server", "add", "x"), ("command or a URL",)),
    "a server with half an environment": (
        _nothing,
        ("server", "add", "x", "--env", CANARY, "--", "y"),
        ("--env",),
    ),
    "tools of an unknown server": (
        _nothing,
        ("tool", "list", "--server", "demmo"),
        ("demmo", "write demo"),
    ),
    "a tool without a server": (_nothing, ("tool", "call", "echo"), ("SERVER/TOOL",)),
    "an unknown tool": (_nothing, ("tool", "call", "demo/ecco"), ("write echo",)),
    "parameters that are none": (
        _nothing,
        ("tool", "call", "demo/echo", "text"),
        ("KEY=VALUE",),
    ),
    "a tool to show that is unknown": (
        _nothing,
        ("tool", "show", "demo/ecco"),
        ("write echo",),
    ),
    "a parameter of another type": (
        _nothing,
        ("tool", "call", "demo/slow", f"seconds={CANARY}"),
        ("seconds wants number", "seconds=1"),
    ),
    "a parameter that the tool has not": (
        _nothing,
        ("tool", "call", "demo/slow", "second=1"),
        ("write seconds=VALUE",),
    ),
    "a log of the wire in no folder": (
        _nothing,
        ("server", "test", "demo", "--wire-log=no/such/file"),
        ("--wire-log=wire.log",),
    ),
    "parameters that are half a map": (
        _nothing,
        ("tool", "call", "demo/echo", '{"a":'),
        ("parameters",),
    ),
    "a name for no agent": (_nothing, ("agent", "new", "../x"), ("../x",)),
    "a language for no agent": (
        _nothing,
        ("agent", "new", "x", "--lang", "b"),
        ("'b'",),
    ),
    "a folder without an agent": (_nothing, ("agent", "build", "."), ("no agent",)),
    "an import of nothing": (
        _nothing,
        ("init", "new", "--import", "no.json"),
        ("--import no.json",),
    ),
    "a freeze without a reason": (
        _nothing,
        ("freeze", "agent", "a"),
        ("--reason",),
    ),
    "neither a run nor all": (_nothing, ("events", "export"), ("--all",)),
    # -- the database
    "no database yet": (_nothing, ("runs", "list"), ("caxton.db", "run an agent")),
    "no last run": (
        lambda shell: shell("db", "migrate"),
        ("replay", "@last"),
        ("@last", "caxton runs list"),
    ),
    "an unknown run": (
        lambda shell: shell("db", "migrate"),
        ("events", "list", "0198"),
        ("0198", "caxton runs list"),
    ),
    "a text for a database": (
        lambda shell: shell.write("caxton.db", "hello\n" * 1000),
        RUN,
        ("caxton.db",),
    ),
    "another program's database": (
        lambda shell: _sql(shell.folder / "caxton.db", "CREATE TABLE mine (x)"),
        RUN,
        ("no log of this host",),
    ),
    "a folder for a database": (
        lambda shell: (shell.folder / "caxton.db").mkdir(),
        ("runs", "list"),
        ("caxton.db",),
    ),
    "a database of a later version": (
        _later,
        RUN,
        ("9999", "install the version"),
    ),
    "no URL for a database": (_nothing, ("--db", "caxton", "runs", "list"), ("--db",)),
    "a database of another kind": (
        _nothing,
        ("--db", "mysql://me:hunter3@host/x", *RUN),
        ("mysql",),
    ),
    "a database in memory": (_nothing, ("--db", "sqlite://", *RUN), ("memory",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_with_a_way_out_and_no_run(weather: Shell, case: str) -> None:
    arrange, words, names = REFUSED[case]
    arrange(weather)
    done = weather(*words)
    check(weather, done, *names)
    assert "hunter3" not in done.err


def test_a_run_id_that_two_runs_begin_with(weather: Shell) -> None:
    weather("demo", "--json")
    weather("demo", "--json")
    done = weather("runs", "show", "0")
    assert done.code == 2
    assert "more than one run" in done.err
    assert done.fix


def test_an_event_of_no_call_cannot_be_explained(weather: Shell) -> None:
    weather("demo", "--json")
    for seq, reason in (("1", "is RunStarted"), ("99", "does not exist")):
        done = weather("runs", "explain", "@last", seq)
        assert done.code == 2
        assert f"event {seq} {reason}" in done.err
        assert "at events: 2, 5, 7" in done.err
        assert done.fix


def test_a_call_is_explained_by_its_own_number_or_that_of_any_event(
    weather: Shell,
) -> None:
    weather("demo", "--json")
    second = weather("runs", "explain", "@last", "call", "2")
    assert second.out.startswith("call 2 (event 5)  ")
    for words in (["call 2"], ["event", "5"], ["event", "6"], ["5"]):
        assert weather("runs", "explain", "@last", *words).out == second.out
    for words in (["call", "9"], ["call"], ["run", "2"], ["event", "0"], ["2", "5"]):
        done = weather("runs", "explain", "@last", *words)
        assert (done.code, bool(done.fix)) == (2, True)
    assert weather("runs", "explain", "@last").code == 2


def test_a_damaged_database_is_not_taken_for_an_empty_one(weather: Shell) -> None:
    weather("demo", "--json")
    _sql(weather.database, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = weather.database.read_bytes()
    page = struct.unpack(">H", data[16:18])[0]
    weather.database.write_bytes(data[:page] + b"\xa5" * (len(data) - page))
    for words in (("runs", "list"), ("audit", "verify"), ("db", "status"), RUN):
        done = weather(*words)
        assert done.code in {2, 5}, done
        assert done.fix
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("agent", "new", "hello"),
        ("server", "add", "x", "--", "y"),
        ("db", "migrate"),
        ("run", "weather.wasm"),
    ],
    ids=" ".join,
)
def test_a_folder_that_cannot_be_written(
    shell: Shell, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(find_shared("agents/weather/weather.wasm"), shell.folder)
    # A file in the place of a folder stops even root, whom no permission does.
    monkeypatch.setenv("XDG_DATA_HOME", str(shell.write("file", "")))
    for name in ("agents", "hello", ".caxton.toml"):
        shell.write(name, "")
    if words[0] == "server":
        monkeypatch.setattr("tempfile.mkstemp", _read_only)
    check(shell, shell(*words))


def _read_only(**_options: object) -> None:
    raise PermissionError(13, "Permission denied", "caxton.toml")


def test_no_secret_is_shown_or_stored_by_a_run_that_works(weather: Shell) -> None:
    # law 8
    state = str(weather.folder / "state")
    arguments = ["-S", str(FAULTY), "tells_environment", state]
    told = CONFIG.replace(json.dumps(standin.command()["args"]), json.dumps(arguments))
    weather.write("caxton.toml", told.replace("demo/get_weather", "demo/*"))
    weather.write("weather.wasm", guest(call("mcp__demo__act"), output=True))
    run = weather(*RUN, "-i", f'"{CANARY}"')
    assert "1 call, 0 denied, 0 failed" in run.err
    assert "API_KEY" in weather("events", "list", "@last", "--json").out
    for words in (
        RUN,
        ("events", "list", "@last", "--json"),
        ("config", "show"),
        ("server", "list"),
        ("server", "test", "demo", "--json"),
        ("tool", "call", "demo/act"),
        ("tool", "call", "demo/echo", f"text={CANARY}"),
        ("agent", "list", "--json"),
    ):
        done = weather(*words)
        assert done.code == 0, done
        _no_canary(done.out.encode() + done.err.encode())
    assert weather.runs()
    for path in weather.folder.glob("*.db*"):
        _no_canary(path.read_bytes() if path.is_file() else b"")


def test_a_module_that_never_ends_to_start_is_a_run_that_failed(weather: Shell) -> None:
    weather.write("caxton.toml", CONFIG.replace('input = "1KiB"', 'compute = "100ms"'))
    weather.write("weather.wasm", guest(then=SPINS))
    done = weather(*RUN)
    assert (done.code, done.out) == (1, "")
    assert "Error: limit: compute" in done.err
    assert "raise limits.compute" in done.fix
    assert weather.types() == ["RunStarted", "RunFailed"]


@pytest.mark.parametrize(
    ("change", "state", "fix"),
    [
        ("UPDATE alembic_version SET version_num = '0000'", "older", "db migrate"),
        ("UPDATE alembic_version SET version_num = '9999'", "newer", "install the"),
        ("DELETE FROM alembic_version", "empty", "caxton db migrate"),
    ],
)
def test_the_state_of_another_schema_is_told(
    weather: Shell, change: str, state: str, fix: str
) -> None:
    weather("db", "migrate")
    _sql(weather.database, change)
    done = weather("db", "status", "--json")
    assert done.code == 1
    assert done.document["state"] == state
    assert fix in done.fix


def test_a_missing_guard_is_told(
    weather: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        confine.Guard(name="landlock", available=False, why="Linux 5.13 or newer"),
        confine.Guard(name="seccomp", available=True, why=""),
    ]
    monkeypatch.setattr(confine, "guards", lambda: found)
    done = weather("doctor")
    assert done.code == 1
    assert "guard     landlock       missing  Linux 5.13 or newer\n" in done.out
    assert "Error: this machine lacks landlock" in done.err
    assert done.fix
    assert weather("doctor", "--json").document["missing"] == ["landlock"]


def test_a_server_is_removed_from_no_file(shell: Shell) -> None:
    check(shell, shell("server", "remove", "x"), "caxton init")


def test_the_key_file_is_for_its_owner_alone(weather: Shell) -> None:
    weather("demo", "--json")
    state = Path(weather.environ["XDG_STATE_HOME"]) / "caxton"
    for name in ("cache.key", "signing.key"):
        assert stat.S_IMODE((state / name).stat().st_mode) == 0o600


def test_a_key_file_that_is_none(weather: Shell, tmp_path: Path) -> None:
    weather.set(XDG_STATE_HOME=str(tmp_path / "state"))
    weather.write(str(tmp_path / "state" / "caxton" / "cache.key"), "short")
    check(weather, weather(*RUN), "cache.key")
