"""
Operations: the table from which routes and the OpenAPI document are made.

    request -> scope -> parameters -> body -> handler -> response
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...core.grants.principals import Scope as Right
from ...errors import ForbiddenError
from ...lib.json_schema import input_check
from ...ports.serving import Keeping
from ...ports.tools import ToolSource
from ...runs.admission import RunQueue
from ...service.run_service import Service
from ...service.verifying import Verifying
from ..edge.messages import GoneError, Refusal, check_media
from ..edge.middleware import ConcurrencyLimit
from .cursors import Cursors

_BYTES = 4 * 1024 * 1024


def text_of(document: JSON) -> str:
    """Return a document as JSON text."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


@dataclass(slots=True)
class Page:
    """A page of documents of bounded size."""

    _parts: list[str] = field(default_factory=list[str], init=False)
    _size: int = field(default=0, init=False)

    def add(self, document: JSON) -> None:
        """Add a part."""
        text = text_of(document)
        self._parts.append(text)
        self._size += len(text)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def is_full(self) -> bool:
        """Whether the rest must go on another page."""
        return self._size >= _BYTES

    def answer(self, document: Mapping[str, JSON], name: str) -> Response:
        """Return a response that holds *document*, with the parts under *name*."""
        head = text_of({**document})[:-1]
        body = f"{head},{json.dumps(name)}:[{','.join(self._parts)}]}}"
        return Response(body, media_type="application/json")


PREFIX = "/api/v1"

#: Concurrent readers of much of the log. More would only wait for the interpreter, and
#: have the event loop wait with them.
_READERS = 2
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_IN_PATH = re.compile(r"\{([a-z0-9]+)\}")

Schema: TypeAlias = Mapping[str, JSON]

