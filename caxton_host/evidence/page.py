"""Put a bundle and the page that verifies it together into one HTML file."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from string import Template

from ..errors import UsageError

#: Bytes of a bundle. Browsers read such a page in a few seconds.
MAX_PAGE = 64 << 20

_FOLDER = files("caxton_host")
_SCRIPTS = ("evidence/msgpack.js", "evidence/verify.js", "evidence/page.js")
_EXECUTOR = (
    "evidence/msgpack.js",
    "evidence/bytes.js",
    "evidence/recording.js",
    "evidence/guest.js",
    "evidence/wasi.js",
    "evidence/execute.js",
)
_STYLES = ("web/ui/static/console.css", "evidence/page.css")


def html_page(bundle: bytes) -> bytes:
    """
    Return the page of a bundle.

    The bundle is in it as it is: a byte that is changed in the file is a byte of an
    event. It is ASCII, and ``<`` is the one character in it that can end an element. So
    that is written as a character that no bundle has, and the page reads it back.

    Raises:
        UsageError: The bundle is too large for a page.
    """
    if len(bundle) > MAX_PAGE:
        raise UsageError(
            f"the bundle has {len(bundle)} bytes, of {MAX_PAGE} that a page may hold",
            fix="export the bundle: caxton audit export RUN -o run.caxton",
        )
    script, style = _joined(_SCRIPTS), _joined(_STYLES)
    policy = (
        "default-src 'none'; "
        f"script-src '{_digest(script)}' 'wasm-unsafe-eval'; "
        f"style-src '{_digest(style)}'; img-src blob:; worker-src blob:; "
        "base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types worker"
    )
    template = _FOLDER.joinpath("evidence/page.html").read_text("utf-8")
    return (
        Template(template)
        .substitute(
            policy=policy,
            style=style,
            script=script,
            executor=_joined(_EXECUTOR),
            bundle=bundle.decode("ascii").replace("<", "\N{NOT SIGN}"),
        )
        .encode()
    )


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_FOLDER.joinpath(name).read_text("utf-8") for name in names)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
