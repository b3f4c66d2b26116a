"""An authorization server at which somebody logs in, and which may be hostile."""

from __future__ import annotations

import base64
import hashlib
import secrets
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

__all__ = ["Issuer"]


class Issuer:
    """
    Registers clients, and gives codes for tokens that are bound to a server.

    Attributes:
        good: Tokens that the server takes, with what they are good for.

        asked: The query of everybody who was sent here.

        forms: Every request for a token.

        registered: Every client, by its name.

        says: What its metadata say instead of the truth; ``None`` leaves it out.

        padding: Bytes that its metadata have in vain.

        answers: What it sends back instead of the truth; ``None`` leaves it out.

        lasts: Seconds that a token is good for.

        refuses: The status of every answer to a request for a token.

        revoked: Every request to revoke a token.

        keeps: The status of every answer to one, if it is not taken.
    """

    def __init__(self) -> None:
        self.url = ""
        self.good: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []
        self.forms: list[dict[str, str]] = []
        self.registered: dict[str, dict[str, Any]] = {}
        self.says: dict[str, Any] = {}
        self.padding = 0
        self.answers: dict[str, str | None] = {}
        self.lasts = 3600
        self.refuses = 0
        self.revoked: list[dict[str, str]] = []
        self.keeps = 0
        self.redirects = False
        self.method = "none"
        self.length = 32
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}

    def app(self) -> Starlette:
        where = "/.well-known/oauth-authorization-server"
        return Starlette(
            routes=[
                Route(where, self._metadata),
                Route("/authorize", self._authorize),
                Route("/register", self._register, methods=["POST"]),
                Route("/token", self._token, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
            ]
        )

    async def _metadata(self, _: Request) -> Response:
        if self.redirects:
            return RedirectResponse(f"{self.url}/elsewhere")
        truth = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": ["read", "write", "offline_access"],
            "padding": "x" * self.padding,
        }
        said = truth | self.says
        return JSONResponse({k: v for k, v in said.items() if v is not None})

    async def _register(self, asked: Request) -> Response:
        name = f"client-{len(self.registered)}"
        known: dict[str, Any] = {**await asked.json(), "client_id": name}
        known["token_endpoint_auth_method"] = self.method
        if self.method != "none":
            known["client_secret"] = f"client-secret-{secrets.token_hex(8)}"
        self.registered[name] = known
        return JSONResponse(known, 201)

    async def _authorize(self, asked: Request) -> Response:
        query = dict(asked.query_params)
        self.asked.append(query)
        code = secrets.token_hex(8)
        self._codes[code] = query
        truth = {"code": code, "state": query["state"], "iss": self.url}
        said = {k: v for k, v in (truth | self.answers).items() if v is not None}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(said)}", 302)

    async def _token(self, asked: Request) -> Response:
        body = (await asked.body()).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        form |= _shown(asked)
        self.forms.append(form)
        if self.refuses:
            return JSONResponse({"error": "invalid", "was": body}, self.refuses)
        scope = self._scope(form)
        if scope is None or not self._is_client(form):
            return JSONResponse({"error": "invalid_grant", "was": body}, 400)
        token = "tok-" + secrets.token_hex(self.length // 2)
        again = "ref-" + secrets.token_hex(16)
        self.good[token] = self._refresh[again] = scope
        answer = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.lasts,
            "refresh_token": again,
            "scope": scope,
        }
        return JSONResponse(answer)

    async def _revoke(self, asked: Request) -> Response:
        body = (await asked.body()).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        form |= _shown(asked)
        self.revoked.append(form)
        if self.keeps == HTTPStatus.TEMPORARY_REDIRECT:
            return RedirectResponse(f"{self.url}/elsewhere")
        if self.keeps or not self._is_client(form):
            return JSONResponse({"was": body, "x": "x" * self.padding}, self.keeps)
        self.good.pop(form["token"], None)
        self._refresh.pop(form["token"], None)
        return Response()

    def _scope(self, form: dict[str, str]) -> str | None:
        """Return what is granted, once for each code and each token to refresh with."""
        if form["grant_type"] == "refresh_token":
            return self._refresh.pop(form["refresh_token"], None)
        query = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        shown = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if query is None or query["code_challenge"] != shown:
            return None
        if any(form[key] != query[key] for key in ("resource", "redirect_uri")):
            return None
        return query.get("scope", "")

    def _is_client(self, form: dict[str, str]) -> bool:
        known = self.registered.get(form["client_id"], {})
        return form.get("client_secret") == known.get("client_secret")


def _shown(asked: Request) -> dict[str, str]:
    """Return the credentials of a header, if there is one."""
    said = asked.headers.get("authorization", "").partition(" ")[2]
    name, _, secret = base64.b64decode(said).decode().partition(":")
    if not name:
        return {}
    return {"client_id": unquote(name), "client_secret": unquote(secret), "in": "basic"}
