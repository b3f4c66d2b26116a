"""
A tool server that has what the official suite asks of one.

    python tools.py

It speaks the newest revision, so what its tools ask is in their answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]
_Said = Mapping[str, Any]

_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmM"
    "IQAAAABJRU5ErkJggg=="
)
_TEXT: _Said = {"type": "text", "text": "A text."}
_IMAGE: _Said = {"type": "image", "data": _PNG, "mimeType": "image/png"}
_AUDIO: _Said = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
_RESOURCE: _Said = {
    "type": "resource",
    "resource": {"uri": "test://static-text", "mimeType": "text/plain", "text": "A."},
}
_CONTENT: Mapping[str, list[_Said]] = {
    "test_simple_text": [
        {"type": "text", "text": "This is a simple text response for testing."}
    ],
    "test_image_content": [_IMAGE],
    "test_audio_content": [_AUDIO],
    "test_embedded_resource": [_RESOURCE],
    "test_multiple_content_types": [_TEXT, _IMAGE, _RESOURCE],
}


def _form(message: str, *required: str, **properties: object) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": [*required]}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


_NAME = {"user_name": _form("What is your name?", "name", name={"type": "string"})}
_OK = {"confirm": _form("Please confirm", "ok", ok={"type": "boolean"})}
_USER = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
_DEFAULTS: Mapping[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {
        "type": "string",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "default": True},
}


def _titled(*titles: str) -> list[_Said]:
    return [
        {"const": f"value{number}", "title": title}
        for number, title in enumerate(titles, start=1)
    ]


_OPTIONS = ["option1", "option2", "option3"]
_TITLES = ("First Option", "Second Option", "Third Option")
_ENUMS: Mapping[str, Any] = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _titled(*_TITLES)},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _titled(*_TITLES)}},
}
_SAMPLING = types.CreateMessageRequest(
    params=types.CreateMessageRequestParams(
        messages=[
            types.SamplingMessage(
                role="user", content=types.TextContent(text="What is the capital?")
            )
        ],
        max_tokens=100,
    )
)
_ROOTS = types.ListRootsRequest()

#: What each tool asks, in rounds.
_ASKS: Mapping[str, list[Mapping[str, Any]]] = {
    "test_elicitation": [{"it": _form("Who are you?", "username", "email", **_USER)}],
    "test_elicitation_sep1034_defaults": [{"it": _form("Fill in", **_DEFAULTS)}],
    "test_elicitation_sep1330_enums": [{"it": _form("Choose", **_ENUMS)}],
    "test_sampling": [{"it": _SAMPLING}],
    "test_missing_capability": [{"it": _SAMPLING}],
    "test_input_required_result_elicitation": [_NAME],
    "test_input_required_result_sampling": [{"capital_question": _SAMPLING}],
    "test_input_required_result_list_roots": [{"client_roots": _ROOTS}],
    "test_input_required_result_request_state": [_OK],
    "test_input_required_result_multiple_inputs": [
        {**_NAME, "greeting": _SAMPLING, "client_roots": _ROOTS}
    ],
    "test_input_required_result_multi_round": [
        {"step1": _form("Step 1: What is your name?", "name", name={"type": "string"})},
        {"step2": _form("Step 2: Which color?", "color", color={"type": "string"})},
    ],
    "test_input_required_result_tampered_state": [_OK],
    "test_input_required_result_capabilities": [_OK],
}
_PROMPT = "test_input_required_result_prompt"
_CONTEXT = {
    "user_context": _form(
        "What context should the prompt use?", "context", context={"type": "string"}
    )
}
TOOLS = [
    *_CONTENT,
    *_ASKS,
    "test_error_handling",
    "test_tool_with_progress",
    "steps",
    "rest",
]


async def _list(_: object, __: object) -> types.ListToolsResult:
    tools = [
        types.Tool(name=name, description=name, input_schema={"type": "object"})
        for name in TOOLS
    ]
    return types.ListToolsResult(tools=tools)


async def _call(
    ctx: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    name = params.name
    if name in _ASKS:
        asked = _asked(params, _ASKS[name])
        if isinstance(asked, types.InputRequiredResult):
            return asked
        return _answer({"type": "text", "text": f"state-ok {asked}"})
    if name == "test_error_handling":
        failed = _answer({"type": "text", "text": "This tool returns an error"})
        return failed.model_copy(update={"is_error": True})
    if name == "rest":
        await asyncio.sleep(1)
        return _answer({"type": "text", "text": "rested"})
    if name in {"test_tool_with_progress", "steps"}:
        for done in (0, 50, 100):
            await ctx.session.report_progress(done, 100)
            # The host forwards at most ten per second.
            await asyncio.sleep(0.15)
        return _answer(_TEXT)
    return _answer(*_CONTENT[name])


def _answer(*content: _Said) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": [*content]})


def _asked(
    params: types.InputResponseRequestParams, rounds: list[Mapping[str, Any]]
) -> types.InputRequiredResult | str:
    """Return the next question, or the text of all answers."""
    said = json.loads(params.request_state or "{}")
    found = list(said.get("found", []))
    if params.request_state and said["sum"] != _sum(found):
        raise MCPError(types.INVALID_PARAMS, "that is not my state")
    given = params.input_responses or {}
    if len(found) < len(rounds) and rounds[len(found)].keys() <= given.keys():
        names = rounds[len(found)]
        found.append({n: given[n].model_dump(exclude_none=True) for n in names})
    if len(found) == len(rounds):
        return json.dumps(found)
    state = json.dumps({"found": found, "sum": _sum(found)})
    return types.InputRequiredResult(
        input_requests=dict(rounds[len(found)]), request_state=state
    )


def _sum(found: list[Any]) -> str:
    return hashlib.sha256(f"made up {json.dumps(found)}".encode()).hexdigest()


async def _resources(_: object, __: object) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=uri, description="One of the suite.")
            for uri in ("test://static-text", "test://static-binary")
        ]
    )


async def _templates(_: object, __: object) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="data", description="A datum."
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def _read(
    _: object, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = params.uri
    said: dict[str, Any] = {"uri": uri}
    if uri == "test://static-text":
        said |= {"mimeType": "text/plain", "text": "The content of the resource."}
    elif uri == "test://static-binary":
        said |= {"mimeType": "image/png", "blob": _PNG}
    elif uri.startswith("test://template/"):
        number = uri.split("/")[3]
        text = json.dumps({"id": number, "templateTest": True, "data": f"of {number}"})
        said |= {"mimeType": "application/json", "text": text}
    else:
        raise MCPError(types.INVALID_PARAMS, "no such resource", {"uri": uri})
    return types.ReadResourceResult.model_validate({"contents": [said]})


_ARGUMENTS: Mapping[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    _PROMPT: [],
}


async def _prompts(_: object, __: object) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=name,
                arguments=[
                    types.PromptArgument(name=one, required=True) for one in arguments
                ],
            )
            for name, arguments in _ARGUMENTS.items()
        ]
    )


async def _prompt(
    _: object, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    parts: list[_Said] = [{"type": "text", "text": f"A prompt, with {given}."}]
    if params.name == "test_prompt_with_arguments":
        text = f"arg1='{given['arg1']}', arg2='{given['arg2']}'"
        parts = [{"type": "text", "text": f"Prompt with arguments: {text}"}]
    elif params.name == "test_prompt_with_image":
        parts = [_IMAGE, _TEXT]
    elif params.name == "test_prompt_with_embedded_resource":
        inner = {"uri": given["resourceUri"], "mimeType": "text/plain", "text": "It."}
        parts = [{"type": "resource", "resource": inner}, _TEXT]
    elif params.name == _PROMPT:
        asked = _asked(params, [_CONTEXT])
        if isinstance(asked, types.InputRequiredResult):
            return asked
        parts = [{"type": "text", "text": asked}]
    messages = [{"role": "user", "content": part} for part in parts]
    return types.GetPromptResult.model_validate({"messages": messages})


async def _complete(_: object, __: object) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=["paris", "park"]))


async def _serve() -> None:
    server = Server(
        "suite",
        on_list_tools=_list,
        on_call_tool=_call,
        on_list_resources=_resources,
        on_list_resource_templates=_templates,
        on_read_resource=_read,
        on_list_prompts=_prompts,
        on_get_prompt=_prompt,
        on_completion=_complete,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_serve())
