"""An authorization server, and a tool server that asks for its tokens."""

from __future__ import annotations

import asyncio
import base64
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

import jwt
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from caxton_host.demo_server import demo_server
from caxton_host.lib.machine import SystemClock

from .conftest import until
from .issuer import Issuer

CLIENT, CLIENT_SECRET = "caxton-client", "correct horse/battery+staple"


class Authority:
    """
    Gives tokens to one client, and knows which of them are good.

    Attributes:
        asked: The form of every request for a token.

        lasts: Seconds that a token is good for, as it says.

        elsewhere: What its metadata name as the place for tokens, instead of its own.

        refreshes: Gives tokens to refresh with, and takes them.

        forgets: Takes no token to refresh with.

        secret: The secret of its client, which may be rotated.

        key: The public key of its client, and the algorithm; ``None``: it has a secret.

        ahead: Seconds that its clock is ahead.

        padding: Bytes that an answer with a token has in vain.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.good: set[str] = set()
        self.given: list[str] = []
        self.lasts: int | None = 3600
        self.elsewhere: str | None = None
        self.redirects = False
        self.refuses = False
        self.empty = False
        self.refreshes = False
        self.forgets = False
        self.length = 32
        self.secret = CLIENT_SECRET
        self.key: tuple[Any, str] | None = None
        self.ahead = 0
        self.padding = 0

    def app(self) -> Starlette:
        where = "/.well-known/oauth-authorization-server"
        return Starlette(
            routes=[
                Route(where, self._metadata),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _metadata(self, asked: Request) -> Response:
        self.paths.append(asked.url.path)
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": self.elsewhere or f"{self.url}/token",
                "response_types_supported": ["code"],
                "scopes_supported": ["everything"],
            }
        )

    async def _token(self, asked: Request) -> Response:
        body = (await asked.body()).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.paths.append(asked.url.path)
        self.asked.append(form)
        if self.redirects:
            return RedirectResponse(f"{self.url}/elsewhere", 307)
        if self.refuses or not self._is_client(asked, form):
            return JSONResponse({"error": "invalid_client", "was": body}, 401)
        if form["grant_type"] == "refresh_token" and self.forgets:
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = "tok-" + secrets.token_hex(self.length // 2)
        self.good.add(token)
        self.given.append(token)
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer"}
        if self.lasts is not None:
            answer["expires_in"] = self.lasts
        if self.refreshes:
            answer["refresh_token"] = f"refresh-{token}"
        answer["padding"] = "x" * self.padding
        return JSONResponse({} if self.empty else answer)

    def _is_client(self, asked: Request, form: dict[str, str]) -> bool:
        if self.key is not None:
            return self._has_signed(form["client_assertion"], *self.key)
        if form.get("client_secret") is not None:
            return (form["client_id"], form["client_secret"]) == (CLIENT, self.secret)
        said = asked.headers.get("authorization", "").partition(" ")[2]
        pair = base64.b64decode(said).decode().partition(":")
        return (unquote(pair[0]), unquote(pair[2])) == (CLIENT, self.secret)

    def _has_signed(self, assertion: str, key: Any, algorithm: str) -> bool:  # noqa: ANN401
        try:
            claims = jwt.decode(
                assertion,
                key,
                [algorithm],
                {
                    "require": ["aud", "exp", "iat", "iss", "jti", "sub"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
                audience=self.url,
                issuer=CLIENT,
            )
        except jwt.PyJWTError:
            return False
        now = SystemClock().now() / 1e6 + self.ahead
        is_timely = claims["iat"] <= now < claims["exp"]
        return bool(is_timely and claims["sub"] == CLIENT)


class Guarded:
    """
    The demo server behind tokens of an authority.

    Attributes:
        seen: What each request to the tools had for authorization.

        sends_to: What its metadata name as the issuer, instead of the true one.

        names_first: Another issuer that it names as well, before that.

        metadata: Where it says that its metadata are, if not where they are.

        resource: What it says that it is, if not the truth.

        scope: What it wants a token to be good for at first; ``None``: it says nothing.

        lacks: What it wants for calls as well.
    """

    def __init__(
        self,
        authority: Authority | Issuer,
        app: Any = None,  # noqa: ANN401
    ) -> None:
        self._authority = authority
        self.app = app or demo_server().streamable_http_app()
        self.url = ""
        self.seen: list[str] = []
        self.calls: list[str] = []
        self.silent = False
        self.sends_to: str | None = None
        self.metadata: str | None = None
        self.names_first: str | None = None
        self.resource: str | None = None
        self.scope: str | None = "everything"
        self.lacks: str | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        if scope["type"] != "http" or "/.well-known" not in scope["path"]:
            if scope["type"] == "http" and not self._admits(scope):
                await self._challenge()(scope, receive, send)
            elif scope["type"] == "http" and self._is_lacking(scope):
                said = f'Bearer error="insufficient_scope", scope="{self.lacks}"'
                refusal = Response(status_code=403, headers={"www-authenticate": said})
                await refusal(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        elif self.silent or "oauth-protected-resource" not in scope["path"]:
            await Response(status_code=404)(scope, receive, send)
        else:
            origin = self.url.removesuffix("/mcp")
            issuer = self.sends_to or self._authority.url
            resource = self.resource or f"{origin}/mcp"
            issuers = [*filter(None, [self.names_first]), issuer]
            about = {"resource": resource, "authorization_servers": issuers}
            await JSONResponse(about)(scope, receive, send)

    def _admits(self, scope: Any) -> bool:  # noqa: ANN401
        headers = dict(scope["headers"])
        said = headers.get(b"authorization", b"").decode()
        self.seen.append(said)
        if headers.get(b"mcp-method"):
            self.calls.append(headers[b"mcp-method"].decode())
        return said.removeprefix("Bearer ") in self._authority.good

    def _is_lacking(self, scope: Any) -> bool:  # noqa: ANN401
        if self.lacks is None or not isinstance(self._authority, Issuer):
            return False
        headers = dict(scope["headers"])
        token = headers[b"authorization"].decode().removeprefix("Bearer ")
        granted = self._authority.good[token].split()
        lacking = not {*self.lacks.split()} <= {*granted}
        return headers.get(b"mcp-method") == b"tools/call" and lacking

    def _challenge(self) -> Response:
        said = "Bearer" if self.scope is None else f'Bearer scope="{self.scope}"'
        if self.metadata:
            said += f', resource_metadata="{self.metadata}"'
        return Response(status_code=401, headers={"www-authenticate": said})


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str]:  # noqa: ANN401 -- what uvicorn takes
    """Yield the origin at which an application is served."""
    async with served_at_once(app) as [origin]:
        yield origin


@asynccontextmanager
async def served_at_once(*apps: Any) -> AsyncGenerator[list[str]]:  # noqa: ANN401
    """Yield the origins of applications, which end together: each takes its time."""
    servers = [
        uvicorn.Server(
            uvicorn.Config(app, log_level="error", lifespan="auto", ws="none")
        )
        for app in apps
    ]
    with ExitStack() as stack:
        listening = [
            stack.enter_context(socket.socket(proto=socket.IPPROTO_TCP)) for _ in apps
        ]
        for one in listening:
            one.bind(("127.0.0.1", 0))
        serving = [
            asyncio.create_task(server.serve([one]))
            for server, one in zip(servers, listening, strict=True)
        ]
        await until(lambda: all(server.started for server in servers))
        yield [f"http://127.0.0.1:{one.getsockname()[1]}" for one in listening]
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*serving)
