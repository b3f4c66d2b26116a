"""
Agents as tools: what they take, and what their runs give.

The parameters of a tool are an object, and so is its structured result. An agent that
takes or gives something else has it as ``input`` or ``result``. An output with
``$content`` is content blocks of MCP, and ``structured`` its structured result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from ..core.calls import JSON
from ..core.log.events import Event, RunCancelled, RunCompleted, RunFailed
from ..lib.json_schema import input_check
from .modules import AgentDescription

_INPUT, _RESULT = "input", "result"
#: The key of an output whose value is a list of content blocks.
CONTENT = "$content"
_ANYTHING: Mapping[str, JSON] = {"type": "object"}

#: How runs fail whose message is for who asked; those of others are the operator's.
_TOLD = frozenset({"agent_error", "limit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """
    What a caller is told of a run that has ended.

    Attributes:
        state: How it ended.

        text: Its output, or why it has none.

        structured: Its output, if that is structured.

        is_error: It gave no result.

        content: Its content blocks, as the agent gave them; ``None``: the text.
    """

    state: str
    text: str
    structured: dict[str, JSON] | None = None
    is_error: bool = True
    content: JSON = None


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent as a tool: of clients over MCP, and of other agents."""

    card: AgentDescription

    @property
    def name(self) -> str:
        """Its name as a tool."""
        return self.card.tool or self.card.name

    @property
    def input_schema(self) -> dict[str, JSON]:
        """JSON Schema of its arguments: of an object, always."""
        return _of_object(self.card.input_schema or _ANYTHING, _INPUT)

    @property
    def output_schema(self) -> dict[str, JSON] | None:
        """JSON Schema of its structured result, or ``None``."""
        schema = self.card.output_schema
        return None if schema is None else _of_object(schema, _RESULT)

    def input(self, arguments: Mapping[str, JSON]) -> JSON:
        """Return the agent's input for *arguments*."""
        if _takes_object(self.card.input_schema or _ANYTHING):
            return {**arguments}
        return arguments.get(_INPUT)

    def mismatch(self, arguments: Mapping[str, JSON]) -> str:
        """Return where *arguments* do not match the schema, or ``""``."""
        return str(input_check(self.input_schema)({**arguments}) or "")

    def structured(self, output: JSON) -> dict[str, JSON] | None:
        """Return the structured result of an output, if it has one."""
        schema = self.card.output_schema
        if _content(output) is not None:
            output = cast("dict[str, JSON]", output).get("structured")
        if schema is not None and not _takes_object(schema):
            return {_RESULT: output}
        return output if isinstance(output, dict) else None

    def broken(self, output: JSON) -> str:
        """Return where an output does not match the output schema, or ``""``."""
        schema = self.output_schema
        if schema is None:
            return ""
        return str(input_check(schema)(self.structured(output)) or "")

    def ended(self, run_id: str, end: Event | None) -> Said:
        """Return what a caller is told of the end of a run; ``None``: it was erased."""
        match end:
            case RunCompleted(output=output):
                content = _content(output)
                text = _text(output if content is None else self.structured(output))
                if wrong := self.broken(output):
                    text += (
                        "\n\nThis does not match the output schema of the tool: "
                        f"{wrong}"
                    )
                    return Said(state="completed", text=text)
                structured = self.structured(output)
                said = Said(state="completed", text=text, structured=structured)
                return replace(said, is_error=False, content=content)
            case RunFailed(kind=kind, message=message):
                why = f"{kind}: {message}" if kind in _TOLD else kind
                text = f"The run failed ({why}). Its id is {run_id}."
                if kind in _TOLD and "\n" in message:  # A traceback.
                    text = f"{message}\n\nThe run failed ({kind}). Its id is {run_id}."
                return Said(state="failed", text=text)
            case RunCancelled():
                text = f"The run was cancelled. Its id is {run_id}."
                return Said(state="cancelled", text=text)
            case _:
                text = f"The result of run {run_id} is no longer kept."
                return Said(state="erased", text=text)


def _content(output: JSON) -> JSON:
    return output.get(CONTENT) if isinstance(output, dict) else None


def _text(output: JSON) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


# -- schemas -------------------------------------------------------------------


def _takes_object(schema: Mapping[str, JSON]) -> bool:
    kind = schema.get("type")
    if kind is None:
        return "properties" in schema
    return "object" in (kind if isinstance(kind, list) else [kind])


def _of_object(schema: Mapping[str, JSON], key: str) -> dict[str, JSON]:
    """Return *schema* if it is of an object; else an object with it as *key*."""
    if _takes_object(schema):
        return {**schema, "type": "object"}
    inner = {**schema}
    draft = inner.pop("$schema", None)
    whole: dict[str, JSON] = {
        "type": "object",
        "properties": {key: _moved(inner, f"#/properties/{key}")},
        "required": [key],
        "additionalProperties": False,
    }
    return whole if draft is None else {"$schema": draft, **whole}


def _moved(value: JSON, to: str) -> JSON:
    """Return a schema with its references moved to *to*."""
    if isinstance(value, Mapping):
        return {
            name: to + inner[1:]
            if name == "$ref" and isinstance(inner, str) and inner[:2] in {"#", "#/"}
            else _moved(inner, to)
            for name, inner in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_moved(inner, to) for inner in value]
    return value
