"""
The console: pages for people at ``/ui``, rendered here.

    cookie -> caller -> operations of the API -> template
    form -> its token -> operation -> back to the page

Pages work without their script, which only keeps them up to date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...core.grants.principals import Principal
from ...core.log.events import EVENT_TYPES
from ...errors import ForbiddenError, StaleSignInError
from ...evidence.page import html_page
from ..api.operations import ApiContext, wrong_method
from ..edge.authentication import Unauthenticated
from ..edge.failures import TooManyFailures
from ..edge.messages import Problem, Refusal
from ..edge.middleware import check_site
from . import access, grants, inbox, run, servers, views
from .actions import ACTIONS
from .asking import Asking, Shown, View
from .inbox import IN_DOUBT
from .oauth_sign_in import BEGIN, END, OAuthSignIn
from .render import form_field, page
from .run import IMAGES
from .visits import ISSUED, PATH, Visit, Visits

SIGN_IN = f"{PATH}/sign-in"
_AGAIN = (
    "The call can be approved only soon after a sign-in. Nothing is recorded: sign in, "
    "then approve it. A link of caxton ui signs in once: start that again for another."
)
_LINK = f"{PATH}/link"
_LIVE = f"{PATH}/live"
_STATIC = Path(__file__).with_name("static")
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SEE_OTHER = 303
#: Text of agents and tools cannot become markup, let alone a script.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    # A form that the browser did not send from here is refused by this.
    "referrer-policy": "same-origin",
}
#: What a page that is open is told of, as a stream of events names it.
_KINDS = " ".join(EVENT_TYPES)
_PAGES = (
    (f"{PATH}/runs", "Runs"),
    (f"{PATH}/inbox", "Inbox"),
    (f"{PATH}/agents", "Agents"),
    (f"{PATH}/servers", "Servers"),
    (f"{PATH}/evidence", "Evidence"),
    (f"{PATH}/access", "Access"),
)
#: The operation that a page cannot do without.
_NEEDS = {f"{PATH}/servers": "listServers"}
#: Paths below `PATH`, and their pages.
VIEWS: Mapping[str, View] = {
    **views.VIEWS,
    **run.VIEWS,
    **inbox.VIEWS,
    **servers.VIEWS,
    **grants.VIEWS,
    **access.VIEWS,
}


@dataclass(slots=True, kw_only=True, eq=False)
class Console:
    """
    The pages of a host. See `Pages`.

    Attributes:
        desk: What operations of the API need.

        visits: Who is signed in.
    """

    desk: ApiContext
    visits: Visits

    # -- what the edge asks

    def covers(self, path: str) -> bool:
        """Return whether a path is that of a page."""
        return path == PATH or path.startswith(f"{PATH}/")

    async def principal(self, headers: Mapping[str, Sequence[str]]) -> Principal:
        """Return who asks for a page; see `Visits`."""
        return await self.visits.principal(self.visits.read(headers))

    async def refuse(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Show a problem; who is not signed in is asked to."""
        here = scope["path"] + (f"?{query}" if (query := _query(scope)) else "")
        if problem.kind == "unauthenticated" and scope["method"] == "GET":
            to = self._at_home(scope) + f"{SIGN_IN}?{urlencode({'next': here})}"
            await _redirect(to)(scope, _nothing, send)
            return
        values = {
            **{key: problem.document()[key] for key in ("title", "detail", "fix")},
            "again": f"{PATH}/runs",
            "again_label": "To the runs",
        }
        if back := scope.get("caxton.form", {}).get("back"):
            values |= {"again": _inside(back), "again_label": "Back"}
        if problem.kind == "unauthenticated":
            values |= {
                "title": "You are not signed in any more",
                "detail": "the form was not carried out",
                "fix": "sign in, and send it again",
                "again": SIGN_IN,
                "again_label": "Sign in",
            }
        elif problem.kind == "bad-origin" and scope["method"] == "GET":
            values |= {
                "title": "Another site led here",
                "fix": "go on by this link",
                "again": here,
                "again_label": "Go on",
            }
        response = self._page("problem", None, values)
        response.status_code = problem.status
        response.headers.update(problem.headers or {})
        await response(scope, _nothing, send)

    def _at_home(self, scope: Scope) -> str:
        """Return the origin of the pages, or ``""`` for that of the request."""
        url = Request(scope).url
        if self.visits.is_here(url.netloc):
            return ""
        return str(url.replace(hostname=self.visits.name, path="", query=""))

    # -- routes

    @property
    def open(self) -> list[Route]:
        """Those that need no authentication."""
        files = [
            Route(f"{PATH}/static/{file.name}", _file(file))
            for file in _STATIC.iterdir()
            if file.suffix in _MEDIA
        ]
        return [
            *files,
            Route("/", _redirect(PATH)),
            Route(SIGN_IN, self._endpoint(self._sign_in)),
            Route(_LINK, self._endpoint(self._enter)),
            *(
                Route(path, self._endpoint(partial(handle, self.visits.oauth)))
                for path, handle in ((BEGIN, self._to_issuer), (END, self._came_back))
                if self.visits.oauth
            ),
        ]

    @property
    def routes(self) -> list[Route]:
        """Those for callers."""
        return [
            *(Route(path, _redirect(f"{PATH}/runs")) for path in (PATH, f"{PATH}/")),
            *(Route(PATH + path, self._view(view)) for path, view in VIEWS.items()),
            Route(f"{PATH}/runs/{{run}}/image/{{sha256}}", self._endpoint(self._image)),
            Route(f"{PATH}/runs/{{run}}/bundle", self._endpoint(self._bundle)),
            Route(f"{PATH}/runs/{{run}}/page", self._endpoint(self._as_page)),
            Route(f"{PATH}/runs/{{run}}/live", self._endpoint(self._live)),
            Route(_LIVE, self._endpoint(self._live_all)),
            Route(f"{PATH}/do/{{action}}", self._endpoint(self._do)),
            Route(f"{PATH}/sign-out", self._endpoint(self._sign_out)),
        ]

    def _endpoint(self, handle: Any) -> Any:  # noqa: ANN401 -- as starlette has it
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            response = await handle(Request(scope, receive))
            await response(scope, receive, send)

        return _App(app)

    def _view(self, view: View) -> Any:  # noqa: ANN401
        async def handle(request: Request) -> Response:
            if request.method not in {"GET", "HEAD"}:
                raise wrong_method(request.method, ("GET", "HEAD"))
            asking = self._asking(request)
            response = await self._shown(asking, await view(asking))
            if again := self.visits.renewed(asking.visit):
                response.headers.append("set-cookie", again)
            return response

        return self._endpoint(handle)

    async def _shown(self, asking: Asking, shown: Shown) -> Response:
        found = await asking.maybe("listApprovals", limit=1)
        doubts = await asking.maybe("listRuns", **IN_DOUBT, limit=100)
        number = found and found["waiting"] + len(doubts["runs"] if doubts else [])
        values = {"title": shown.title, "inbox": number, **shown.values}
        return self._page(shown.template, asking, values)

    # -- signing in and out

    async def _sign_in(self, request: Request) -> Response:
        query = request.query_params
        if request.method != "POST":
            if home := self._at_home(request.scope):
                return _redirect(f"{home}{SIGN_IN}?{request.url.query}")
            if "again" in query:
                return self._asked_to_sign_in(query.get("next"), _AGAIN)
            try:
                # Where callers need no token, nobody has to sign in.
                visit = await self.visits.begin(None)
            except (Unauthenticated, ForbiddenError):
                return self._asked_to_sign_in(query.get("next"))
            return self._entered(visit, query.get("next"))
        fields: Mapping[str, str] = request.scope["caxton.form"]
        try:
            visit = await self.visits.begin(f"Bearer {fields.get('token', '').strip()}")
        except (Unauthenticated, ForbiddenError) as exc:
            return self._not_signed_in(fields.get("next"), exc)
        return self._entered(visit, fields.get("next"))

    def _asked_to_sign_in(self, path: str | None, wrong: str = "") -> Response:
        values = {"title": "Sign in", "next": _inside(path), "wrong": wrong}
        if oauth := self.visits.oauth:
            again = {"again": ""} if wrong == _AGAIN else {}
            query = urlencode({"next": values["next"]} | again)
            values |= {"oauth": f"{BEGIN}?{query}", "issuer": oauth.oauth.issuer}
        return self._page("sign_in", None, values)

    async def _to_issuer(self, oauth: OAuthSignIn, request: Request) -> Response:
        if home := self._at_home(request.scope):
            return _redirect(f"{home}{BEGIN}?{request.url.query}")
        check_site(request.headers.getlist("sec-fetch-site"))
        path = _inside(request.query_params.get("next"))
        again = "again" in request.query_params
        try:
            there, cookie = await oauth.begin(str(request.url), path, again=again)
        except Unauthenticated as exc:
            return self._not_signed_in(path, exc)
        response = _redirect(there)
        response.headers.append("set-cookie", cookie)
        return response

    async def _came_back(self, oauth: OAuthSignIn, request: Request) -> Response:
        path = None
        try:
            token, path = await oauth.end(dict(request.query_params), request.cookies)
            visit = await self.visits.begin(f"{ISSUED}{token}")
        except (Unauthenticated, ForbiddenError) as exc:
            response = self._not_signed_in(path, exc)
        else:
            # A redirect would be of the issuer's making, and go without the cookie.
            values = {"title": "Signed in", "to": _inside(path)}
            response = self._page("signed_in", None, values)
            response.headers.append("set-cookie", self.visits.cookie(visit))
        response.headers.append("set-cookie", oauth.forget())
        return response

    def _not_signed_in(self, path: str | None, why: Exception) -> Response:
        if isinstance(why, TooManyFailures):
            raise why
        response = self._asked_to_sign_in(path, str(why))
        response.status_code = 401
        return response

    async def _enter(self, request: Request) -> Response:
        return self._entered(
            await self.visits.enter(request.query_params.get("code", "")),
            request.query_params.get("next"),
        )

    def _entered(self, visit: Visit, path: str | None) -> Response:
        response = _redirect(_inside(path))
        response.headers.append("set-cookie", self.visits.cookie(visit))
        return response

    async def _sign_out(self, request: Request) -> Response:
        asking = self._checked(request)
        self.visits.end(asking.visit)
        response = _redirect(SIGN_IN)
        response.headers.append("set-cookie", self.visits.cookie(None))
        return response

    # -- what callers do

    async def _do(self, request: Request) -> Response:
        asking = self._checked(request)
        name = request.path_params["action"]
        if name not in ACTIONS:
            raise Refusal("not-found", "no such action")
        fields: Mapping[str, str] = request.scope["caxton.form"]
        act, _ = ACTIONS[name]
        try:
            there = await act(asking, fields)
        except StaleSignInError:
            back = {"next": _inside(fields.get("back")), "again": ""}
            return _redirect(f"{SIGN_IN}?{urlencode(back)}")
        except KeyError as exc:
            raise Refusal("bad-request", f"the form lacks {exc.args[0]}") from None
        if isinstance(there, Shown):
            values = {"back": _inside(fields.get("back")), **there.values}
            return await self._shown(asking, replace(there, values=values))
        path = there or _inside(fields.get("back"))
        mark = "&" if "?" in path else "?"
        return _redirect(f"{path}{mark}done={name}")

    async def _image(self, request: Request) -> Response:
        asking = self._asking(request)
        found = await asking.response("runBlob", **request.path_params)
        data = bytes(found.body)
        media = _image_type(data)
        if media not in IMAGES:
            raise Refusal("not-found", "it is no image")
        return Response(data, headers=_HEADERS, media_type=media)

    async def _bundle(self, request: Request) -> Response:
        return await self._asking(request).response("exportRun", **request.path_params)

    async def _as_page(self, request: Request) -> Response:
        """Return a bundle as a page. It is saved: it does not run at this address."""
        bundle = await self._bundle(request)
        data = await asyncio.to_thread(html_page, bytes(bundle.body))
        saved = bundle.headers["content-disposition"].replace(".caxton", ".html")
        headers = {**_HEADERS, "content-disposition": saved}
        return Response(data, headers=headers, media_type=bundle.media_type)

    async def _live(self, request: Request) -> Response:
        """Stream the events of a run."""
        asking = self._asking(request)
        after = asking.query.get("after")
        return await asking.response("runEvents", **request.path_params, after=after)

    async def _live_all(self, request: Request) -> Response:
        """Stream the events of all runs that the caller may see."""
        asking = self._asking(request)
        return await asking.response("allEvents", after=asking.query.get("after"))

    def _checked(self, request: Request) -> Asking:
        """Return what a form asks, if it comes from a page of the visit."""
        if request.method != "POST":
            raise wrong_method(request.method, ("POST",))
        asking = self._asking(request)
        self.visits.check_form(
            asking.visit, request.scope["caxton.form"].get("form", "")
        )
        return asking

    def _asking(self, request: Request) -> Asking:
        headers = {
            "host": request.headers.getlist("host"),
            "cookie": request.headers.getlist("cookie"),
        }
        return Asking(
            desk=self.desk,
            who=request.scope["caxton.principal"],
            visit=self.visits.read(headers),
            request=request,
        )

    def _page(
        self, template: str, asking: Asking | None, values: Mapping[str, Any]
    ) -> Response:
        done = here = self_path = ""
        caller = token = None
        if asking:
            path = asking.request.url.path
            query = {k: v for k, v in asking.query.items() if k != "done"}
            self_path = f"{path}?{urlencode(query)}" if query else path
            here = next((p for p, _ in _PAGES if path.startswith(p)), "")
            done = asking.query.get("done", "")
            who = asking.who
            caller = {
                "kind": who.kind,
                "id": who.id,
                "scopes": sorted(who.scopes),
                "tenant": who.tenant,
            }
            token = form_field(self.visits.form_token(asking.visit))
        told = ACTIONS[done][1] if done in ACTIONS else ""
        context = {
            "pages": [
                {"path": path, "title": page}
                for path, page in _PAGES
                if asking and (path not in _NEEDS or asking.may(_NEEDS[path]))
            ],
            "here": here,
            "self_path": self_path,
            "caller": caller,
            "token": token,
            "told": told,
            "inbox": 0,
            "live": None,
            "oauth": None,
            "counting": False,
            "reading": self.desk.reading,
            "kinds": _KINDS,
            **values,
        }
        return Response(
            page(template, context), headers=_HEADERS, media_type="text/html"
        )


