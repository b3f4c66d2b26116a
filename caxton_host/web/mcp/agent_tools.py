"""
Agents as tools, and the ends of runs as their results. Nothing here waits.

A tool takes an object, and promises one. An agent whose input is no object takes it as
``input``; one whose output is none promises it as ``result``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mcp_types as types

from ...core.calls import JSON
from ...core.log.events import Event, RunCancelled, RunCompleted, RunFailed
from ...lib.json_schema import input_check
from ...runs.modules import Card

#: In ``_meta`` of a result: the run, and what became of it. In ``_meta`` of a call:
#: the run to go on with; what the client made up so that a second call is the same run.
RUN_ID = "io.caxton/run-id"
STATE = "io.caxton/state"
IDEMPOTENCY_KEY = "io.caxton/idempotency-key"

_INPUT, _RESULT = "input", "result"
_ANYTHING: Mapping[str, JSON] = {"type": "object"}

#: How runs fail whose message is for who asked; those of others are the operator's.
_TOLD = frozenset({"agent_error", "limit"})


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent, as a tool."""

    card: Card

    @property
    def name(self) -> str:
        """Its name as a tool."""
        return self.card.tool or self.card.name

    def listed(self) -> types.Tool:
        """Return what clients are told of it."""
        return types.Tool(
            name=self.name,
            title=None if self.card.name == self.name else self.card.name,
            description=self.card.description or None,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
        )

    @property
    def input_schema(self) -> dict[str, JSON]:
        """JSON Schema of its arguments: of an object, always."""
        return _of_object(self.card.input_schema or _ANYTHING, _INPUT)

    @property
    def output_schema(self) -> dict[str, JSON] | None:
        """JSON Schema of its structured result, or ``None``: it promises nothing."""
        schema = self.card.output_schema
        return None if schema is None else _of_object(schema, _RESULT)

    def input(self, arguments: Mapping[str, JSON]) -> JSON:
        """Return what the agent is given for *arguments*."""
        if _takes_object(self.card.input_schema or _ANYTHING):
            return {**arguments}
        return arguments.get(_INPUT)

    def mismatch(self, arguments: Mapping[str, JSON]) -> str:
        """Return where *arguments* are not as the schema wants them, or ``""``."""
        return str(input_check(self.input_schema)({**arguments}) or "")

    def structured(self, output: JSON) -> dict[str, JSON] | None:
        """Return the structured result that stands for an output, if any does."""
        schema = self.card.output_schema
        if schema is not None and not _takes_object(schema):
            return {_RESULT: output}
        return output if isinstance(output, dict) else None

    def broken(self, output: JSON) -> str:
        """Return where an output is not what was promised, or ``""``."""
        schema = self.output_schema
        if schema is None:
            return ""
        return str(input_check(schema)(self.structured(output)) or "")


def ended(tool: AgentTool, run_id: str, end: Event | None) -> types.CallToolResult:
    """Return the result that stands for the end of a run."""
    match end:
        case RunCompleted(output=output):
            if wrong := tool.broken(output):
                said = f"{_text(output)}\n\nThis is not what the tool promises: {wrong}"
                return told(run_id, "completed", said, error=True)
            return types.CallToolResult(
                content=[types.TextContent(text=_text(output))],
                structured_content=tool.structured(output),
                _meta=_meta(run_id, "completed"),
            )
        case RunFailed(kind=kind, message=message):
            why = f"{kind}: {message}" if kind in _TOLD else kind
            said = f"The run failed ({why}). Its id is {run_id}."
            return told(run_id, "failed", said, error=True)
        case RunCancelled():
            said = f"The run was cancelled. Its id is {run_id}."
            return told(run_id, "cancelled", said, error=True)
        case _:
            said = f"What run {run_id} came to is not kept any more."
            return told(run_id, "erased", said, error=True)


def told(
    run_id: str, state: str, said: str, *, error: bool = False
) -> types.CallToolResult:
    """Return a result that only says something about a run."""
    return types.CallToolResult(
        content=[types.TextContent(text=said)],
        is_error=error,
        _meta=_meta(run_id, state),
    )


def refused(said: str) -> types.CallToolResult:
    """Return a result that says why there is no run."""
    return types.CallToolResult(content=[types.TextContent(text=said)], is_error=True)


def _meta(run_id: str, state: str) -> dict[str, JSON]:
    return {RUN_ID: run_id, STATE: state}


def _text(output: JSON) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


# -- schemas -------------------------------------------------------------------


def _takes_object(schema: Mapping[str, JSON]) -> bool:
    kind = schema.get("type")
    if kind is None:
        return "properties" in schema
    return "object" in (kind if isinstance(kind, list) else [kind])


def _of_object(schema: Mapping[str, JSON], key: str) -> dict[str, JSON]:
    """Return a schema of an object: *schema* itself, or of one that has it as *key*."""
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
    """Return a schema whose references hold where it is *to* stand."""
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
