"""
All operations of the control API, and their OpenAPI 3.1 document.

``python -m caxton_host.web.api.openapi`` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from ...core.calls import JSON
from ...core.grants.principals import SCOPES
from ...core.log.runs import ENDS
from ..edge.messages import KINDS
from . import (
    access,
    agents,
    approvals,
    events,
    evidence,
    freezes,
    grants,
    log,
    runs,
    schedules,
    servers,
    tools,
)
from .operations import IN_PATH, PREFIX, Answer, Operation, Parameter

OPERATIONS: tuple[Operation, ...] = tuple(
    operation
    for part in (
        *(runs, events, approvals, freezes, schedules, servers, tools, agents, grants),
        *(log, evidence, access),
    )
    for operation in part.OPERATIONS
)


_TEXT: dict[str, JSON] = {"type": "string"}
_MAYBE_TEXT: dict[str, JSON] = {"type": ["string", "null"]}
_NUMBER: dict[str, JSON] = {"type": "integer"}
_MAYBE_NUMBER: dict[str, JSON] = {"type": ["integer", "null"]}
_MAYBE_AMOUNT: dict[str, JSON] = {"type": ["number", "null"]}
_FLAG: dict[str, JSON] = {"type": "boolean"}
_MAYBE_FLAG: dict[str, JSON] = {"type": ["boolean", "null"]}
_MAP: dict[str, JSON] = {"type": "object"}
_MAYBE_MAP: dict[str, JSON] = {"type": ["object", "null"]}
_ANYTHING: dict[str, JSON] = {}
_TEXTS: dict[str, JSON] = {"type": "array", "items": {"type": "string"}}
_MAPS: dict[str, JSON] = {"type": "array", "items": {"type": "object"}}
_TIME: dict[str, JSON] = {
    "type": "integer",
    "description": "Microseconds since 1970, UTC.",
}


def _ref(name: str) -> dict[str, JSON]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str) -> dict[str, JSON]:
    return {"type": "array", "items": _ref(name)}


def _document(kind: str, /, **keys: JSON) -> dict[str, JSON]:
    """Return the schema of a document that always has these keys."""
    return {
        "type": "object",
        "required": ["$type", *keys],
        "properties": {"$type": {"const": f"caxton.{kind}/v1"}, **keys},
    }


_STATES: list[JSON] = [*sorted({*ENDS.values()})]
_RUN = _document(
    "run",
    run_id=_TEXT,
    agent=_TEXT,
    actor=_MAP,
    module_sha256=_TEXT,
    state={"enum": [*_STATES, "broken"]},
    output=_ANYTHING,
    error=_MAYBE_MAP,
    calls={"type": "object", "additionalProperties": {"type": "integer"}},
    events=_NUMBER,
    started_at=_TIME,
    duration_ms={"type": "number"},
    trace_id=_MAYBE_TEXT,
    forked_from=_MAYBE_MAP,
    waits_for=_MAYBE_TEXT,
    program=_MAYBE_MAP,
    bounds=_MAPS,
    signed_by=_TEXTS,
    erased=_FLAG,
    parent=_MAYBE_TEXT,
    called_by=_MAYBE_NUMBER,
)

_TOKEN: dict[str, JSON] = {
    "id": _TEXT,
    "name": _TEXT,
    "scopes": _TEXTS,
    "agents": _TEXTS,
    "roles": _TEXTS,
    "tenant": _MAYBE_TEXT,
    "created_at": _TIME,
    "expires_at": _MAYBE_NUMBER,
    "revoked_at": _MAYBE_NUMBER,
    "state": {"enum": ["good", "expired", "revoked"]},
}

_SERVER: dict[str, JSON] = {
    "name": _TEXT,
    "transport": _TEXT,
    "address": _TEXT,
    "required": _FLAG,
    "origin": _TEXT,
    "host": _MAYBE_TEXT,
    "live": _MAYBE_FLAG,
    "as_of": _MAYBE_NUMBER,
    "state": _MAYBE_TEXT,
    "problem": _MAYBE_TEXT,
    "protocol": _MAYBE_TEXT,
    "latency_ms": {"type": ["number", "null"]},
    "restarts": _MAYBE_NUMBER,
    "breaker": _MAYBE_TEXT,
    "generation": _MAYBE_NUMBER,
}

#: By the names that operations call them.
SHAPES: Mapping[str, dict[str, JSON]] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "fix", "instance"],
        "properties": {
            "type": {"type": "string", "pattern": "^/problems/"},
            "title": _TEXT,
            "status": _NUMBER,
            "detail": _TEXT,
            "fix": _TEXT,
            "instance": _TEXT,
        },
    },
    "Run": _RUN,
    "ListedRun": _document(
        "listed-run",
        run_id=_TEXT,
        agent=_TEXT,
        kind={"enum": ["agent", "program", "session", ""]},
        state={"enum": _STATES},
        reason=_MAYBE_TEXT,
        actor=_MAP,
        tenant=_MAYBE_TEXT,
        parent=_MAYBE_TEXT,
        module_sha256=_TEXT,
        calls=_MAYBE_MAP,
        tools={"type": "array", "items": {"type": "array", "items": _TEXT}},
        trace_id=_MAYBE_TEXT,
        started_at=_TIME,
        changed_at=_TIME,
        ended_at=_MAYBE_NUMBER,
        duration_ms={"type": ["number", "null"]},
        erased=_FLAG,
    ),
    "Runs": _document("runs", runs=_list("ListedRun"), next=_MAYBE_TEXT),
    "RunResult": _document(
        "run-result", run_id=_TEXT, state=_TEXT, output=_ANYTHING, error=_MAYBE_MAP
    ),
    "Hold": _document("hold", run_id=_TEXT, hold=_MAYBE_MAP),
    "Event": _document(
        "event",
        position=_MAYBE_NUMBER,
        stream=_TEXT,
        seq=_NUMBER,
        type=_TEXT,
        schema_version=_NUMBER,
        recorded_at=_TIME,
        trace_id=_MAYBE_TEXT,
        span_id=_MAYBE_TEXT,
        payload=_MAYBE_MAP,
        hash=_TEXT,
        cursor=_TEXT,
    ),
    "Events": _document(
        "events", events=_list("Event"), cursor=_MAYBE_TEXT, more=_FLAG
    ),
    "Trace": _document(
        "trace", run_id=_TEXT, call=_NUMBER, event=_NUMBER, tool=_TEXT, values=_MAPS
    ),
    "CallingLines": _document("lines", run_id=_TEXT, lines=_MAYBE_MAP),
    "Diff": _document(
        "diff", a=_TEXT, b=_TEXT, same=_FLAG, first=_MAYBE_MAP, calls=_MAPS, end=_MAPS
    ),
    "Explanation": _document(
        "explanation",
        run_id=_TEXT,
        seq=_NUMBER,
        call=_NUMBER,
        name=_TEXT,
        server=_MAYBE_TEXT,
        tool=_MAYBE_TEXT,
        effect=_MAYBE_TEXT,
        params=_MAYBE_MAP,
        verdict=_TEXT,
        rule=_MAYBE_TEXT,
        asks=_MAPS,
        considered=_MAPS,
        ended=_TEXT,
        remedy=_MAYBE_TEXT,
    ),
    "CallContext": _document(
        "call-context",
        run_id=_TEXT,
        call=_NUMBER,
        before=_MAPS,
        last_approved=_MAYBE_MAP,
        output_schema=_ANYTHING,
    ),
    "Approval": _document(
        "approval",
        run_id=_TEXT,
        agent=_TEXT,
        seq=_MAYBE_NUMBER,
        call=_NUMBER,
        name=_TEXT,
        server=_TEXT,
        tool=_TEXT,
        params=_MAP,
        params_sha256=_TEXT,
        rule=_TEXT,
        sources=_MAYBE_MAP,
        by=_TEXTS,
        count=_NUMBER,
        not_by=_MAYBE_MAP,
        fresh=_MAYBE_AMOUNT,
        given=_MAPS,
        asked_at=_TIME,
        until=_MAYBE_NUMBER,
        expired=_FLAG,
    ),
    "Question": _document(
        "question",
        run_id=_TEXT,
        agent=_TEXT,
        seq=_NUMBER,
        asked_at=_TIME,
        call=_NUMBER,
        question=_NUMBER,
        name=_TEXT,
        server=_TEXT,
        tool=_TEXT,
        message=_TEXT,
        form=_MAP,
        to=_TEXT,
        by=_TEXTS,
        until=_TIME,
    ),
    "Approvals": _document(
        "approvals",
        approvals=_list("Approval"),
        questions=_list("Question"),
        more=_FLAG,
        next=_MAYBE_TEXT,
        waiting=_NUMBER,
    ),
    "Freeze": _document(
        "freeze",
        kind=_TEXT,
        name=_TEXT,
        frozen=_FLAG,
        actor=_MAP,
        reason=_TEXT,
        at=_TIME,
    ),
    "Freezes": _document("freezes", freezes=_list("Freeze")),
    "Schedule": _document(
        "schedule",
        name=_TEXT,
        agent=_TEXT,
        cron=_TEXT,
        timezone=_TEXT,
        input=_ANYTHING,
        variables=_MAP,
        overlap=_TEXT,
        catch_up=_TEXT,
        next=_MAYBE_NUMBER,
        last=_MAYBE_MAP,
        paused=_MAYBE_MAP,
    ),
    "Schedules": _document("schedules", schedules=_list("Schedule")),
    "Server": _document("server", **_SERVER),
    "ServerShown": _document("server", **_SERVER, failures=_MAPS, login=_MAYBE_MAP),
    "Servers": _document("servers", servers=_list("Server")),
    "ServerTest": _document(
        "server-test",
        server=_TEXT,
        answers=_FLAG,
        problem=_MAYBE_TEXT,
        name=_MAYBE_TEXT,
        version=_MAYBE_TEXT,
        protocol=_MAYBE_TEXT,
        tools=_TEXTS,
        resources=_MAPS,
    ),
    "ServerLogs": _document("server-logs", server=_TEXT, lines=_TEXTS),
    "Restart": _document(
        "restart", server=_TEXT, host=_TEXT, restarted=_FLAG, outcome=_TEXT
    ),
    "Restarts": _document("restarts", hosts=_list("Restart")),
    "Reload": _document("reload", host=_TEXT, reloaded=_FLAG, outcome=_TEXT),
    "Reloads": _document("reloads", hosts=_list("Reload")),
    "ServerEdit": _document(
        "server-edit",
        change={"enum": ["added", "changed", "removed"]},
        name=_TEXT,
        hosts=_list("Reload"),
    ),
    "Caller": _document(
        "caller",
        kind=_TEXT,
        id=_TEXT,
        authenticated=_FLAG,
        scopes=_TEXTS,
        agents=_TEXTS,
        roles=_TEXTS,
        tenant=_MAYBE_TEXT,
        edit=_FLAG,
    ),
    "Acceptance": _document(
        "acceptance",
        server=_TEXT,
        tool=_TEXT,
        state={"enum": ["same", "changed", "new", "accepted"]},
        before=_MAYBE_TEXT,
        definition_sha256=_TEXT,
        differences=_MAPS,
    ),
    "Call": _document(
        "call",
        run_id=_TEXT,
        seq=_NUMBER,
        status={"enum": ["ok", "tool_error", "denied", "failed", "bad_request"]},
        message=_TEXT,
        data=_ANYTHING,
    ),
    "Tool": _document(
        "tool",
        server=_TEXT,
        tool=_TEXT,
        exposed=_TEXT,
        description=_TEXT,
        input_schema=_ANYTHING,
        output_schema=_ANYTHING,
        effect=_TEXT,
        definition_sha256=_TEXT,
        accepted=_MAYBE_FLAG,
        on_change=_MAYBE_TEXT,
    ),
    "Tools": _document("tools", tools=_list("Tool")),
    "Agent": _document(
        "agent",
        name=_TEXT,
        module=_MAYBE_TEXT,
        grants=_MAP,
        names=_MAP,
        pin=_MAYBE_MAP,
    ),
    "Agents": _document("agents", agents=_list("Agent")),
    "AgentGrants": _document(
        "agent-grants",
        agent=_TEXT,
        table=_TEXT,
        pin=_MAYBE_MAP,
        rules=_MAPS,
        tools=_MAPS,
        budgets={"type": ["array", "null"], "items": _MAP},
    ),
    "JudgedHistory": _document(
        "judged-history",
        agent=_TEXT,
        since=_MAYBE_NUMBER,
        until=_MAYBE_NUMBER,
        complete=_FLAG,
        runs=_NUMBER,
        calls=_NUMBER,
        changed=_NUMBER,
        erased=_NUMBER,
        uses=_MAP,
        changes=_MAPS,
    ),
    "Judgement": _document(
        "judgement",
        agent=_TEXT,
        server=_TEXT,
        tool=_TEXT,
        params=_MAP,
        verdict=_TEXT,
        rule=_MAYBE_TEXT,
        asks=_MAPS,
        considered=_MAPS,
        remedy=_MAYBE_TEXT,
    ),
    "Checkpoint": _document(
        "checkpoint", origin=_TEXT, size=_NUMBER, root=_TEXT, note=_TEXT
    ),
    "Place": _document(
        "place",
        run_id=_TEXT,
        seq=_NUMBER,
        leaf=_MAYBE_NUMBER,
        checkpoint=_MAYBE_NUMBER,
    ),
    "Verification": _document(
        "verification",
        tree=_MAP,
        verified=_MAYBE_NUMBER,
        last=_MAYBE_MAP,
        kept=_MAYBE_MAP,
    ),
    "Erasure": _document(
        "erasure",
        run_id=_TEXT,
        agent=_TEXT,
        actor=_MAP,
        reason=_TEXT,
        events=_NUMBER,
        scrubbed=_FLAG,
    ),
    "Token": _document("token", **_TOKEN),
    "NewToken": _document("token", **_TOKEN, token=_TEXT),
    "Tokens": _document("tokens", tokens=_list("Token")),
    "Hosts": _document("hosts", hosts=_MAPS),
}


_ABOUT = """\
Runs of agents on a serving host. A run that you may not see does not exist for \
you: 404. Errors are problem documents (RFC 9457).

