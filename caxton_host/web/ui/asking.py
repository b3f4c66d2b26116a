"""
What pages ask the control API: the same operations, called in this process.

So scopes, tenants and bounds of a page are those of the API, and a page can do nothing
that the API cannot.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...errors import ForbiddenError, NotFoundError
from ..api.openapi import OPERATIONS
from ..api.operations import PREFIX, ApiContext, Operation
from ..edge.messages import Refusal
from .visits import Visit

_DIGITS = 15
_BY_ID: Mapping[str, Operation] = {one.id: one for one in OPERATIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """
    A request for a page.

    Attributes:
        desk: What operations need.

        who: The caller.

        visit: Their sign-in.

        request: For the page.
    """

    desk: ApiContext
    who: Principal
    visit: Visit
    request: Request

    async def of(self, id_: str, /, body: JSON = None, **given: JSON) -> Any:  # noqa: ANN401 -- a document
        """
        Return what an operation answers.

        Args:
            id_: Of the operation.

            body: Of the request.

            given: Its parameters, those in the path included; empty ones are left out.

        Raises:
            Refusal, CaxtonError: It is not answered.
        """
        response = await self._answer(id_, body, given)
        return json.loads(bytes(response.body)) if response.body else None

    async def response(self, id_: str, /, **given: JSON) -> Response:
        """Return the response of an operation as it is: bytes, or a stream."""
        return await self._answer(id_, None, given, headers=True)

    async def _answer(
        self, id_: str, body: JSON, given: dict[str, JSON], *, headers: bool = False
    ) -> Response:
        operation = _BY_ID[id_]
        in_path = {name: str(given.pop(name)) for name in operation.in_path}
        query = {key: str(it) for key, it in given.items() if it not in {None, ""}}
        scope: dict[str, Any] = {
            **self.request.scope,
            "method": operation.method,
            "path": PREFIX + operation.path.format(**in_path),
            "path_params": in_path,
            "query_string": urlencode(query).encode(),
            "headers": self.request.scope["headers"] if headers else [],
            "caxton.body": body or {},
        }
        asked = Request(scope, self.request.receive)
        return await operation.answer(self.desk, asked)

    def may(self, id_: str) -> bool:
        """Return whether the caller has a scope that an operation takes."""
        return _BY_ID[id_].is_for(self.who)

    async def maybe(self, id_: str, /, **given: JSON) -> Any:  # noqa: ANN401 -- a document
        """Return what an operation answers; ``None``: nothing, to this caller."""
        try:
            return await self.of(id_, **given)
        except (ForbiddenError, NotFoundError):
            return None
        except Refusal as exc:
            if exc.problem.kind == "not-found":
                return None
            raise

    @property
    def now(self) -> int:
        """The time of the host, in microseconds since 1970."""
        return self.desk.service.host.clock.now()

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the page, without empty ones."""
        return {key: value for key, value in self.request.query_params.items() if value}

    def number(self, name: str) -> int | None:
        """Return a parameter of the page that is a number, or ``None``."""
        return number(self.query.get(name, ""))


def number(text: str) -> int | None:
    """
    Return a number of a form or an address; ``None``: it is none.

    >>> number("17"), number("-1"), number("9" * 99)
    (17, None, None)
    """
    is_one = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    return int(text) if is_one else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """
    A page.

    Attributes:
        template: Its name.

        title: Of the window.

        values: What the template gets.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


View: TypeAlias = Callable[[Asking], Awaitable[Shown]]

Fields: TypeAlias = Mapping[str, str]
#: Returns a path to go to, or a page; ``None``: back to the page of the form.
Action: TypeAlias = Callable[[Asking, Fields], Awaitable[str | Shown | None]]
