"""One host, a server for every fault on every transport, and a thousand calls."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig, ToolOptions
from caxton_host.errors import ToolError
from caxton_host.mcp import McpTools

from . import faulty_http
from .conftest import FAULTY, SECRET, request, until
from .faults import HTTP, HTTP_SLOW, SSE, SSE_SLOW, STDIO_BAD, STDIO_BROKEN, Fault
from .faulty_http import FaultyHttp
from .faulty_sse import FaultySse

pytestmark = pytest.mark.no_cover

#: To each server. The first `act` fails; the second works, unless it is the server's
#: only process that is bad.
_CALLS = ("echo", "act", "act", "echo", "echo", "echo")
_STAYS_BAD = [
    *(mode for mode, *_ in STDIO_BAD),
    *("never", "nothing", "wrong_id", "null_id"),
]

#: How the second `act` ends where the first leaves something behind.
_AFTER = {
    "sse_session_400": ("act", "transport", "no"),
}

_AT_ONCE = 32

#: For calls that nobody answers.
_SLOW = {"act": ToolOptions(timeout=4.0)}
_SLOWER = {"act": ToolOptions(timeout=8.0)}

#: Their process hangs from some `act` on, until its health has been asked for.
_HANGING = {"drips": 1, "stops_reading": 1, "hangs_later": 2}
_HEALTH = 0.2

#: What goes well in the end, and its words if they are not the usual ones.
_WORDS = {
    "polls": "later",
    "nothing": "MCP tool returned no result.",
    "asks": None,
}

#: What matters of these is in arguments and answers, or takes seconds of reading.
_ELSEWHERE = {
    "stdio": {
        *("grandchild_of_dead", "legacy_elicits", "legacy_reports", "pictures"),
        *("promises", "promises_endlessly", "huge_line"),
        *("tells_arguments", "tells_environment"),
    },
}


class Case(NamedTuple):
    """A server that is to be, and how its first `act` ends."""

    transport: str
    mode: str
    kind: str
    told: str | None

    @property
    def name(self) -> str:
        return f"{self.transport}_{self.mode}".replace(" ", "_")


#: What is at fault at once, what only a deadline ends, and what is none after all.
_MODES: Mapping[str, tuple[Sequence[Fault], Sequence[str], Sequence[str]]] = {
    "stdio": (
        STDIO_BROKEN + STDIO_BAD,
        ["never", "wrong_id", "null_id", *_HANGING],
        [
            *("floods_stderr", "floods_notices", "string_id", "late", "nothing"),
            *("asks", "changes", "reports", "twice"),
        ],
    ),
    "http": (
        [
            *HTTP,
            ("asks", "protocol", "yes"),
            ("polls", "transport", "unknown"),
            ("session_400", "protocol", "yes"),
        ],
        HTTP_SLOW,
        ["string_id", "twice", "wrong_id_first", "floods", "changes", "reports"],
    ),
    "legacy": (
        [*HTTP, ("session_400", "protocol", "yes")],
        HTTP_SLOW,
        [
            "string_id",
            "twice",
            "wrong_id_first",
            "floods",
            "polls",
            "asks",
            "changes",
            "reports",
        ],
    ),
    # A late answer is an answer, if it is in time.
    "sse": (
        [*SSE, ("session_400", "protocol", "yes")],
        [mode for mode in SSE_SLOW if mode != "late"],
        [
            "string_id",
            "twice",
            "wrong_id_first",
            "floods",
            "late",
            "asks",
            "changes",
            "reports",
        ],
    ),
}


def cases() -> Iterator[Case]:
    for transport, (faults, slow, sound) in _MODES.items():
        for mode in slow:
            yield Case(transport, mode, "timeout", "unknown")
        for mode in sound:
            yield Case(transport, mode, "fine", _WORDS.get(mode, "fine"))
        for fault in faults:
            yield Case(transport, *fault)


@asynccontextmanager
async def serving(case: Case, folder: Path) -> AsyncGenerator[ServerConfig]:
    mode = case.mode
    tools = _SLOW if case.kind == "timeout" else {}
    if case.transport == "stdio":
        state = str(folder / case.name)
        hangs = case.mode in _HANGING
        command = (sys.executable, "-S", str(FAULTY), mode, state)
        yield ServerConfig(
            name=case.name,
            command=command,
            env={"SECRET": SECRET},
            # The second of two that hang is to learn why before its own deadline.
            tools=_SLOWER if hangs else tools,
            timeout=200.0,
            health=_HEALTH if hangs else 0.0,
        )
        return
    server = (
        FaultySse(mode, secret=SECRET)
        if case.transport == "sse"
        else FaultyHttp(mode, legacy=case.transport == "legacy", secret=SECRET)
    )
    async with server:
        yield ServerConfig(
            name=case.name,
            url=server.url,
            transport="sse" if case.transport == "sse" else "http",
            health=0.0,  # as for every url, if nothing is said
            tools=tools,
        )


async def made(tools: McpTools, case: Case) -> list[tuple[str, str, str]]:
    """Make the calls to one server, and return how each of them ended."""
    found: list[tuple[str, str, str]] = []
    for tool in _CALLS:
        try:
            answer = await tools.call_tool(request(tool, server=case.name))
        except ToolError as exc:
            found.append((tool, exc.kind, exc.sent))
        else:
            said = answer.message
            if tool == "act" and _WORDS.get(case.mode, "") is None:
                said = "fine"  # in its own words
            found.append((tool, "fine", said))
    return found


def wanted(case: Case) -> list[tuple[str, str, str]]:
    found = [(tool, "fine", "fine") for tool in _CALLS]
    if case.transport == "stdio" and case.mode in _HANGING:
        first = _HANGING[case.mode]
        found[first] = (_CALLS[first], "timeout", "unknown")
        found[first + 1] = (_CALLS[first + 1], "transport", "unknown")
        return found
    found[1] = ("act", case.kind, case.told or "fine")
    if case.transport == "stdio" and case.mode in _STAYS_BAD:
        found[2] = found[1]
    found[2] = _AFTER.get(case.name, found[2])
    return found


def children() -> set[str]:
    every = Path("/proc/self/task").glob("*/children")
    return {child for file in every for child in file.read_text().split()}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- counts itself too


async def storm(
    folder: Path, some: list[Case]
) -> dict[str, list[tuple[str, str, str]]]:
    lanes = asyncio.Semaphore(_AT_ONCE)

    async def one(tools: McpTools, case: Case) -> list[tuple[str, str, str]]:
        async with lanes:
            return await made(tools, case)

    async with AsyncExitStack() as servers:
        configs = {
            case.name: await servers.enter_async_context(serving(case, folder))
            for case in some
        }
        async with McpTools(configs, redact=Redactor([SECRET])) as tools:
            ends = await asyncio.gather(*(one(tools, case) for case in some))
    return {case.name: end for case, end in zip(some, ends, strict=True)}


def known(text: str, pattern: str) -> set[str]:
    """Return the modes that a server tells apart, by the branches in its text."""
    branches = " | ".join(re.findall(pattern, text))
    return set(re.findall(r'"([a-z_0-9]+)"', branches))


def test_the_storm_has_every_fault_that_a_server_knows_on_every_transport() -> None:
    act = FAULTY.read_text().partition("def act(")[2].partition("\ndef ")[0]
    stdio = known(act, r"case (\"[^:]*):")
    web = Path(faulty_http.__file__).read_text().partition("def _act(")[2]
    http = known(web, r"case \[(\"[^\]]*)\]")
    assert min(len(stdio), len(http)) > 30
    for transport, modes in {
        "stdio": stdio,
        "http": http,
        "legacy": http,
        "sse": http,
    }.items():
        done = {c.mode.split()[0] for c in cases() if c.transport == transport}
        assert modes - done == _ELSEWHERE.get(transport, set())
        assert done <= modes


@pytest.mark.long
async def test_a_thousand_calls_end_as_what_they_were_and_leave_nothing(
    tmp_path: Path,
) -> None:
    # attacks 31 to 35, 37 and 39
    every = [*cases()]
    assert len(every) * len(_CALLS) >= 1_000
    # What is loaded and opened once, by the first of each kind.
    first = {case.transport: case for case in every}
    (tmp_path / "first").mkdir()
    await storm(tmp_path / "first", [*first.values()])
    before = asyncio.all_tasks(), children(), descriptors()
    ended = await storm(tmp_path, every)
    others = {case.name for case in every if ended[case.name] != wanted(case)}
    assert {name: ended[name] for name in others} == {}
    await until(lambda: asyncio.all_tasks() <= before[0])
    assert children() == before[1]
    assert descriptors() <= before[2]
