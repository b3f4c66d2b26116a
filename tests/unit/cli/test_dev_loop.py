"""What ``caxton agent dev`` does next, and what it watches."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from caxton_host.cli.dev_files import Stamps, Target, sources, stamps, watch
from caxton_host.cli.dev_loop import Action, Phase, Signal, step
from caxton_host.config import Agent, Config
from caxton_host.errors import UsageError


def follow(*signals: Signal) -> tuple[Phase, list[Action]]:
    phase: Phase = "idle"
    done: list[Action] = []
    for signal in signals:
        phase, action = step(phase, signal)
        done += [action] if action else []
    return phase, done


def test_changes_during_a_run_stop_it_once_and_run_once() -> None:
    assert follow("changed", "changed", "changed", "run", "ended", "ended") == (
        "idle",
        ["run", "stop", "run"],
    )


@pytest.mark.parametrize("key", ["replay", "explain"])
def test_key_that_needs_a_run_waits_for_the_end_of_it(key: Signal) -> None:
    assert follow("changed", key, "ended", "ended") == ("idle", ["run", key])
    assert follow("changed", key, "changed", "ended", "ended") == (
        "idle",
        ["run", "stop", "run"],
    )
    assert follow("changed", key, "quit", "ended") == ("over", ["run", "stop"])


@pytest.mark.parametrize(
    ("signals", "actions"),
    [
        (("quit",), []),
        (("changed", "quit", "changed", "ended"), ["run", "stop"]),
        (("changed", "changed", "quit", "ended"), ["run", "stop"]),
    ],
)
def test_quit_waits_for_what_is_under_way(
    signals: tuple[Signal, ...], actions: list[Action]
) -> None:
    assert follow(*signals) == ("over", actions)


def test_end_follows_each_action() -> None:
    for phase in get_args(Phase):
        if phase not in {"idle", "over"}:
            assert step(phase, "ended")[0] != phase


async def test_change_counts_once_it_is_there_twice() -> None:
    one, half, two = ({Path("a"): (0, size, 0)} for size in range(3))
    looks: list[Stamps] = [two, two, two, half, one, one]
    left: list[int] = []

    with pytest.raises(IndexError):  # There is nothing more to look at.
        await watch(looks.pop, lambda: left.append(len(looks)), 0)

    assert left == [1]


def test_folder_is_watched_without_caches_and_modules(tmp_path: Path) -> None:
    for name in ("agent.c", "agent.toml", "hello.wasm", ".git/x", "__pycache__/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    assert {path.name for path in sources(tmp_path)} == {"agent.c", "agent.toml"}


def test_stamps_change_when_a_file_is_made_written_or_removed(tmp_path: Path) -> None:
    file = tmp_path / "a"
    missing = stamps([file])
    file.write_text("1")
    made = stamps([file])
    file.write_text("12")

    assert missing == {}
    assert made != stamps([file])


def config(**agents: Agent) -> Config:
    return Config(store_url="memory", agents=agents)


def test_configured_agent_with_that_file_is_the_one_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.touch()
    mine = Agent(name="mine", program=file)
    target = Target.of(file, config(mine=mine))

    assert target.agent(config(mine=mine)) is mine
    assert target.agent(config()).name == "a"
    assert [*target.files()] == [file, tmp_path / "a.py.lock"]


def test_folder_is_built_to_the_module_of_its_configured_agent(tmp_path: Path) -> None:
    folder = tmp_path / "hello"
    folder.mkdir()
    (folder / "agent.c").touch()
    module = tmp_path / "modules" / "hello.wasm"
    agent = Agent(name="hi", module=module)

    assert Target.of(folder, config(hi=agent)).file == module
    assert Target.of(folder, config()).file == Path.cwd() / "hello.wasm"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        Target.of(tmp_path / "none", config())
