"""
The admin page: files that hold nothing of the host, for anybody.

What it shows it asks of the control API, with the token of who looks at it.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

__all__ = ["PAGE", "ui"]

PAGE = "/ui"

_FOLDER = Path(__file__).with_name("page")
_FILES = {
    "": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript")
        for name in ("ask", "make", "page", "text")
    },
}
#: Text of agents and tools cannot become markup, let alone a script.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
}


class _File:
    """A file that is sent as it is."""

    def __init__(self, name: str, media: str) -> None:
        self._answer = Response(
            (_FOLDER / name).read_bytes(), headers=_HEADERS, media_type=media
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


def ui() -> list[Route]:
    """Return the routes of the page."""
    files = [Route(PAGE + path, _File(*file)) for path, file in _FILES.items()]
    return [*files, *(Route(path, _there) for path in ("/", f"{PAGE}/"))]


def _there(_: Request) -> Response:
    """Send somebody on who only knows the host."""
    return RedirectResponse(PAGE)
