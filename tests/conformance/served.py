"""A serving host that offers what the official suite asks for.

Agents implement some of its tools. A session stands before a tool server that has the
rest: resources, prompts, and tools that ask the user of the client.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from caxton_host.core.calls import JSON
from tests.e2e.guests import TRAPS, call, guest, log

from .tools import TOOLS

__all__ = ["HERE", "SESSION", "host"]

HERE = Path(__file__).parent
CAXTON = str(Path(sys.executable).with_name("caxton"))

_SCHEMA: Mapping[str, JSON] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_HEADERS: Mapping[str, JSON] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "query": {"type": "string"},
    },
    "required": ["region", "query"],
}

_TEXT: JSON = {"type": "text", "text": "A text."}
_IMAGE: JSON = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
_AUDIO: JSON = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
_RESOURCE: JSON = {
    "type": "resource",
    "resource": {"uri": "test://resource", "mimeType": "text/plain", "text": "A text."},
}


def _shows(*content: JSON) -> tuple[bytes, Mapping[str, JSON]]:
    return guest(output={"$content": [*content]}), {}


_AGENTS: Mapping[str, tuple[bytes, Mapping[str, JSON]]] = {
    "test_simple_text": (
        guest(output="This is a simple text response for testing."),
        {},
    ),
    "test_image_content": _shows(_IMAGE),
    "test_audio_content": _shows(_AUDIO),
    "test_embedded_resource": _shows(_RESOURCE),
    "test_multiple_content_types": _shows(_TEXT, _IMAGE, _RESOURCE),
    "test_tool_with_logging": (guest(log("one"), log("two"), log("three")), {}),
    "test_error_handling": (guest(then="(i32.const 1)"), {}),
    "test_tool_with_progress": (guest(call("mcp__suite__steps"), output="done"), {}),
    "json_schema_2020_12_tool": (guest(), _SCHEMA),
    "test_headers": (guest(output="there"), _HEADERS),
    "greet": (guest(output="Hello, sep-2243!"), {}),
    "slow_compute": (guest(call("mcp__suite__rest"), output="computed"), {}),
    "failing_job": (guest(call("mcp__suite__rest"), then="(i32.const 1)"), {}),
    "protocol_error_job": (guest(then=TRAPS), {}),
    "confirm_delete": (guest(output="deleted"), {}),
}
_TASKS = {"greet": "forbidden", "failing_job": "required"}


SESSION = "suite"
_CONFIG = """\
version = 1
[servers.suite]
command = {command}
elicitation = "client"
[servers.suite.tools."*"]
# Calls that nobody answers end soon.
timeout = "20s"
[sessions.{session}]
names = {names}
resources = ["suite/**"]
prompts = ["suite/*"]
[[sessions.{session}.allow]]
tools = ["suite/*"]
"""


def _inline(value: JSON) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_inline(one)}" for key, one in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)


def _configure(folder: Path) -> None:
    command = _inline([sys.executable, str(HERE / "tools.py")])
    names = _inline({name: f"suite/{name}" for name in TOOLS})
    lines = [_CONFIG.format(command=command, names=names, session=SESSION)]
    for name, (module, schema) in _AGENTS.items():
        (folder / f"{name}.wasm").write_bytes(module)
        expose: dict[str, JSON] = {"mcp": True}
        if name in _TASKS:
            expose["tasks"] = _TASKS[name]
        if schema:
            expose["input_schema"] = {**schema}
        lines += [
            f"[agents.{name}]",
            f'module = "{name}.wasm"',
            'description = "One of the tools that the suite wants."',
            f"expose = {_inline(expose)}",
            f"[[agents.{name}.allow]]",
            'tools = ["suite/*"]',
        ]
    (folder / "caxton.toml").write_text("\n".join(lines) + "\n")


@contextmanager
def host(folder: Path) -> Generator[str]:
    """Yield the URL of a host that serves the agents."""
    _configure(folder)
    environ = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(HERE.parents[1]),
    }
    words = ("serve", "--port", "0", "--allow-unauthenticated", "--json")
    with subprocess.Popen(
        [CAXTON, *words],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            told = child.stdout.readline()
            assert told, child.stderr.read()
            yield str(json.loads(told)["mcp"])
        finally:
            child.send_signal(signal.SIGTERM)
            child.communicate(timeout=30)
