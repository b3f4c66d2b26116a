"""
Measure how many mutants of agents and of grants a recorded history finds.

The history is about fifty runs of three example agents, as programs, on real tool
servers, and a few runs of a program that misbehaves under the same grants: who only
behaves never shows what a wider grant would let through. A mutant is found if
``caxton replay --all`` says that a recorded run would be otherwise. Each one that is
not found is printed. A wider glob that matches no other tool of its server is none.
"""

from __future__ import annotations

import argparse
import json
import os
import random  # noqa: TID251 -- drawn from a named seed
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from .mutants import of_grant, of_program
from .page import Figure, Section

_AGENTS = Path(__file__).parent.parent / "agents"
_PROGRAMS = {
    "weather": "weather/weather.py",
    "researcher": "researcher/agent.py",
    "assistant": "assistant/agent.py",
}
_KINDS = ("bound", "dropped", "widened", "order")
_TARGET = 0.9

#: What each agent is given, and how often in a row.
_INPUTS: Mapping[str, Sequence[Any]] = {
    "weather": [
        None,
        {},
        [],
        "Tokyo",
        {"location": ""},
        {"location": 5},
        {"location": "Atlantis"},
        *({"location": city} for city in ("Tokyo", "Lagos", "Lima", "Berlin")),
    ],
    "researcher": [
        *({"folder": f"/{name}"} for name in ("empty", "one", "mixed", "many")),
        *({"folder": f"/{name}"} for name in ("sixteen", "seventeen", "words")),
        {"folder": "/one/"},
        {"folder": "/nowhere"},
        {},
    ],
    "assistant": [
        {"question": "What is the weather in Tokyo?"},
        {"question": "How is it in Lima and in Lagos and in Berlin?"},
        {"question": "What is it like?"},
        {"question": "Is it warm in Tokyo or in Atlantis, in Lima or in Oslo?"},
        {},
    ],
}

#: The tools of each server.
_TOOLS: Mapping[str, Sequence[str]] = {
    "demo": [
        *("get_weather", "echo", "slow", "fail", "picture"),
        *("read_mail", "list_suppliers", "pay", "large"),
    ],
    "files": ["list_directory", "read_text_file", "write_file"],
    "model": ["complete"],
}


def _probes(agent: str) -> list[list[Any]]:
    """Return what the program that misbehaves is given under the grant of an agent."""

    def calls(server: str, tool: str, *params: dict[str, Any]) -> list[Any]:
        return [[f"mcp__{server}__{tool}", one] for one in params]

    odd: list[dict[str, Any]] = [
        {},
        {"location": "Lima"},
        {"text": "x" * 30},
        {"path": "/one/a.md"},
        {"path": "/one/SUMMARY.md", "content": "x"},
        {"messages": [{"content": "?"}], "tools": []},
    ]
    every = [
        call
        for server, tools in _TOOLS.items()
        for tool in tools
        if tool not in {"slow", "large"}
        for call in calls(server, tool, *odd)
    ]
    say = calls("demo", "echo", {"text": "is anybody there?"})
    (look,) = calls("demo", "get_weather", {"location": "Lima"})
    (ask,) = calls("model", "complete", odd[-1])
    if agent.startswith("assistant"):
        return [[look, ask, look], [ask] * 8 + [look] * 6, every, [ask, *every]]
    if agent.startswith("weather"):
        texts = calls("demo", "echo", *({"text": "x" * n} for n in range(19, 45)))
        places = [{"location": "X" + "x" * n} for n in range(16)]
        one_by_one = [calls("demo", "get_weather", place) for place in places]
        return [[*say, look, *say, look], [look, *texts], *one_by_one, every]
    paths = ({"path": f"/one/{'a' * n}.md"} for n in range(1, 30))
    read = calls("files", "read_text_file", *paths)
    listed = calls("files", "list_directory", {"path": "/one"})
    write = calls(
        "files",
        "write_file",
        *(
            {"path": path, "content": "x" * n}
            for path in ("/one/SUMMARY.md", "/one/SUMMARY.txt", "/one/other.md")
            for n in (1, 119, 120, 121, 122, 240, 241)
        ),
    )
    names = ("/mixed/a.rst", "/mixed/c.py", "/mixed/empty.md", "/one/a.txt")
    others = calls("files", "read_text_file", *({"path": name} for name in names))
    return [
        [*listed * 4, *read],
        [read[0], *write],
        [*write, *others],
        [read[0]] * 40,
        others,
        [*calls("files", "list_directory", {"path": "/mixed/e"}), read[0], *write],
        every,
        [read[0], *every],
    ]


