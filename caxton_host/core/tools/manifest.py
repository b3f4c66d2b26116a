"""
The manifest of an agent, in a custom section of its module.

A manifest is untrusted: it grants nothing, and its tools are only requests. Its size
and content are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...errors import BadBytes
from .. import sections
from ..calls import JSON

SECTION = "caxton:manifest"
#: Most bytes of the JSON.
LIMIT = 64 * 1024
KEYS = (
    "name",
    "description",
    "version",
    "input_schema",
    "output_schema",
    "tools",
)

_MAX_TOOLS = 100
_AGENT = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TOOL = re.compile(r"(?:[A-Za-z0-9_.-]{1,64}/)?[A-Za-z0-9_.-]{1,128}")
_LONGEST = {"description": 4_000, "version": 64, "reason": 1_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    A tool that an agent requests.

    Attributes:
        name: ``server/tool`` as in grants, or the agent's own name of a tool.

        reason: Why it needs the tool, for the operator; may be empty.
    """

    name: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """
    The manifest of an agent. Nothing in it is trusted.

    Attributes:
        input_schema: JSON Schema of the input of a run, or ``None``.

        output_schema: JSON Schema of the result of a run, or ``None``.

        tools: The tools that it requests.
    """

    name: str
    description: str = ""
    version: str = ""
    input_schema: dict[str, JSON] | bool | None = None
    output_schema: dict[str, JSON] | bool | None = None
    tools: tuple[Wanted, ...] = field(default=())

    @classmethod
    def of(cls, value: JSON) -> Manifest:
        """
        Parse a manifest. Unknown keys are ignored: later versions may add some.

        Args:
            value: Bounded in size and depth already.

        Raises:
            BadBytes: A key is missing or invalid.
        """
        if not isinstance(value, dict):
            raise BadBytes("it is not a map")
        name = value.get("name")
        if not isinstance(name, str) or not is_agent_name(name):
            raise BadBytes(
                "name is not one: lower case letters, digits, - and _, "
                "a letter first, at most 63"
            )
        tools = value.get("tools", [])
        if not isinstance(tools, list):
            raise BadBytes("tools is not an array")
        if len(tools) > _MAX_TOOLS:
            raise BadBytes(f"tools has {len(tools)} entries, of {_MAX_TOOLS} allowed")
        return cls(
            name=name,
            description=_text(value, "description"),
            version=_text(value, "version"),
            input_schema=_schema(value, "input_schema"),
            output_schema=_schema(value, "output_schema"),
            tools=tuple(_wanted(at, tool) for at, tool in enumerate(tools)),
        )

    def to_payload(self) -> dict[str, JSON]:
        """Return the JSON of the section, without absent keys."""
        payload: dict[str, JSON] = {
            "name": self.name,
            "description": self.description,
            "version": self.version,
            "tools": [
                {"name": tool.name, "reason": tool.reason} for tool in self.tools
            ],
        }
        kept: dict[str, JSON] = {key: value for key, value in payload.items() if value}
        if self.input_schema is not None:
            kept["input_schema"] = self.input_schema
        if self.output_schema is not None:
            kept["output_schema"] = self.output_schema
        return kept


def is_agent_name(name: str) -> bool:
    """
    Return whether *name* is a valid name of an agent, its folder and its module.

    >>> is_agent_name("no-tools"), is_agent_name("../up"), is_agent_name("")
    (True, False, False)
    """
    return _AGENT.fullmatch(name) is not None


def find(module: bytes) -> bytes | None:
    """
    Return the content of the manifest section of *module*, or ``None``.

    Raises:
        BadBytes: There are several, or one is larger than 64 KiB.
    """
    return sections.find(module, SECTION, LIMIT)


def section(content: bytes) -> bytes:
    """Return a section with *content*, to append to a module."""
    return sections.section(SECTION, content)


def _text(value: dict[str, JSON], key: str) -> str:
    text = value.get(key, "")
    if not isinstance(text, str):
        raise BadBytes(f"{key} is not a text")
    if len(text) > _LONGEST[key]:
        raise BadBytes(f"{key} has {len(text)} characters, of {_LONGEST[key]} allowed")
    return text


def _schema(value: dict[str, JSON], key: str) -> dict[str, JSON] | bool | None:
    schema = value.get(key)
    if schema is None or isinstance(schema, (dict, bool)):
        return schema
    raise BadBytes(f"{key} is not a JSON Schema: neither a map nor true or false")


def _wanted(at: int, tool: JSON) -> Wanted:
    if not isinstance(tool, dict):
        raise BadBytes(f"tools[{at}] is not a map")
    name = tool.get("name")
    if not isinstance(name, str) or not _TOOL.fullmatch(name):
        raise BadBytes(f"tools[{at}].name is not SERVER/TOOL, nor a name")
    return Wanted(name=name, reason=_text(tool, "reason"))
