"""``pytest --caxton-history``: recorded runs as a suite of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.lib.signing import Keyring

from .shell import Shell

pytest_plugins = ["pytester"]

REFUSED = {
    "--caxton-key=00": "ERROR: --caxton-key 00 is no public key",
    "--caxton-history=agents": "ERROR: --caxton-history: agents has no bundle",
    "--caxton-config=no.toml": "ERROR: *no.toml*",
}


@pytest.fixture
def project(
    pytester: pytest.Pytester, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """A project with a golden run."""
    assert pytester.path != shell.folder
    monkeypatch.chdir(shell.folder)  # where pytester runs
    shell("init")
    shell("run", "weather", "-i", '{"location": "Lima"}')
    (shell.folder / "golden").mkdir()
    assert shell("audit", "export", "@last", "-o", "golden/lima.caxton").code == 0
    return shell


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    # faulthandler would take wasmtime's signal handlers away from this process.
    without = ("cacheprovider", "faulthandler", "randomly", "schemathesis")
    quick = [option for name in without for option in ("-p", f"no:{name}")]
    return pytester.runpytest_inprocess(*quick, "--caxton-history=golden", *options)


def change(project: Shell) -> None:
    """Build the agent again, so that its third call says something else."""
    module = project.folder / "agents/weather.wasm"
    was = module.read_bytes()
    module.write_bytes(was.replace(b"is anybody there?", b"is anybody here!?"))


def test_a_golden_run_is_a_test_of_the_agent_of_today(
    project: Shell, pytester: pytest.Pytester
) -> None:
    # law 6
    project.database.rename("away.db")  # Nothing but the files is needed.
    listed = run(pytester, "--collect-only", "-q")
    listed.stdout.fnmatch_lines(
        ["golden/lima.caxton::weather-????????-????-demo.get_weather-*-demo.echo"]
    )
    run(pytester, "-k", "demo.get_weather").assert_outcomes(passed=1)
    run(pytester, "-k", "refund").assert_outcomes(deselected=1)
    change(project)
    failed = run(pytester, "--junitxml=junit.xml")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [
            "weather differs from run *: event 7, $.params.text",
            "  recorded: 'is anybody there[?]'",
            "  now:      'is anybody here![?]'",
            "To fix: change the agent; or, if this is right, record a run that *:",
            """  caxton run weather -i '{"location": "Lima"}'""",
            "  caxton runs replace golden/lima.caxton @last",
        ]
    )
    failed.stdout.no_fnmatch_line("*.py:*")
    assert "event 7, $.params.text" in Path("junit.xml").read_text(encoding="utf-8")
    # An agent that the project no longer has is executed as recorded.
    configured = Path("caxton.toml").read_text(encoding="utf-8")
    Path("caxton.toml").write_text("version = 1\n", encoding="utf-8")
    run(pytester).assert_outcomes(passed=1)

    # The recording is replaced by a run of the agent of today, after a review.
    Path("caxton.toml").write_text(configured, encoding="utf-8")
    Path("away.db").rename("caxton.db")
    project("run", "weather", "-i", '{"location": "Seattle"}')
    replace = ("runs", "replace", "golden/lima.caxton", "@last")
    asked = project(*replace)
    assert asked.code == 2
    assert asked.fix == "review it, then add --yes"
    assert "the input differs, $.location: Lima became Seattle" in asked.err
    assert '$.params.text\t"is anybody there?"\t"is anybody here!?"' in asked.out
    told = project(*replace, "--yes", "--json").document
    assert [told["path"]] == [str(path) for path in Path("golden").iterdir()]
    assert told["difference"]["calls"][0]["call"] == 1
    run(pytester).assert_outcomes(passed=1)


def test_a_bundle_that_is_not_verified_fails_and_is_not_interpreted(
    project: Shell, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 9
    bundle = project.folder / "golden/lima.caxton"
    content = bundle.read_bytes()
    bundle.with_name("edited.caxton").write_bytes(content.replace(b'"at":1', b'"at":2'))
    bundle.with_name("text.caxton").write_text("no bundle\n", encoding="utf-8")
    failed = run(pytester, "-n", "1")
    failed.assert_outcomes(passed=1, failed=2)
    failed.stdout.fnmatch_lines(
        [
            "edited.caxton is not verified: run/* event 1: it is not what was written*",
            "To fix: restore the file from version control, or export the run again",
            "text.caxton is not verified: the header of the bundle: *",
        ]
    )
    key = Keyring(Path(project.environ["XDG_STATE_HOME"]) / "caxton").public_key()
    edited = ("--deselect=golden/edited.caxton", "--deselect=golden/text.caxton")
    run(pytester, f"--caxton-key={key.hex()}", *edited).assert_outcomes(
        passed=1, deselected=2
    )
    other = run(pytester, f"--caxton-key={'00' * 32}", *edited)
    other.assert_outcomes(failed=1, deselected=2)
    other.stdout.fnmatch_lines(
        [
            "*_ lima _*",
            "lima.caxton is not verified: it is signed by a key that is not trusted, *",
            "To fix: * give it with --caxton-key, or in [[]audit[]] trusted_keys",
        ]
    )

    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(project.folder / "elsewhere"))
        replaced = project("runs", "replace", "golden/lima.caxton", "@last", "--yes")
    assert replaced.code == 5
    assert replaced.fix.endswith("or in [audit] trusted_keys")  # no --key here

    # A name can neither forge a line of the report nor steer the terminal.
    bundle.rename(bundle.with_name("x.old"))
    bundle.with_name("a\nFORGED\x1b[31m\u202e.caxton").touch()
    forged = run(pytester, *edited)
    forged.stdout.fnmatch_lines(
        ["*_ a-FORGED-31m- _*", "'a?nFORGED?x1b*31m?u202e.caxton' is not verified: *"]
    )

    for options, said in REFUSED.items():
        refused = run(pytester, *options.split())
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines([said, "To fix: *"])


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("folder", ["build", "golden/.old"])
def test_a_folder_that_pytest_passes_over_fails(
    pytester: pytest.Pytester, folder: str
) -> None:
    Path("test_other.py").write_text("def test_other(): pass\n", encoding="utf-8")
    Path("golden/lima.caxton").rename("lima")
    Path(folder).mkdir()
    Path("lima").rename(f"{folder}/lima.caxton")
    named = f"--caxton-history={Path(folder).parts[0]}"
    for many in ((), ("-n", "1")):
        refused = run(pytester, named, *many)
        refused.assert_outcomes(passed=1, failed=1)
        refused.stdout.fnmatch_lines(["pytest collects no bundle in *", "To fix: *"])


def test_a_sample_has_each_sequence_once_and_no_module(
    project: Shell, pytester: pytest.Pytester
) -> None:
    project("run", "weather", "-i", '{"location": "Seattle"}')
    sampled = ("runs", "sample", "-o", "few", "--json")
    told = project(*sampled).document
    assert told["coverage"]["runs"] == {"kept": 2, "all": 2}
    assert told["coverage"]["sequences"] == {"kept": 1, "all": 1}
    assert told["coverage"]["denials"] == {"kept": 2, "all": 2}
    assert (told["written"], told["left_out"]) == (1, 0)
    assert project(*sampled).document == {**told, "written": 0}
    run(pytester, "--caxton-history=few").assert_outcomes(passed=1)

    Path("caxton.toml").write_text("version = 1\n", encoding="utf-8")
    failed = run(pytester, "--caxton-history=few")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [
            "neither the project nor the bundle has weather",
            "To fix: add the agent to *, or * caxton runs sample --code",
        ]
    )
    assert project("runs", "sample", "-o", "whole", "--code").code == 0
    run(pytester, "--caxton-history=whole").assert_outcomes(passed=1)
    none = project("runs", "sample", "-o", "few", "--agent", "nobody")
    assert none.code == 2
    assert none.fix.startswith("caxton runs list")
