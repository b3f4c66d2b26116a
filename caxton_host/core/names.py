"""Names and identifiers: making, validating and escaping them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

#: Prefix of the streams of runs; the run id follows.
RUN = "run/"

#: The name that runs have in which a person calls a tool, without an agent.
BY_HAND = "by-hand"

#: The server whose tools are the configured agents: the host itself.
AGENTS = "agents"

#: Methods of a server that rules name, and that are recorded, as tools are.
READ, PROMPT = "resources/read", "prompts/get"

#: The version of the ids of runs that agents called, and its place in an id.
CALLED, VERSION_AT = 8, 14

_SERVER = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9.-])*")
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_EXPOSED_LENGTH = 64
_DIGEST_LENGTH = 8


def is_server_name(name: str) -> bool:
    """
    Return whether *name* is a valid name of a server.

    It has no slash and no double underscore: both separate a server from its tool.

    >>> is_server_name("crm"), is_server_name("a__b"), is_server_name("a/b")
    (True, False, False)
    """
    return len(name) <= _EXPOSED_LENGTH and _SERVER.fullmatch(name) is not None


def is_tool_name(name: str) -> bool:
    """
    Return whether *name* is a valid name of a tool.

    It has no slash, though the protocol allows one: a star in a grant never crosses a
    slash, so a deny rule with a star would cover less than it seems to.
    """
    return _TOOL.fullmatch(name) is not None


def is_method(tool: str) -> bool:
    """
    Return whether a rule names a method of a server instead of a tool.

    >>> is_method(READ), is_method("read")
    (True, False)
    """
    return "/" in tool


def exposed_name(server: str, tool: str) -> str:
    """
    Return the name that agents use, valid for every provider of models.

    It has at most 64 characters of ``[a-zA-Z0-9_-]``. A name that was changed or cut
    ends with a digest, so that two tools do not share a name by accident.

    >>> exposed_name("demo", "get_weather")
    'mcp__demo__get_weather'
    >>> exposed_name("demo", "get.weather")
    'mcp__demo__get_weather_b0366903'

    No tool has the name of a method, since those of tools begin with ``mcp__``.

    >>> exposed_name("demo", READ)
    'resources_read__demo_ee70f804'
    """
    full = f"{tool}__{server}" if is_method(tool) else f"mcp__{server}__{tool}"
    safe = _UNSAFE.sub("_", full)
    if safe == full and len(full) <= _EXPOSED_LENGTH:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{safe[: _EXPOSED_LENGTH - _DIGEST_LENGTH - 1]}_{digest}"


def meant_tool(name: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """
    Return server and tool that an exposed name most likely means, or ``None``.

    This is for servers whose tools are unknown: they were never listed, or are down.
    The result is ``None`` if the name could mean tools of two servers, or if the tool
    cannot be derived from it, because it was cut or had a dot.

    >>> meant_tool("mcp__demo__echo", ["crm", "demo"])
    ('demo', 'echo')
    >>> meant_tool(exposed_name("de.mo", "echo"), ["de.mo"])
    ('de.mo', 'echo')
    """
    found: list[tuple[str, str]] = []
    for server in servers:
        start = _UNSAFE.sub("_", f"mcp__{server}__")
        tool = name.removeprefix(start)
        found += [
            (server, one)
            for one in (tool, tool[: -_DIGEST_LENGTH - 1])
            if is_tool_name(one) and exposed_name(server, one) == name
        ]
    return found[0] if len(found) == 1 else None


def clean_name(raw: bytes, length: int = 128) -> str:
    r"""
    Return *raw* cut and escaped, safe for a log and a terminal.

    >>> print(clean_name(b"weather"), clean_name(b"a\x00\xff"))
    weather a\x00\xff
    """
    cut = raw[:length]
    # The common case first: every call passes here.
    if cut.isascii() and (text := cut.decode()).isprintable() and "\\" not in text:
        return text
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}"  # noqa: PLR2004 -- ASCII, no backslash
        for byte in cut
    )


def stream_of(run_id: str) -> str:
    """Return the stream of a run."""
    return RUN + run_id


def run_of(stream: str) -> str:
    """
    Return the run that has that stream, or ``""`` for another stream.

    >>> run_of("run/0193"), run_of("host/0193")
    ('0193', '')
    """
    return stream.removeprefix(RUN) if stream.startswith(RUN) else ""


def idempotency_key(run_id: str, number: int) -> str:
    """Return the idempotency key of a call: the same in every retry and resume."""
    return hashlib.sha256(f"{run_id}/{number}".encode()).hexdigest()


def uuid7(at_us: int, entropy: bytes, version: int = 7) -> str:
    """
    Return a UUID of version 7 (RFC 9562, section 5.7).

    Args:
        at_us: The time, in microseconds since 1970.

        entropy: Ten random bytes.

        version: 8 for the same form with a meaning of its own (section 5.8).

    >>> uuid7(1_700_000_000_000_000, bytes(10))
    '018bcfe5-6800-7000-8000-000000000000'
    """
    low = int.from_bytes(entropy, "big")
    value = (at_us // 1000 & (1 << 48) - 1) << 80
    value |= version << 76 | (low >> 62 & 0xFFF) << 64
    value |= 0b10 << 62 | low & (1 << 62) - 1
    text = f"{value:032x}"
    parts = text[:8], text[8:12], text[12:16], text[16:20], text[20:]
    return "-".join(parts)


def called_run(caller: str, key: str) -> str:
    """
    Return the id of the run that a call of an agent is answered by.

    It follows from the call, so that any host finds the run again. Its version tells it
    from the id of a run that was not called: see `is_called`.

    Args:
        caller: The run that makes the call. The id has its time, and is listed with it.

        key: The idempotency key of the call.

    >>> called_run("018bcfe5-6800-7000-8000-000000000000", "ab" * 32)
    '018bcfe5-6800-8eae-abab-abababababab'
    """
    return uuid7(time_of(caller), bytes.fromhex(key)[:10], CALLED)


def tick_run(schedule: str, at_us: int) -> str:
    """
    Return the id of the run that a schedule starts at a tick: the same on every host.

    Args:
        schedule: The name of the schedule.

        at_us: The time of the tick, in microseconds since 1970: a whole second.

    >>> tick_run("nightly", 1_700_000_040_000_000)
    '018bcfe6-0440-7487-87bc-09d76cb2199d'
    """
    return uuid7(at_us, hashlib.sha256(f"{schedule}/{at_us}".encode()).digest()[:10])


def time_of(run_id: str) -> int:
    """
    Return the time in an id, in microseconds since 1970.

    >>> time_of(tick_run("nightly", 1_700_000_040_000_000))
    1700000040000000
    """
    return int(run_id.replace("-", "")[:12], 16) * 1000


def is_called(run_id: str) -> bool:
    """
    Return whether a run was called by another one, by its id.

    >>> is_called("018bcfe5-6800-8eae-abab-abababababab")
    True
    >>> is_called("018bcfe5-6800-7000-8000-000000000000")
    False
    """
    return run_id[VERSION_AT : VERSION_AT + 1] == str(CALLED)


def nearest(name: str, known: list[str]) -> str | None:
    """
    Return the entry of *known* that is most similar to *name*, or ``None``.

    >>> nearest("comand", ["command", "args"])
    'command'
    """
    import difflib  # noqa: PLC0415 -- 8 ms, for a rare message

    found = difflib.get_close_matches(name, known, n=1)
    return found[0] if found else None