_ID: Schema = {"type": "string", "pattern": "^[0-9a-f-]{1,64}$"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
_SEQ: Schema = {"type": "integer", "minimum": 1, "maximum": 2**53}
_EMPTY: Schema = {"type": "object", "additionalProperties": False}
_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
#: Parameters of paths, by name. A value that does not match is not found.
IN_PATH: Mapping[str, tuple[Schema, str]] = {
    "run": (_ID, "The id of a run."),
    "seq": (_SEQ, "The number of an event of the run."),
    "name": (_NAME, "The name of a server or an agent, or the id of a token."),
    "sha256": (_DIGEST, "The SHA-256 of the bytes, in hex."),
    "size": (_SEQ, "How many events the checkpoint must cover."),
}


def takes(required: Collection[str] = (), **properties: Schema) -> dict[str, JSON]:
    """Return the schema of a body with these keys and no others."""
    needed: dict[str, JSON] = {"required": [*required]} if required else {}
    keys: dict[str, JSON] = {name: {**schema} for name, schema in properties.items()}
    return {**_EMPTY, **needed, "properties": keys}


def _readers() -> RunQueue:
    # How many wait is bounded where requests are counted.
    return RunQueue(places=_READERS, queue=0, each=0, rate=0, now=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """
    What handlers need besides the request.

    Attributes:
        service: Runs the agents.

        tools: What all servers offer, accepted or not.

        environ: Where variables of the configuration are looked up.

        edit: Servers may be changed.

        streams: Limits streams of events.

        verifying: Verifies the log.

        keeping: Opens what erases runs, makes bundles, and adds and revokes tokens.

        anybody: Callers without a token are the local user.

        reading: Why nothing can be changed here; ``""``: it can.

        editing: Held while the configuration is changed.

        cursors: Those of the whole log.

        readers: Limits concurrent readers of much of the log, in turns.
    """

    service: Service
    tools: ToolSource
    environ: Mapping[str, str] = field(repr=False)
    edit: bool
    streams: ConcurrencyLimit
    verifying: Verifying
    keeping: Keeping
    anybody: bool = False
    reading: str = ""
    editing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    cursors: Cursors = field(default_factory=Cursors, init=False)
    readers: RunQueue = field(default_factory=_readers, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    A validated request.

    Attributes:
        who: The caller.

        path: The parameters of its path, by name.

        given: Its parameters, with defaults filled in.

        body: Its parsed JSON body.
    """

    who: Principal
    desk: ApiContext
    request: Request
    path: Mapping[str, str]
    given: Mapping[str, JSON]
    body: Mapping[str, JSON]

    @property
    def service(self) -> Service:
        """Serves runs."""
        return self.desk.service

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text, or ``None``."""
        value = self.given.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int:
        """Return a parameter that is a number, and is required or has a default."""
        value = self.given[name]
        assert isinstance(value, int)  # noqa: S101 -- see `Parameter`
        return value


def read_only(why: str) -> ForbiddenError:
    """Return the refusal of what changes something, where nothing can be changed."""
    return ForbiddenError(
        f"nothing can be changed, started or signed here: {why}",
        fix="caxton ui, on the host",
    )


Handler: TypeAlias = Callable[[Asked], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """
    A parameter of a request.

    Attributes:
        place: ``query`` or ``header``.

        schema: Of a text or an integer; may have a default.
    """

    name: str
    about: str
    schema: Schema
    place: str = "query"
    required: bool = False

    def read(self, values: Collection[str]) -> JSON:
        """
        Return the value that was given, or the default.

        Raises:
            Refusal: It is not as the schema wants it.
        """
        if not values:
            if self.required:
                raise _bad(self.name, "is required")
            return self.schema.get("default")
        if len(values) > 1:
            raise _bad(self.name, "is given twice")
        (text,) = values
        value = _value(self.schema, text)
        if wrong := input_check(self.schema)(value):
            raise _bad(self.name, wrong.reason)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    A response of an operation.

    Attributes:
        schema: The name of the schema of its document, or ``None``: it has none.

        stream: It is sent as server-sent events on request.

        binary: It is bytes.

        headers: Those that matter, and what they say.
    """

    about: str
    schema: str | None = None
    stream: bool = False
    binary: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Operation:
    """
    An operation of the control API.

    Attributes:
        id: Names it in the document.

        path: Behind `PREFIX`.

        scopes: It is for principals that have one of these.

        problems: Kinds of problems that it may end in, besides those of all.

        reads: It reads much of the log: a few do so at a time, in turns.

        shows: What it shows of runs, as `RunRead` records it.
    """

    id: str
    method: str
    path: str
    about: str
    scopes: tuple[Right, ...]
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    body: Schema = field(default_factory=lambda: _EMPTY)
    answers: Mapping[int, Answer]
    problems: tuple[str, ...] = ()
    reads: bool = False
    shows: str = ""

    @property
    def tag(self) -> str:
        """Its tag: the first segment of its path."""
        return self.path.split("/")[1]

    @property
    def in_path(self) -> list[str]:
        """The names of parameters in its path."""
        return _IN_PATH.findall(self.path)

    @cached_property
    def _fits(self) -> Callable[[JSON], object]:
        return input_check(self.body)

    async def answer(self, desk: ApiContext, request: Request) -> Response:
        """
        Answer a request.

        Raises:
            Refusal, CaxtonError: It is not answered.
        """
        who: Principal = request.scope["caxton.principal"]
        if not self.is_for(who):
            if desk.reading:
                raise read_only(desk.reading)
            is_tenants = self.is_for(replace(who, tenant=None))
            raise ForbiddenError(
                f"the scope {' or '.join(self.scopes)} is required"
                + (", without a tenant" if is_tenants else ""),
                fix="use a token that has it",
            )
        for name, text in request.path_params.items():
            _check_path(name, text)
        asked = Asked(
            who=who,
            desk=desk,
            request=request,
            path=request.path_params,
            given=self._given(request),
            body=self._body(request),
        )
        if not self.reads:
            return await self._handled(asked)
        with desk.readers.admit(who.key) as ticket:
            await ticket.turn()
            if await request.is_disconnected():
                raise GoneError
            return await self._handled(asked)

    def is_for(self, who: Principal) -> bool:
        """Return whether a principal has a scope that it takes."""
        return any(who.may(scope) for scope in self.scopes)

    async def _handled(self, asked: Asked) -> Response:
        found = await self.handler(asked)
        if self.shows:
            run = asked.path.get("run", "")
            asked.service.reads.note(asked.who, run, self.shows)
        return found

    def _given(self, request: Request) -> dict[str, JSON]:
        query: QueryParams = request.query_params
        known = {one.name for one in self.parameters if one.place == "query"}
        for name in query:
            if name not in known:
                raise _bad("the query", f"no parameter is called {name[:40]!r}")
        return {
            one.name: one.read(
                query.getlist(one.name)
                if one.place == "query"
                else request.headers.getlist(one.name)
            )
            for one in self.parameters
        }

    def _body(self, request: Request) -> Mapping[str, JSON]:
        value: JSON = request.scope.get("caxton.body", {})
        if wrong := self._fits(value):
            raise _bad("the body", str(wrong))
        assert isinstance(value, dict)  # noqa: S101 -- its schema says so
        return value


def _check_path(name: str, text: str) -> None:
    schema, _ = IN_PATH[name]
    if input_check(schema)(_value(schema, text)):
        raise Refusal("not-found", f"no such {name}", fix="use one from a list")


def _value(schema: Schema, text: str) -> JSON:
    """Return a text as a number if its schema requires one and it is one."""
    is_number = schema["type"] == "integer" and _NUMBER.fullmatch(text)
    return int(text) if is_number else text


def _bad(where: str, what: str) -> Refusal:
    return Refusal("bad-request", f"{where}: {what}", fix=f"see {PREFIX}/openapi.json")


def answer(
    document: JSON, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response that holds a document."""
    return Response(text_of(document), status, headers, "application/json")


def wrong_method(method: str, allowed: Iterable[str]) -> Refusal:
    """Return the refusal of a method that a path does not support."""
    return Refusal(
        "bad-method",
        f"{method} is not allowed for this path",
        headers={"allow": ", ".join(allowed)},
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """A path and its operations by method."""

    desk: ApiContext
    by_method: Mapping[str, Operation]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method not in self.by_method:
            raise wrong_method(scope["method"], self.by_method)
        request = Request(scope, receive)
        if method != "GET":
            check_media(request.headers.getlist("content-type"))
        response = await self.by_method[method].answer(self.desk, request)
        await response(scope, receive, send)


def routes(desk: ApiContext, operations: Iterable[Operation]) -> list[Route]:
    """Return the routes of a table of operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for one in operations:
        by_path.setdefault(one.path, {})[one.method] = one
    return [Route(PREFIX + path, _Place(desk, ways)) for path, ways in by_path.items()]