#: By agent: the rules of its grants. Each variant has runs of its own.
_GRANTS: Mapping[str, Mapping[str, Any]] = {
    "weather": {
        "allow": [
            {
                "tools": ["demo/get_weather"],
                "calls": "1/run",
                "params": {"location": {"pattern": "[A-Z][a-z]*", "max_length": 7}},
            },
            {
                "tools": ["demo/echo"],
                "only_after": ["demo/get_weather"],
                "params": {"text": {"min_length": 21}},
            },
        ],
        "deny": [
            {"tools": ["demo/get_weather"], "params": {"location": {"const": "Lagos"}}}
        ],
    },
    "weather-open": {
        "allow": [
            {"tools": ["demo/get_weather"], "params": {"location": {"max_length": 5}}},
            {"tools": ["demo/echo"], "unless_after": ["demo/get_weather"]},
        ]
    },
    "researcher": {
        "allow": [
            {"tools": ["files/list_directory"], "calls": "1/run"},
            {
                "tools": ["files/read_text_file"],
                "calls": "17/run",
                "params": {"path": {"glob": "/*/*.md"}},
            },
            {
                "tools": ["files/write_file"],
                "only_after": ["files/read_text_file"],
                "params": {
                    "path": {"glob": "/*/SUMMARY.md"},
                    "content": {"max_length": 120},
                },
            },
        ],
        "deny": [
            {
                "tools": ["files/read_text_file"],
                "params": {"path": {"glob": "/mixed/e*"}},
            }
        ],
    },
    "researcher-reads": {
        "allow": [
            {"tools": ["files/list_directory"]},
            {
                "tools": ["files/read_text_file"],
                "calls": "16/run",
                "params": {"path": {"max_length": 14}},
            },
            {"tools": ["files/write_file"], "unless_after": ["files/read_text_file"]},
        ]
    },
    "assistant": {
        "allow": [
            {"tools": ["model/complete"], "calls": "3/run"},
            {
                "tools": ["demo/get_weather"],
                "calls": "2/run",
                "only_after": ["model/complete"],
            },
        ]
    },
}


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the mutation score of a history."""
    runs = _record(folder)
    chance = random.Random(options.seed)  # noqa: S311 -- a sample
    programs = [
        (f"{name}: {what}", name, source)
        for name, path in _PROGRAMS.items()
        for what, source in of_program((_AGENTS / path).read_text("utf-8"))
    ]
    by_kind: dict[str, list[tuple[str, str, dict[str, Any]]]] = {k: [] for k in _KINDS}
    for name, grant in _GRANTS.items():
        for kind, what, changed in of_grant(grant, _TOOLS):
            by_kind[kind].append((f"{name}: {what}", name, changed))
    figures = [
        _figure("mutants of programs", _of_programs(folder, _some(chance, programs)))
    ]
    for kind, grants in by_kind.items():
        found = _of_grants(folder, _some(chance, grants))
        figures.append(_figure(f"mutants of grants: {kind}", found))
    return Section(
        "history",
        "What a recorded history finds",
        f"{runs} recorded runs of the example agents weather, researcher and "
        "assistant, as programs, and of one that misbehaves. Of each kind at most 100 "
        f"mutants, drawn from the seed {options.seed}; one is found if "
        "`caxton replay --all` exits with 4.",
        tuple(figures),
    )


def _some(chance: random.Random, every: Sequence[Any]) -> list[Any]:
    return chance.sample(every, min(100, len(every)))


def _figure(what: str, found: Iterator[tuple[str, bool]]) -> Figure:
    verdicts = [*found]
    for name, is_found in verdicts:
        if not is_found:
            print(f"not found: {what}: {name}", file=sys.stderr)
    share = sum(is_found for _, is_found in verdicts) / len(verdicts)
    return Figure(
        f"{what} ({len(verdicts)})", [100 * share], "%", (100 * _TARGET, True)
    )


def _record(folder: Path) -> int:
    """Record the runs of the history, and return how many there are."""
    (folder / "caxton.toml").write_text(_configuration(_GRANTS))
    count = 0
    for agent in _GRANTS:
        for given in _INPUTS[agent.partition("-")[0]]:
            words = ("-i", json.dumps(given)) if given is not None else ()
            # The end of a run that fails belongs to the history too.
            _caxton(folder, "run", agent, *words)
            count += 1
        for calls in _probes(agent):
            _caxton(folder, "run", f"{agent}-probed", "-i", json.dumps(calls))
            count += 1
    return count


def _configuration(grants: Mapping[str, Mapping[str, Any]]) -> str:
    python = sys.executable
    servers = {
        "demo": [python, "-m", "caxton_host.demo_server"],
        "files": [python, str(Path(__file__).with_name("folder_server.py"))],
        "model": [python, str(_AGENTS / "assistant" / "model_server.py")],
    }
    agents: dict[str, Any] = {}
    for name, grant in grants.items():
        names = {"names": {"weather": "demo/get_weather"}} if "weather" in name else {}
        own = str(_AGENTS / _PROGRAMS[name.partition("-")[0]])
        agents[name] = {"program": own, **names, **grant}
        probe = str(Path(__file__).with_name("probe.py"))
        agents[f"{name}-probed"] = {"program": probe, **grant}
    return tomlkit.dumps(
        {
            "version": 1,
            "store": {"url": "sqlite:///history.db"},
            "servers": {
                name: {"command": command[0], "args": command[1:]}
                for name, command in servers.items()
            },
            "agents": agents,
        }
    )


def _of_programs(folder: Path, mutants: Sequence[Any]) -> Iterator[tuple[str, bool]]:
    file = folder / "mutant.py"
    for what, name, source in mutants:
        file.write_text(source)
        agents = [one for one in _GRANTS if one.partition("-")[0] == name]
        yield (
            what,
            any(
                _changes(folder, "--agent", agent, "--against", str(file))
                for agent in agents
            ),
        )


def _of_grants(folder: Path, mutants: Sequence[Any]) -> Iterator[tuple[str, bool]]:
    file = folder / "mutant.toml"
    for what, name, grant in mutants:
        file.write_text(_configuration({**_GRANTS, name: grant}))
        yield (
            what,
            any(
                _changes(folder, "--agent", agent, "--grants", str(file))
                for agent in (name, f"{name}-probed")
            ),
        )


def _changes(folder: Path, *words: str) -> bool:
    code = _caxton(folder, "replay", "--all", *words)
    if code not in {0, 4}:
        raise RuntimeError(f"caxton replay --all {' '.join(words)} ended with {code}")
    return code != 0


def _caxton(folder: Path, *words: str) -> int:
    state = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "DATA")}
    return subprocess.run(
        [sys.executable, "-m", "caxton_host", *words],
        cwd=folder,
        env={**os.environ, **state},
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode
