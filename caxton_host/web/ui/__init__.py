"""
The static files of the admin page, which need no authentication.

The page requests its data from the control API with the user's token.
"""

from __future__ import annotations

from pathlib import Path

from starlette.responses import RedirectResponse, Response

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


def pages() -> dict[str, Response]:
    """Return the response of each path of the page."""
    files = {PAGE + path: _file(*file) for path, file in _FILES.items()}
    # Somebody who only knows the host is sent on.
    return files | dict.fromkeys(("/", f"{PAGE}/"), RedirectResponse(PAGE))


def _file(name: str, media: str) -> Response:
    content = (_FOLDER / name).read_bytes()
    return Response(content, headers=_HEADERS, media_type=media)
