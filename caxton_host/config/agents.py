"""Reader of ``[agents.NAME]``: agents, their limits, names and ``expose``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.calls import JSON, Route
from ..core.clients import table_of
from ..core.grants.budgets import PERIODS
from ..core.grants.conditions import Conditions
from ..core.grants.decisions import may_ever
from ..core.grants.grants import Grant, Rule, may_mean
from ..core.limits import Limits
from ..core.names import AGENTS, PROMPT, READ, is_server_name
from ..core.pins import Pin, PublicKey
from ..core.programs import LANGUAGES, language_of
from ..core.provenance import Origin
from ..core.text.globs import Pattern
from ..core.tools.schemas import bounded
from ..core.turns import CLASSES
from ..errors import BadBytes, ConditionError, UsageError
from ..lib.json_schema import check
from . import fields as f
from .changed_rules import rule_texts
from .fields import STRING, array, either, mapping, object_, shape_of, shaped
from .model import CALLER, Agent, Config, Expose, Session
from .rules import pattern, rules
from .servers import env, server_name
from .source import At
from .tools import SCHEMA_OF_OBJECT, exposed, exposed_name

#: The rule of calls that are let through to find out what a client needs.
OBSERVE = "observe"

_SIZES = frozenset(
    {
        "module",
        "compile_memory",
        "memory",
        "params",
        "input",
        "result",
        "output",
        "log",
        "recorded",
        "sources",
        "files",
        "scratch",
    }
)
_PINS = frozenset({"sha256", "signers"})
_DIGEST = re.compile("[0-9a-fA-F]{64}")
_TIMES = frozenset({"compile_cpu", "compute", "wall"})
#: Seconds that a session may be driven, and the calls of one of its streams.
_FOREVER_S, _SESSION_CALLS = 1e9, 10_000


def agent_name(name: str, at: At) -> None:
    """Check the name of an agent, a session or a schedule."""
    if not is_server_name(name):
        raise at.error(
            "is not a valid name",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )


def agent(values: object, at: At) -> Agent:
    """
    Return the agent that a table describes.

    Raises:
        ConfigError: It is invalid.
    """
    for key in ("resources", "prompts"):
        if key in f.table(values, at):
            raise at.key(key).error(
                "is a key of sessions: agents only call tools",
                fix=f"remove it, or write {key} in [sessions.NAME]",
            )
    found = f.read(values, _AGENT, at)
    grant = _grant(found, at)
    texts = rule_texts(table_of(at.name), f.table(values, at))
    pin = Pin(**{key: found.pop(key) for key in _PINS & found.keys()})
    read = Agent(name=at.name, grant=grant, pin=pin, rule_texts=texts, **found)
    _check_program(read, at)
    for key in sorted(_PINS & f.table(values, at).keys()):
        here = at.key(key)
        if not getattr(pin, key):
            raise here.error("is empty", fix="remove it, which demands nothing")
        if read.module is None and not isinstance(read.program, Path):
            raise here.error(
                "is set without a file", fix="remove it, or name a module or a program"
            )
    return read


def session(values: object, at: At) -> Agent:
    """
    Return the agent that a table of a session describes: its clients are the agent.

    Raises:
        ConfigError: It is invalid.
    """
    found = f.read(values, _SESSION, at)
    keys = ("resources", "prompts", "observe")
    short = [rule for key in keys for rule in found.pop(key, ())]
    grant = _grant(found, at)
    grant = replace(grant, allow=(*grant.allow, *short))
    if any(may_mean(p, AGENTS) and p.literal for r in grant.allow for p in r.tools):
        raise at.key("allow").error(
            "names an agent", fix="serve agents to clients at /mcp: expose.mcp = true"
        )
    more = ("idle", "reset", "search_above", "context")
    own = {key: found.pop(key) for key in more if key in found}
    limits = found.pop("limits", session_limits())
    return Agent(
        name=at.name, grant=grant, limits=limits, session=Session(**own), **found
    )


def session_limits(**given: Any) -> Limits:  # noqa: ANN401 -- the fields of it
    """Return the limits of a session: a client may stay for as long as it likes."""
    usual: dict[str, Any] = {"wall": _FOREVER_S, "total_calls": _SESSION_CALLS}
    return Limits(**(usual | given))


def _grant(found: dict[str, Any], at: At) -> Grant:
    """Take the rules out of what a table says, and return the grant that they are."""
    grant = Grant(allow=found.pop("allow", ()), deny=found.pop("deny", ()))
    if not grant.names_trusted:
        return grant
    if not found.get("trusted"):
        raise at.key("trusted").error(
            "is missing or empty, and a rule names it", fix='write trusted = ["input"]'
        )
    return grant.trusting(found["trusted"])


def _check_program(agent: Agent, at: At) -> None:
    """Check that an agent has a module or a program, whose language is known."""
    here = at.key("program")
    if agent.program is None:
        if agent.runtime:
            raise at.key("runtime").error(
                "is set without a program", fix='add program = "FILE", or "caller"'
            )
        if agent.module is not None and language_of(agent.module.name):
            raise at.key("module").error("is a program", fix='write program = "FILE"')
        return
    if agent.module is not None:
        raise here.error("is set beside a module", fix="keep one of them")
    if agent.language is None:
        choices = " or ".join(f'runtime = "{one}"' for one in LANGUAGES)
        raise here.error("is in no known language", fix=f"add {choices}")
    if agent.runtime not in {None, agent.language}:
        raise at.key("runtime").error(
            f"is {agent.runtime}, and the program is in {agent.language}",
            fix="leave it out",
        )


@shaped(STRING)
def _program(value: object, at: At) -> Path | str:
    return CALLER if value == CALLER else f.path(value, at)


@shaped(STRING)
def _target(value: object, at: At) -> tuple[str, str]:
    literal = pattern(value, at).literal
    if literal is None:
        raise at.error("contains a wildcard", fix="name one tool, as SERVER/TOOL")
    return literal


@shaped(mapping(STRING))
def _names(value: object, at: At) -> dict[str, tuple[str, str]]:
    names: dict[str, tuple[str, str]] = f.mapped(_target, exposed_name)(value, at)
    if len(set(names.values())) < len(names):
        raise at.error("names one tool twice", fix="keep one name for each tool")
    return names


def _limit(name: str) -> f.Reader:
    if name in _SIZES:
        return f.size
    return f.duration if name in _TIMES else f.number


_LIMITS: f.Fields = {
    field.name: (field.name, _limit(field.name)) for field in fields_of(Limits)
}


@shaped(SCHEMA_OF_OBJECT)
def _object_schema(value: object, at: At) -> Mapping[str, JSON]:
    schema = f.json_value(f.table(value, at), at)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise at.error(
            "is not a JSON Schema of an object",
            fix=f'write {at.name} = {{ type = "object", properties = {{ ... }} }}',
        )
    try:
        check(bounded(schema))
    except BadBytes as exc:
        raise at.error(str(exc), fix="correct it, or make it smaller") from None
    return schema


_EXPOSE: f.Fields = {
    "mcp": ("mcp", f.flag),
    "name": ("name", exposed),
    "mcp_name": ("name", exposed),
    "chat": ("chat", f.text),
    "tasks": ("tasks", f.choice("optional", "required", "forbidden")),
    "input_schema": ("input_schema", _object_schema),
    "output_schema": ("output_schema", _object_schema),
}


@shaped(STRING)
def _file(value: object, at: At) -> tuple[str, Path]:
    name = f.text(value, at)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("~"):
        raise at.error(
            "is not inside the folder of this file",
            fix='copy it there, and write it like: files = ["data"]',
        )
    return path.as_posix(), at.source.folder / path


@shaped(array(STRING))
def _files(value: object, at: At) -> dict[str, Path]:
    return dict(f.listed(_file)(value, at))


@shaped(STRING)
def _origin(value: object, at: At) -> str:
    text = f.text(value, at)
    try:
        kind = Origin.parse(text).kind
    except UsageError as exc:
        raise at.error(str(exc), exc.fix) from None
    if kind == "trusted":
        raise at.error("lists itself", fix="remove it")
    return text


@shaped({"type": "integer", "minimum": CLASSES[0], "maximum": CLASSES[1]})
def _class(value: object, at: At) -> int:
    least, most = CLASSES
    if isinstance(value, bool) or not isinstance(value, int):
        raise f.wrong(value, "a whole number", "10", at)
    if not least <= value <= most:
        raise at.error("is no class", fix=f"write a number from {least} to {most}")
    return value


@shaped({**STRING, "pattern": "^[0-9a-fA-F]{64}$"})
def _digest(value: object, at: At) -> str:
    text = f.text(value, at)
    if not _DIGEST.fullmatch(text):
        raise at.error("is not a SHA-256", fix="write the 64 digits of sha256sum FILE")
    return text.lower()


@shaped(either(shape_of(_digest), array(shape_of(_digest))))
def _digests(value: object, at: At) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_digest(value, at),)
    found: tuple[str, ...] = f.listed(_digest)(value, at)
    return found


@shaped({**STRING, "pattern": "^RW[A-Za-z0-9+/=]{54}$"})
def _signer(value: object, at: At) -> PublicKey:
    try:
        return PublicKey.parse(f.text(value, at))
    except BadBytes as exc:
        raise at.error(
            f"is not a public key: {exc}",
            fix="write the line of a file like caxton.pub",
        ) from None


_AGENT: f.Fields = {
    "module": ("module", f.path),
    "wasm": ("module", f.path),
    "program": ("program", _program),
    "runtime": ("runtime", f.choice(*LANGUAGES)),
    "entry": ("entry", f.text),
    "description": ("description", f.text),
    "prompt": ("prompt", f.text),
    "limits": ("limits", f.tables(_LIMITS, Limits)),
    "names": ("names", _names),
    "allow": ("allow", rules("allow")),
    "deny": ("deny", rules("deny")),
    "expose": ("expose", f.tables(_EXPOSE, Expose)),
    "args": ("args", f.listed(f.text)),
    "env": ("env", env),
    "files": ("files", _files),
    "trusted": ("trusted", f.listed(_origin)),
    "sha256": ("sha256", _digests),
    "signers": ("signers", f.listed(_signer)),
    "authority": ("authority", f.choice("both", "own")),
    "priority": ("priority", _class),
}
shaped(object_(_AGENT))(agent)


@shaped(STRING)
def _all_of(value: object, at: At) -> Pattern:
    server = f.text(value, at)
    server_name(server, at)
    return Pattern.parse(f"{server}/*")


@shaped(STRING)
def _last_day(value: object, at: At) -> int:
    """Return the end of a day, in microseconds since 1970, UTC."""
    try:
        day = value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        raise at.error("is not a day", fix='write it like: "2026-12-31"') from None
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return int(end.timestamp()) * 1_000_000


_OBSERVE: f.Fields = {
    "until": ("expires", _last_day),
    "servers": ("tools", f.listed(_all_of)),
}


@shaped(object_(_OBSERVE))
def _observe(value: object, at: At) -> tuple[Rule, ...]:
    """Read which servers are open for a while, to find out what a client needs."""
    found = f.read(value, _OBSERVE, at)
    for key in ("expires", "tools"):
        if not found.get(key):
            raise at.error(
                "names no end, or no server",
                fix='write it like: { until = "2026-12-31", servers = ["crm"] }',
            )
    return (Rule(id=OBSERVE, **found),)


_ANYTHING: JSON = {"type": "any", "optional": True}


def _readable(method: str, param: str, **more: JSON) -> f.Reader:
    """Return the reader of what may be read of servers: a rule for each pattern."""

    @shaped(STRING)
    def one(value: object, at: At) -> Rule:
        server, _, name = f.text(value, at).partition("/")
        server_name(server, at)
        if not name:
            raise at.error("names a server alone", fix=f'write "{server}/*"')
        said: JSON = {"type": "string"} if name == "*" else {"glob": name}
        try:
            params = Conditions.parse({param: said, **more})
        except ConditionError as exc:
            raise at.error(str(exc), exc.fix) from None
        tools = (Pattern.parse(f"{server}/{method}"),)
        id_ = f"{at.keys[-2]}[{at.name}]"
        return Rule(id=id_, tools=tools, params=params)

    return f.listed(one)


@shaped(mapping({}))
def _context(value: object, at: At) -> Mapping[str, JSON]:
    found = f.json_value(f.table(value, at), at)
    assert isinstance(found, dict)  # noqa: S101 -- a table is a map
    return found


_SESSION: f.Fields = {
    **{
        key: _AGENT[key] for key in ("description", "names", "allow", "deny", "trusted")
    },
    "limits": ("limits", f.tables(_LIMITS, session_limits)),
    "idle": ("idle", f.duration),
    "reset": ("reset", f.choice(*PERIODS)),
    "observe": ("observe", _observe),
    "search_above": ("search_above", f.number),
    "resources": ("resources", _readable(READ, "uri")),
    "prompts": ("prompts", _readable(PROMPT, "name", arguments=_ANYTHING)),
    "context": ("context", _context),
}
shaped(object_(_SESSION))(session)


def check_exposed(config: Config, at: At) -> None:
    """
    Check that exposed agents have valid, distinct tool names.

    Raises:
        ConfigError: One is invalid. It points at its ``expose``.
    """
    taken: dict[str, str] = {}
    for name, agent in config.agents.items():
        if agent.tool is None:
            continue
        here = at.key("agents").key(name).key("expose")
        exposed_name(agent.tool, here.key("name"))
        if agent.tool in taken:
            raise here.error(
                f"is also the tool name of the agent {taken[agent.tool]}",
                fix='write another name = "..."',
            )
        taken[agent.tool] = name


def check_calls(config: Config, at: At) -> None:
    """
    Check that no agent may call itself, directly or through others.

    Raises:
        ConfigError: One may. It names the cycle.
    """
    if cycle := cycle_of(config):
        raise (
            at.key("agents")
            .key(cycle[0])
            .error(
                f"could call itself: {' -> '.join(cycle)}",
                fix=_BREAK.format(*cycle[-2:]),
            )
        )


_BREAK = (
    'add [[agents.{}.deny]] with tools = ["agents/{}"], or name the agents that it may '
    "call one by one"
)


def cycle_of(config: Config) -> list[str]:
    """Return agents each of which may call the next, the first also last; or none."""
    calls = {
        name: [
            other
            for other in config.executed
            if may_ever(agent.grant, Route(server=AGENTS, tool=other))
        ]
        for name, agent in config.executed.items()
    }
    safe: set[str] = set()

    def found(path: list[str]) -> list[str]:
        name = path[-1]
        if name in path[:-1]:
            return path[path.index(name) :]
        for other in () if name in safe else calls[name]:
            if cycle := found([*path, other]):
                return cycle
        safe.add(name)
        return []

    return next(filter(None, (found([name]) for name in calls)), list[str]())
