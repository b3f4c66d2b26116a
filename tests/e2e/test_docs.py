"""Every command that a page shows runs as it is printed, in the order of the page."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from .serving import served
from .shell import SOON, Shell, toml

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TUTORIALS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))

FLAGS = re.MULTILINE | re.DOTALL
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", FLAGS)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
#: .ci/run types these, in a fresh clone, or has them installed.
_INSTALLS = (
    "python3 -m venv ",
    ". .venv/bin/activate",
    "pip install ",
    "sudo apt-get install ",
)
#: What a line has that is more than a command and its arguments.
_FOR_A_SHELL = re.compile(r"[|&;<>$`*~(]|\s#")


class Block(NamedTuple):
    """
    Something that a page shows between backquotes.

    Attributes:
        file: What the reader is to call it: ```` ```json storm.json ````; or "".
    """

    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return each block of *page*, without installations."""
    matches = _BLOCK.finditer(page.read_text("utf-8"))
    found = [Block(match[1], match[2] or "", match[3]) for match in matches]
    return [block for block in found if not _installs(block.text)]


def _installs(text: str) -> bool:
    return all(line.startswith(_INSTALLS) for line in text.splitlines())


def commands(language: str, text: str) -> list[str]:
    """Return the command lines of a block; where there are prompts, those alone."""
    if language not in {"sh", "console"}:
        return []
    lines = text.replace("\\\n", " ").splitlines()
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line and line[0] != "#"]


def type_in(shell: Shell, line: str, code: int = 0) -> str:
    """Run a line in a shell, or in this process if it is one command of caxton."""
    if line.startswith("caxton ") and not _FOR_A_SHELL.search(line):
        typed = shell(*shlex.split(line)[1:])
        assert typed.code == code, f"{line}\n{typed.err}"
        return typed.out
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=shell.folder,
        env={**shell.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert done.returncode == code, f"{line}\n{done.stderr}"
    return done.stdout


def transcript(text: str) -> list[tuple[str, str]]:
    """Return the commands behind prompts, and what is shown below each."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return [*zip(parts[1::2], parts[2::2], strict=True)]


def timeless(text: str) -> str:
    """Return *text* without times of day and durations, which differ between runs."""
    return re.sub(r"\d\d:\d\d:\d\d\.\d{3}|\b\d+ ms\b", "-", text)


def add(shell: Shell, text: str) -> None:
    """Add to the configuration what the reader is to add."""
    file = shell.folder / "caxton.toml"
    file.write_text(f"{file.read_text()}\n{text}")


def test_the_readme(runtimes: Shell) -> None:
    shell = runtimes
    typed: list[str] = []
    out = ""
    here = "http://127.0.0.1:8080"
    with contextlib.ExitStack() as stack:
        for language, name, text in blocks(README):
            if name:
                shell.write(name, text)
            if language == "toml":
                add(shell, text)
            shown = dict(transcript(text))
            for line in commands(language, text):
                typed.append(line)
                if line == "caxton serve &":
                    token = (shell.folder / "token.txt").read_text().strip()
                    here = stack.enter_context(served(shell, good=token)).url
                    continue
                out = type_in(shell, line.replace("http://127.0.0.1:8080", here))
                assert timeless(shown.get(line, out)) == timeless(out)
    assert {"caxton demo", "caxton run abroad", "caxton serve &"} <= {*typed}
    assert "hello" in out


@pytest.mark.timeout(400)  # runtimes are built first, and a machine may be busy
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.stem,
            marks=[pytest.mark.debian] if page.stem.endswith("rust") else [],
        )
        for page in TUTORIALS
    ],
)
def test_a_tutorial(shell: Shell, page: Path, request: pytest.FixtureRequest) -> None:
    needed = {"first-agent-javascript": "javascript", "first-program": "runtimes"}
    if page.stem in needed:
        request.getfixturevalue(needed[page.stem])
    typed: dict[str, str] = {}
    for language, name, text in blocks(page):
        if name:
            shell.write(name, text)
        elif language == "toml":
            add(shell, text)
        shown = dict(transcript(text))
        for line in commands(language, text):
            out = typed[line] = type_in(shell, line)
            assert shown.get(line, out) == out
    assert typed
    if page.stem == "first-program":
        denied, granted = [typed[line] for line in typed if " run " in line]
        assert denied.strip() in page.read_text("utf-8")
        assert granted.startswith('{"time": "')
        assert typed["caxton replay @last"].startswith("identical")
    if page.stem.startswith("first-agent"):
        runs = [out for line, out in typed.items() if line.startswith("caxton run ")]
        assert '"time": ' in runs[0]
        assert runs[1] == '{"error": "not_granted"}\n'
        assert typed.get("caxton run hello", '{"time": ').startswith('{"time": ')
        assert typed["caxton replay @last"].startswith("identical")
        if page.stem == "first-agent-rust":
            assert runs[2].startswith('{"times": [{"zone": "Europe/Oslo", "time": ')


def test_the_page_about_forks(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "fork-diff-step.md"
    found = blocks(page)
    # The page shows what is in the file after the command that reads it.
    for block in found:
        if block.file:
            shell.write(block.file, block.text)
    typed: dict[str, str] = {}
    for language, _, text in found:
        for line in commands(language, text):
            name = shell.runs()[0].removeprefix("run/") if shell.runs() else ""
            differs = line.startswith("caxton runs diff")
            typed[line] = type_in(shell, line.replace("RUN", name), int(differs))
    assert typed["caxton replay @last"].startswith("identical")
    assert "first difference: call 3" in typed["caxton runs diff RUN @last"]


def test_the_page_about_approvals(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "approve-calls.md"
    told: list[str] = []
    for language, name, text in blocks(page):
        if name:
            shell.write(name, text)
        for line in commands(language, text):
            waits = line.startswith("caxton run ")
            told.append(type_in(shell, line, 3 if waits else 0))
    assert any('"Seattle"' in text for text in told)
    assert any("verdict   approval, rule allow[1]" in text for text in told)
    assert shell.types().count("ApprovalDecided") == 2


def test_the_page_about_agents_that_call_agents(shell: Shell) -> None:
    told: list[str] = []
    for language, name, text in blocks(ROOT / "docs" / "how-to" / "call-agents.md"):
        if name:
            shell.write(name, text)
        told += [type_in(shell, line) for line in commands(language, text)]
    assert told[2].count("completed") == 2
    assert "identical" in told[3]


def test_the_page_about_freezes(shell: Shell) -> None:
    codes = iter([2, 3])
    for language, _, text in blocks(ROOT / "docs" / "how-to" / "stop-an-agent.md"):
        for line in commands(language, text):
            is_frozen = line.startswith("caxton run ")
            type_in(shell, line, next(codes) if is_frozen else 0)
    assert shell.types()[-1] == "RunCompleted"
    assert "RunSuspended" in shell.types()


def test_the_page_about_exports(shell: Shell) -> None:
    shell("demo")
    for language, _, text in blocks(ROOT / "docs" / "how-to" / "export.md"):
        for line in commands(language, text):
            type_in(shell, line)
    assert (shell.folder / "calls.cursor").exists()


def test_the_page_about_pins(shell: Shell) -> None:
    said: list[str] = []
    for language, name, text in blocks(ROOT / "docs" / "how-to" / "pin-agents.md"):
        if name:
            shell.write(name, text)
        elif language == "toml":
            (key,) = [line for line in said if line.startswith("RW")]
            pinned = re.sub(r"RW[^\"]+", key.strip(), text)
            shell.write("caxton.toml", f"version = 1\n{pinned}")
            assert shell("run", "hello").code == 0
        said += [type_in(shell, line) for line in commands(language, text)]
    assert "hello.wasm is what " in said[-1]


def test_the_page_about_schedules(shell: Shell) -> None:
    said: list[str] = []
    for language, _, text in blocks(ROOT / "docs/how-to/run-on-a-schedule.md"):
        if language == "toml":
            add(shell, text)
        said += [type_in(shell, line) for line in commands(language, text)]
    assert [line for line in said if "paused" in line and "morning" in line]


def test_the_page_about_monitoring(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "monitor.md"
    shell("init")
    for language, _, text in blocks(page):
        for line in commands(language, text):
            assert type_in(shell, f"{line} 2>> said.log")
    told = (shell.folder / "said.log").read_text("utf-8")
    assert '"message": "call settled"' in told
    assert re.search(r"Z info    call settled run=\S+ agent=weather ", told)


@pytest.mark.long
@pytest.mark.long
def test_the_runbook(shell: Shell) -> None:
    shell("init")
    shell("run", "weather", "-i", '{"location": "Seattle"}')
    shell("serve", "token", "create", "--name", "laptop", "--scope", "run")
    for language, _, text in blocks(ROOT / "docs" / "how-to" / "operate.md"):
        for line in commands(language, text):
            type_in(shell, line)


@pytest.mark.long
def test_the_page_about_tests(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "test-an-agent.md"
    told: dict[str, str] = {}
    code = ""
    for language, _, text in blocks(page):
        if language == "python":
            code += text
            shell.write("test_weather.py", code)
        for line in commands(language, text):
            if not line.startswith(_INSTALLS):
                told[line] = type_in(shell, line)
    assert "3 passed" in told["pytest --caxton-record=once"]
    (shell.folder / "caxton.toml").unlink()
    assert "3 passed" in type_in(shell, "pytest")
    (cassette,) = shell.folder.glob("cassettes/test_weather/*.json")
    changed = cassette.read_text("utf-8").replace("is anybody", "is anyone")
    cassette.write_text(changed, encoding="utf-8")
    (shown,) = (text for language, _, text in blocks(page) if language == "text")
    assert shown in type_in(shell, "pytest", 1)


def test_the_page_about_a_history_in_ci(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "history-in-ci.md"
    shell.set(
        PYTEST_ADDOPTS="-p no:schemathesis"
    )  # slow to import, and not the reader's
    told: dict[str, str] = {}
    for language, _, text in blocks(page):
        if language == "toml":
            key = told["caxton audit key"].split("public_key", 1)[1].split()[0]
            with (shell.folder / "caxton.toml").open("a", encoding="utf-8") as file:
                file.write(text.replace("KEY", key))
        if language == "yaml":
            steps = yaml.safe_load(text)["jobs"]["history"]["steps"]
            (last,) = (s["run"] for s in steps if s.get("run", "").startswith("pytest"))
            (shell.folder / "caxton.db").rename(shell.folder / "away.db")
            assert "1 passed" in type_in(shell, last)
            (shell.folder / "away.db").rename(shell.folder / "caxton.db")
        for line in commands(language, text):
            if not line.startswith(_INSTALLS):
                old = next(shell.folder.glob("golden/*"), Path("OLD"))
                told[line] = type_in(shell, line.replace("OLD", old.stem))
    assert "sequences\t1\t1\n" in told[next(one for one in told if "sample" in one)]
    assert "1 passed" in told["pytest --caxton-history=golden"]


def test_the_page_about_the_configuration(shell: Shell) -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert shell("init").code == 0

    lines = [line for block in blocks(page) for line in commands(*block[::2])]
    told = {line: type_in(shell, line) for line in lines}

    assert len(told) == 3
    assert '"origins": {' in told["caxton config show"]
    assert (shell.folder / "caxton.schema.json").exists()


def test_the_page_about_grants(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "write-grants.md"
    typed: list[str] = []
    for language, name, text in blocks(page):
        if name:
            shell.write(name, text)
        for said in text.split("$ ")[1:] if language == "console" else ():
            line, _, shown = said.partition("\n")
            denied = line.startswith("caxton grant explain") or line.endswith("7d")
            told = type_in(shell, line, int(denied))
            assert told == shown or line in _LONG, line
            typed.append(line)
    assert typed[-1] == "caxton grant check"


#: What it prints has ids and times in it.
_LONG = {"caxton grant what-if new.toml --since 7d"}


def test_the_page_about_confined_servers(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "confine-servers.md"
    typed: list[str] = []
    for language, _, text in blocks(page):
        for line in commands(language, text):
            told = type_in(shell, line)
            assert "Landlock version" in told or line.startswith("caxton server add")
            typed.append(line)
        if language == "toml":
            shell.write("caxton.toml", "version = 1\n" + text)
            assert shell("config", "show").code == 0
            shell.write("caxton.toml", "version = 1\n")
    assert typed[-1] == "caxton server test time"


def test_the_configuration_that_the_readme_shows_is_one(shell: Shell) -> None:
    time = {"command": "python", "args": ["-m", "mcp_server_time"]}
    for language, _, text in blocks(README):
        if language == "toml":
            shell.write("caxton.toml", toml({"servers.time": time}, text))
            done = shell("config", "show", "--json")
            assert (done.code, done.err) == (0, "")
            shown = done.document
            hosted = [*shown["agents"].values(), *shown["sessions"].values()]
            assert hosted[0]["grant"]["allow"]


def test_the_page_about_finding_runs(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "find-runs.md"
    shell("init")
    shell("run", "weather")
    for language, _, text in blocks(page):
        for line in commands(language, text):
            type_in(shell, line)


def test_the_page_about_changes_and_the_history(shell: Shell) -> None:
    page = ROOT / "docs" / "how-to" / "judge-a-change.md"
    for language, name, text in blocks(page):
        if name:
            shell.write(name, text)
        for line in commands(language, text):
            changes = language == "console"
            told = type_in(shell, line, 4 if changes else 0).splitlines()
            for shown in text.splitlines()[1:] if changes else ():
                assert shown in told
    assert (shell.folder / "history.html").exists()


def test_there_are_pages() -> None:
    assert TUTORIALS
    assert any(block.language == "toml" for block in blocks(README))


def test_every_page_is_linked_and_every_link_leads_somewhere() -> None:
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    linked = {README}
    for page in pages:
        for target in _LINK.findall(page.read_text("utf-8")):
            if "://" not in target:
                found = (page.parent / target.partition("#")[0]).resolve()
                assert found.exists(), f"{page.relative_to(ROOT)} leads to {target}"
                linked.add(found)
    assert {*pages} <= linked


def test_the_index_has_an_entry_for_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    found = _LINK.findall(index.read_text("utf-8"))
    linked = {(index.parent / target).resolve() for target in found}
    pages = {*index.parent.rglob("*.md")} - {index}
    decisions = {*(index.parent / "decisions").glob("0*.md")}
    assert pages - decisions <= linked


def test_every_decision_says_its_status_and_its_date() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    for page in pages:
        title, _, status, *_ = page.read_text("utf-8").splitlines()
        assert title.startswith(f"# {page.name[:4]}. ")
        assert re.fullmatch(r"(Accepted|Replaced by \d{4}), \d{4}-\d\d-\d\d\.", status)
    assert pages


def test_the_decision_for_mcp_says_what_was_refused_and_where_to_read_on() -> None:
    page = ROOT / "docs" / "decisions" / "0012-mcp-for-tools.md"
    parts = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page.read_text(), FLAGS))
    refused = re.findall(r"^- \*(.+?)\.\*\s+\w", parts["Refused"], re.MULTILINE)
    assert refused == [
        "Functions of the host, called directly",
        "A tool protocol of our own",
        "REST or GraphQL",
        "WASI",
    ]
    assert len(_LINK.findall(parts["To read on"])) == 4


def test_the_page_about_clients_behind_the_host(shell: Shell) -> None:
    seen: dict[str, list[str]] = {}
    for language, name, text in blocks(ROOT / "docs" / "how-to" / "govern-a-client.md"):
        if name:
            shell.write(name, text)
        for line in commands(language, text):
            type_in(shell, line)
            found = json.loads((shell.folder / ".mcp.json").read_text("utf-8"))
            seen[line] = [*found["mcpServers"]]
    five = ["time", "git", "fetch", "files", "everything"]
    assert [*seen.values()][:2] == [["caxton"], five]
    assert (shell.folder / "secrets" / "FETCH_FETCH_TOKEN").exists()
    assert not (shell.folder / ".mcp.json.before-caxton").exists()
