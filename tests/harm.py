"""What hostile clients of a session send, and all that comes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from caxton_host.core.names import PROMPT, READ, exposed_name

#: Bytes of a request, and of an answer.
MOST = 1_000_000
_MODERN = "2026-07-28"
ECHO = "mcp__demo__echo"


def message(method: object, number: object = 1, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: object = ECHO, number: object = 1, /, **arguments: object) -> bytes:
    return json.dumps(
        message("tools/call", number, name=name, arguments=arguments)
    ).encode()


def modern(method: str, **params: object) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": _MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return json.dumps(message(method, 1, **params, _meta=meta)).encode()


def deep(levels: int) -> bytes:
    inner = b"[" * levels + b"]" * levels
    return call(x=0).replace(b'"x": 0', b'"x": ' + inner)


@dataclass(frozen=True, kw_only=True)
class Harm:
    """
    A request that means harm.

    Attributes:
        status: Of its answer.

        error: The code of its JSON-RPC error, if it has one.

        denied: The answer is a result that says so.

        attempts: The calls that are recorded of it.
    """

    body: bytes = b""
    method: str = "POST"
    path: str = "/mcp/dev"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 200
    error: int | None = None
    denied: str | None = None
    attempts: int = 0


INVALID, PARSE, METHOD, PARAMS = -32600, -32700, -32601, -32602
VERSION = {"mcp-protocol-version": _MODERN}
LISTED = json.dumps(message("tools/list")).encode()

HARM: Mapping[str, Harm] = {
    "no body": Harm(status=400, error=PARSE),
    "no JSON": Harm(body=b"{", status=400, error=PARSE),
    "not UTF-8": Harm(body=b'"\xff"', status=400, error=PARSE),
    "UTF-16": Harm(body=LISTED.decode().encode("utf-16"), status=400, error=PARSE),
    "a number": Harm(body=b"1", status=400, error=PARAMS),
    "null": Harm(body=b"null", status=400, error=PARAMS),
    "a batch": Harm(body=b"[" + call() + b"]", status=400, error=INVALID),
    "an empty batch": Harm(body=b"[]", status=400, error=INVALID),
    "two messages": Harm(body=call() + call(), status=400, error=PARSE),
    "two ids": Harm(
        body=call().replace(b'"id": 1', b'"id": 1, "id": 2'), status=400, error=PARSE
    ),
    "two methods": Harm(
        body=LISTED.replace(b'"id": 1', b'"method": "ping", "id": 1'),
        status=400,
        error=PARSE,
    ),
    "an answer to nothing": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "result": {}}', status=202
    ),
    "an error of nothing": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}',
        status=202,
    ),
    "no version": Harm(body=b'{"id": 1, "method": "ping"}', status=400, error=PARAMS),
    "an id that is a map": Harm(body=call(ECHO, {}), status=202),
    "an id that is a list": Harm(body=call(ECHO, [1]), status=202),
    "an id of 50 kB": Harm(body=call(ECHO, "x" * 50_000), attempts=1),
    "no method": Harm(body=b'{"jsonrpc": "2.0", "id": 1}', status=400, error=PARAMS),
    "an unknown method": Harm(
        body=json.dumps(message("tools/steal")).encode(), error=METHOD
    ),
    "a method of 10 kB": Harm(
        body=json.dumps(message("x" * 10_000)).encode(), error=METHOD
    ),
    "a method that is a map": Harm(
        body=json.dumps(message({})).encode(), status=400, error=PARAMS
    ),
    "resources": Harm(
        body=json.dumps(message("resources/read", uri="file:///etc/passwd")).encode(),
        error=-32000,
        attempts=1,
    ),
    "sampling of the host": Harm(
        body=json.dumps(message("sampling/createMessage", messages=[])).encode(),
        error=METHOD,
    ),
    "no parameters": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', error=PARAMS
    ),
    "parameters that are a list": Harm(
        body=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}',
        status=400,
        error=PARAMS,
    ),
    "arguments that are a list": Harm(
        body=json.dumps(message("tools/call", name=ECHO, arguments=["rm"])).encode(),
        error=PARAMS,
    ),
    "a name that is a number": Harm(body=call(7), error=PARAMS),
    "a name of 10 kB": Harm(body=call("x" * 10_000), denied="bad_request", attempts=1),
    "no name": Harm(body=call(""), denied="bad_request", attempts=1),
    "a name of another kind": Harm(
        body=call("../../etc/passwd"), denied="bad_request", attempts=1
    ),
    "a name with a line break": Harm(
        body=call("mcp__demo__echo\nX"), denied="bad_request", attempts=1
    ),
    "a name with a zero": Harm(body=call("a\0b"), denied="bad_request", attempts=1),
    "a tool of another grant": Harm(
        body=call("mcp__shell__exec"), denied="not_granted", attempts=1
    ),
    "a tool that does not exist": Harm(
        body=call("mcp__demo__none"), denied="not_granted", attempts=1
    ),
    "a deep value": Harm(body=deep(60), attempts=1),
    "a deeper value": Harm(body=deep(100), status=400, error=PARSE),
    "the deepest value": Harm(body=deep(40_000), status=400, error=PARSE),
    "many values": Harm(body=call(x=[0] * 20_000), denied="bad_request", attempts=1),
    "a giant value": Harm(body=call(x="x" * 600_000), denied="bad_request", attempts=1),
    "a giant body": Harm(body=call(x="x" * 2 * MOST), status=413),
    "a giant number": Harm(
        body=call(x=0).replace(b'"x": 0', b'"x": ' + b"9" * 4_000),
        status=400,
        error=PARSE,
    ),
    "a number that is none": Harm(body=call(x=float("nan")), status=400, error=PARSE),
    "an infinite number": Harm(
        body=call(x=0).replace(b'"x": 0', b'"x": 1e999'), status=400, error=PARSE
    ),
    "half a character": Harm(
        body=call(x=0).replace(b'"x": 0', rb'"x": "\ud800"'), status=400, error=PARSE
    ),
    "the same key twice": Harm(
        body=call(x=0).replace(b'"x": 0', b'"x": 0, "x": 1'), status=400, error=PARSE
    ),
    "a stale cursor": Harm(
        body=json.dumps(message("tools/list", cursor="bm9uZQ")).encode(), error=PARAMS
    ),
    "a cursor of 10 kB": Harm(
        body=json.dumps(message("tools/list", cursor="!" * 10_000)).encode(),
        error=PARAMS,
    ),
    "the cursor of a number": Harm(
        body=json.dumps(message("tools/list", cursor=7)).encode(), error=PARAMS
    ),
    "another principal's session": Harm(path="/mcp/ops", body=LISTED, status=404),
    "a session that does not exist": Harm(path="/mcp/none", body=LISTED, status=404),
    "a path above": Harm(path="/mcp/dev/../ops", body=LISTED, status=404),
    "an escaped path": Harm(path="/mcp/%2e%2e/ops", body=LISTED, status=404),
    "a slash too many": Harm(path="/mcp//dev", body=LISTED, status=404),
    "a name of a session of 5 kB": Harm(
        path="/mcp/" + "x" * 5_000, body=LISTED, status=404
    ),
    "the agents": Harm(path="/mcp", body=LISTED, status=403),
    "the control API": Harm(path="/api/v1/runs", body=b"{}", status=403),
    "no token": Harm(headers={"authorization": ""}, body=LISTED, status=401),
    "a token that is none": Harm(
        headers={"authorization": "Bearer eve"}, body=LISTED, status=401
    ),
    "an administrator": Harm(
        headers={"authorization": "Bearer boss"}, body=LISTED, status=404
    ),
    "two tokens": Harm(
        headers={"authorization": "Bearer ann", "Authorization": "Bearer bob"},
        body=LISTED,
        status=400,
    ),
    "a page of another origin": Harm(
        headers={"origin": "https://evil.example"}, body=LISTED, status=403
    ),
    "another host": Harm(headers={"host": "evil.example"}, body=LISTED, status=421),
    "text": Harm(headers={"content-type": "text/plain"}, body=LISTED, status=415),
    "a form": Harm(
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=LISTED,
        status=415,
    ),
    "a packed body": Harm(
        headers={"content-encoding": "gzip"}, body=LISTED, status=415
    ),
    "an answer that nobody can read": Harm(
        headers={"accept": "image/png"}, body=LISTED, status=406, error=INVALID
    ),
    "a foreign session id": Harm(
        headers={"mcp-session-id": "0" * 32}, body=call(), attempts=1
    ),
    "a session id of 10 kB": Harm(
        headers={"mcp-session-id": "0." + "A" * 10_000}, body=call(), attempts=1
    ),
    "a session id that is no text": Harm(
        headers={"mcp-session-id": "0./////w"}, body=call(), attempts=1
    ),
    "the cancel of a foreign call": Harm(
        headers={"mcp-session-id": "0" * 32},
        body=b'{"jsonrpc": "2.0", "method": "notifications/cancelled",'
        b' "params": {"requestId": 1, "reason": "x"}}',
        status=202,
    ),
    "a cancel without parameters": Harm(
        headers={"mcp-session-id": "0" * 32},
        body=b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}',
        status=202,
    ),
    "an unknown notification": Harm(
        body=b'{"jsonrpc": "2.0", "method": "notifications/steal"}', status=202
    ),
    "a call that is a notification": Harm(
        body=call().replace(b'"id": 1, ', b""), status=202
    ),
    "a stream with a foreign event id": Harm(
        method="GET", headers={"last-event-id": "0000_1"}, status=405
    ),
    "a stream of another session": Harm(method="GET", path="/mcp/ops", status=404),
    "an end of another session": Harm(
        method="DELETE", headers={"mcp-session-id": "0" * 32}, status=405
    ),
    "a method of HTTP that nobody knows": Harm(method="STEAL", body=b"{}", status=405),
    "a version that nobody speaks": Harm(
        headers={"mcp-protocol-version": "1999-12-31"},
        body=LISTED,
        status=400,
        error=PARAMS,
    ),
    "two methods in head and body": Harm(
        headers={**VERSION, "mcp-method": "ping"},
        body=modern("tools/list"),
        status=400,
        error=-32020,
    ),
    "two tools in head and body": Harm(
        headers={**VERSION, "mcp-method": "tools/call", "mcp-name": "mcp__demo__fail"},
        body=modern("tools/call", name=ECHO, arguments={}),
        status=400,
        error=-32020,
    ),
    "many headers": Harm(
        headers={f"x-{number}": "x" for number in range(150)}, body=LISTED, status=431
    ),
    "large headers": Harm(headers={"x": "x" * 40_000}, body=LISTED, status=431),
}


GOOD = Harm(body=call(), attempts=1)


def asking(method: str, **params: object) -> bytes:
    return json.dumps(message(method, **params)).encode()


def wrong(method: str, error: int = PARAMS, /, **params: object) -> Harm:
    return Harm(body=asking(method, **params), error=error)


def unread(method: str, **params: object) -> Harm:
    """Return a reading that is denied."""
    return Harm(body=asking(method, **params), error=-32000, attempts=1)


def denied(code: str, body: bytes, **headers: str) -> Harm:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Harm(body=body, headers=headers, denied=code, attempts=1)


def forged(key: str, value: object) -> Harm:
    """Return a call that says more than a client can, which counts for nothing."""
    meta = {key: value}
    body = asking("tools/call", name="mcp__demo__echo", arguments={}, _meta=meta)
    return Harm(body=body, attempts=1)


def searching(tool: str, attempts: int = 0, /, **arguments: object) -> Harm:
    code = "not_granted" if attempts else "bad_request"
    return Harm(
        body=call(tool, **arguments),
        path="/mcp/many",
        headers={"authorization": "Bearer sue"},
        denied=code,
        attempts=attempts,
    )


def completing(kind: str, name: str, value: str = "", **more: object) -> Harm:
    ref = {"type": f"ref/{kind}", "name" if kind == "prompt" else "uri": name}
    argument = {"name": "page", "value": value}
    body = asking("completion/complete", ref=ref, argument=argument, **more)
    return Harm(body=body)


def hello(version: str, name: str = "x") -> Harm:
    client = {"name": name, "version": "1"}
    able: dict[str, object] = {}
    params = {"protocolVersion": version, "capabilities": able, "clientInfo": client}
    return Harm(body=asking("initialize", **params))


def listing(status: int = 200, path: str = "/mcp/dev", **headers: str) -> Harm:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Harm(body=LISTED, status=status, path=path, headers=headers)


READS, PROMPTS = exposed_name("demo", READ), exposed_name("demo", PROMPT)
FOREIGN = call("mcp__shell__echo", text=1)
MANY = {str(number): "x" for number in range(5_000)}
WIDER = {"io.caxton/narrow": {"allow": [{"tools": ["shell/*"]}]}}
CLAIMED = {"x_caxton_principal": "bob", "caxton_session": "ops"}
#: What clients send besides `HARM`, to a host with real servers.
MORE: Mapping[str, Harm] = {
    "a resource outside the grant": unread(READ, uri="demo://secret/b"),
    "a resource beside the grant": unread(READ, uri="demo://public/../secret/b"),
    "an escaped resource": unread(READ, uri="demo://public/%2e%2e%2fsecret"),
    "a resource of another session": unread(READ, uri="shell://public/a"),
    "a resource with a line break": unread(READ, uri="demo://public/a\nb"),
    "a resource of 600 kB": unread(READ, uri="demo://public/" + "x" * 600_000),
    "a resource that is a number": wrong(READ, uri=7),
    "no resource": wrong(READ),
    "a subscription": wrong("resources/subscribe", METHOD, uri="demo://public/a"),
    "a prompt outside the grant": unread(PROMPT, name="only_demo"),
    "a prompt of another session": unread(PROMPT, name="shell/review"),
    "a prompt with a zero": unread(PROMPT, name="review\0"),
    "a prompt of numbers": wrong(PROMPT, name="review", arguments={"x": 1}),
    "a prompt of 5,000 texts": Harm(
        body=asking(PROMPT, name="review", arguments=MANY), attempts=1
    ),
    "a resource as a tool": denied("params", call(READS, uri="demo://secret/b")),
    "a prompt as a tool": denied("params", call(PROMPTS, name="only_demo")),
    "a foreign resource as a tool": denied(
        "not_granted", call(exposed_name("shell", READ), uri="shell://public/a")
    ),
    "a tool of another session": denied("not_granted", FOREIGN),
    "a tool by its server": denied("bad_request", call("shell/echo")),
    "a tool in other letters": denied("not_granted", call("MCP__DEMO_ECHO")),
    "a tool in letters that look alike": denied(
        "bad_request", call("mcp__demo__\u0435cho")
    ),
    "a tool that is turned round": denied("bad_request", call("mcp__demo__echo\u202e")),
    "a tool with an escape": denied("bad_request", call("\x1b[2Jmcp__demo__echo")),
    "a search where there is none": denied("not_granted", call("search_tools")),
    "completion of a hidden prompt": completing("prompt", "only_demo"),
    "completion of a foreign prompt": completing("prompt", "shell/review"),
    "completion of a hidden template": completing("resource", "demo://{area}/{page}"),
    "completion that leads outside": completing(
        "resource", "demo://public/{page}", "../secret/"
    ),
    "completion of no template": completing("resource", "{" * 10_000),
    "completion of 100 kB": completing(
        "resource", "demo://public/{page}", "x" * 100_000
    ),
    "completion of another kind": replace(completing("tool", "echo"), error=PARAMS),
    "completion with a context of numbers": replace(
        completing("prompt", "review", context={"arguments": {"x": 1}}), error=PARAMS
    ),
    "a cursor of another list": wrong("prompts/list", cursor="mcp__demo__echo"),
    "a cursor that is a map": wrong("resources/templates/list", cursor={}),
    "a level that is none": wrong("logging/setLevel", level="loudest"),
    "the run of another session": forged("io.caxton/run-id", "RUN"),
    "the key of another call": forged("io.caxton/idempotency-key", "x"),
    "that key again": forged("io.caxton/idempotency-key", "x"),
    "variables": forged("io.caxton/context", {"customer": "bob"}),
    "a task of another session": forged(
        "io.modelcontextprotocol/related-task", {"taskId": "RUN"}
    ),
    "a level in a call": forged("io.modelcontextprotocol/logLevel", "debug"),
    "a progress token": forged("progressToken", 1),
    "that progress token again": forged("progressToken", 1),
    "a progress token of 100 kB": forged("progressToken", "x" * 100_000),
    "a progress token that is a map": replace(
        forged("progressToken", {}), error=PARAMS, attempts=0
    ),
    "a trace that is none": forged("traceparent", "00-" + "f" * 70_000),
    "a wider grant": denied(
        "not_granted", asking("tools/call", name="mcp__shell__echo", _meta=WIDER)
    ),
    "metadata that is a list": wrong("tools/call", name="mcp__demo__echo", _meta=[]),
    "a client of 100 kB": hello("2025-06-18", "x" * 100_000),
    "the oldest version": hello("2024-11-05"),
    "a version of the past": hello("1999-12-31"),
    "a newer body under an older version": Harm(
        body=modern("tools/list"), headers={"mcp-protocol-version": "2025-06-18"}
    ),
    "an older body under a newer version": replace(
        listing(400, mcp_protocol_version="2026-07-28"), error=PARAMS
    ),
    "two versions": replace(
        listing(400, mcp_protocol_version="2025-06-18, 2026-07-28"), error=PARAMS
    ),
    "a principal in a header": denied("not_granted", FOREIGN, **CLAIMED),
    "a path in a header": denied("not_granted", FOREIGN, x_original_url="/mcp/ops"),
    "a method in a header": listing(x_http_method_override="DELETE"),
    "a token in the path": listing(401, "/mcp/ops?access_token=BOB", authorization=""),
    "a token in a cookie": listing(401, authorization="", cookie="token=BOB"),
    "another scheme": listing(401, authorization="Basic BOB"),
    "half a token": listing(401, authorization="Bearer HALF"),
    "no type": listing(415, content_type=""),
    "two types": listing(415, content_type="application/json, text/plain"),
    "an upgrade": listing(connection="upgrade", upgrade="websocket"),
    "a search of 10 kB": searching("search_tools", query="x" * 10_000),
    "a search for a number": searching("search_tools", query=7),
    "a search for a billion": searching("search_tools", query="x", limit=10**9),
    "a call with arguments of text": searching("call_tool", name="x", arguments="x"),
    "a call by a call": searching("call_tool", 1, name="call_tool"),
    "a call of a hidden tool": searching("call_tool", 1, name="mcp__demo__none"),
}
