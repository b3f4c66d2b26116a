"""
The control API as OpenAPI 3.1 describes it, of the same table that the routes are.

``python -m caxton_host.web.api.openapi`` prints it.
"""

from __future__ import annotations

import json
import sys

from ...core.calls import JSON
from ...core.grants.principals import SCOPES
from ..edge.problems import KINDS
from .operations import IN_PATH, PREFIX, Answer, Operation, Parameter
from .routes import OPERATIONS
from .schemas import SHAPES

_ABOUT = """\
Runs of agents, on a host that serves. A run that you may not see does not exist for \
you: 404. What is wrong is told as RFC 9457 has it.

What changes something has `Content-Type: application/json`, and an empty object as \
its body if it has nothing to say.

Every list is a page. Where `next` or `more` says that there is more, ask for it with \
the cursor that you were given.
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
    """Return what is answered with each status of a problem."""
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
