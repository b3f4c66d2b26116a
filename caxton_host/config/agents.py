"""Reader of ``[agents.NAME]``: agents, their limits, names and ``expose``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from pathlib import Path, PurePosixPath

from ..core.calls import JSON
from ..core.grants.grants import Grant
from ..core.limits import Limits
from ..core.names import is_server_name
from ..core.programs import LANGUAGES
from ..core.tools.schemas import bounded
from ..errors import BadBytes
from ..lib.json_schema import check
from . import fields as f
from .fields import STRING, array, mapping, object_, shaped
from .model import CALLER, Agent, Config, Expose
from .rules import pattern, rules
from .servers import env
from .source import At
from .tools import SCHEMA_OF_OBJECT, exposed, exposed_name

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
        "files",
        "scratch",
    }
)
_TIMES = frozenset({"compile_cpu", "compute", "wall"})


def agent_name(name: str, at: At) -> None:
    """Check the name of an agent."""
    if not is_server_name(name):
        raise at.error(
            "is not a valid agent name",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )


def agent(values: object, at: At) -> Agent:
    """
    Return the agent that a table describes.

    Raises:
        ConfigError: It is invalid.
    """
    found = f.read(values, _AGENT, at)
    allow, deny = found.pop("allow", ()), found.pop("deny", ())
    read = Agent(name=at.name, grant=Grant(allow=allow, deny=deny), **found)
    _check_program(read, at)
    return read


def _check_program(agent: Agent, at: At) -> None:
    """Check that an agent has a module or a program, whose language is known."""
    here = at.key("program")
    if agent.program is None:
        if agent.runtime:
            raise at.key("runtime").error(
                "is set without a program", fix='add program = "FILE", or "caller"'
            )
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
}
shaped(object_(_AGENT))(agent)


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