A request that changes something has `Content-Type: application/json`, and an empty \
object as its body if it has no parameters.

Lists are paginated. If `next` or `more` says that there is more, request the next \
page with the cursor of the answer.
"""

#: What every request may end in.
_ALWAYS = (
    "bad-request",
    "unauthenticated",
    "forbidden",
    "bad-origin",
    "misdirected",
    "overloaded-principal",
    "large-headers",
    "long-target",
    "overloaded",
    "store",
    "internal",
    "broken-log",
)
_WITH_BODY = ("slow", "too-large", "bad-media")


def document() -> dict[str, JSON]:
    """Return the OpenAPI document."""
    paths: dict[str, JSON] = {}
    for one in OPERATIONS:
        known = paths.setdefault(PREFIX + one.path, {})
        assert isinstance(known, dict)  # noqa: S101 -- see above
        known[one.method.lower()] = _operation(one)
    scopes = "; ".join(f"`{name}`: {about}" for name, about in SCOPES.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Caxton Host control API",
            "version": "1",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**SHAPES},
            "responses": _responses(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"A token of this host, or of its authorization "
                    f"server. Its scopes: {scopes}.",
                }
            },
        },
    }


def _operation(one: Operation) -> dict[str, JSON]:
    parameters: list[JSON] = [_in_path(name) for name in one.in_path]
    parameters += map(_parameter, one.parameters)
    found: dict[str, JSON] = {
        "operationId": one.id,
        "tags": [one.tag],
        "summary": one.about.partition(".")[0],
        "description": f"{one.about} Scope: {' or '.join(one.scopes)}, or admin.",
        # One of them is enough, whatever tool reads this.
        "security": [{"bearer": [scope]} for scope in one.scopes],
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(is_) for status, is_ in one.answers.items()},
            **_problems(one),
        },
    }
    if one.method != "GET":
        content: dict[str, JSON] = {"application/json": {"schema": {**one.body}}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _in_path(name: str) -> dict[str, JSON]:
    schema, about = IN_PATH[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": about,
        "schema": {**schema},
    }


def _parameter(one: Parameter) -> dict[str, JSON]:
    return {
        "name": one.name,
        "in": one.place,
        "required": one.required,
        "description": one.about,
        "schema": {**one.schema},
    }


def _answer(one: Answer) -> dict[str, JSON]:
    found: dict[str, JSON] = {"description": one.about}
    if one.headers:
        found["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in one.headers.items()
        }
    if one.binary:
        found["content"] = {"application/octet-stream": {}}
    if one.schema:
        schema: dict[str, JSON] = {"$ref": f"#/components/schemas/{one.schema}"}
        content: dict[str, JSON] = {"application/json": {"schema": schema}}
        if one.stream:
            content["text/event-stream"] = {"schema": {"type": "string"}}
        found["content"] = content
    return found


def _problems(one: Operation) -> dict[str, JSON]:
    kinds = [*_ALWAYS, *one.problems, *(_WITH_BODY if one.method != "GET" else ())]
    return {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted({KINDS[kind][0] for kind in kinds})
    }


def _responses() -> dict[str, JSON]:
    """Return the response of each status of a problem."""
    titles: dict[int, list[str]] = {}
    for kind, (status, title) in KINDS.items():
        titles.setdefault(status, []).append(f"{title} (`{kind}`).")
    schema: dict[str, JSON] = {"$ref": "#/components/schemas/Problem"}
    return {
        f"Problem{status}": {
            "description": " ".join(said),
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status, said in titles.items()
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(document(), indent=2) + "\n")