@dataclass(frozen=True, slots=True)
class _App:
    """An ASGI application: starlette calls a plain function otherwise."""

    app: Any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def _file(file: Path) -> Response:
    media = _MEDIA[file.suffix]
    return Response(file.read_bytes(), headers=_HEADERS, media_type=media)


def _redirect(path: str) -> Response:
    return RedirectResponse(path, _SEE_OTHER, headers=_HEADERS)


def _inside(path: str | None) -> str:
    """
    Return a path of the pages; another one, which may lead elsewhere, is not followed.

    >>> _inside("/ui/runs?state=failed"), _inside("//evil.test/ui/"), _inside("/api/v1")
    ('/ui/runs?state=failed', '/ui/runs', '/ui/runs')
    """
    start = f"{PATH}/runs"
    if path is None or not path.startswith(f"{PATH}/") or not path.isascii():
        return start
    is_clear = path.isprintable() and not {*'\\ "<>'} & {*path}
    return path if is_clear and "//" not in path and ".." not in path else start


def _query(scope: Scope) -> str:
    return quote(scope["query_string"], safe="=&%+-._~:/")


def _image_type(data: bytes) -> str:
    """
    Return the media type that bytes begin as, or ``""``.

    >>> _image_type(b"GIF89a..."), _image_type(b"<svg onload=...>")
    ('image/gif', '')
    """
    kinds = {
        b"\x89PNG\r\n\x1a\n": "image/png",
        b"\xff\xd8\xff": "image/jpeg",
        b"GIF8": "image/gif",
    }
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in kinds.items() if data.startswith(start)), "")


async def _nothing() -> dict[str, str]:
    return {"type": "http.disconnect"}
