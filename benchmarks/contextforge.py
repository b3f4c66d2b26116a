"""ContextForge, a gateway to compare with: its program `mcpgateway` is in the path."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_S = 120


def is_installed() -> bool:
    """Return whether it can be measured."""
    return shutil.which("mcpgateway") is not None


@contextmanager
def gateway(folder: Path, tool_server: str) -> Generator[tuple[str, str]]:
    """Yield its address and a token, in front of one tool server that is ``demo``."""
    program = shutil.which("mcpgateway")
    assert program is not None  # noqa: S101 -- see `is_installed`
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = secrets.token_urlsafe(48)
    environ = os.environ | {
        "AUTH_ENCRYPTION_SECRET": key,
        "AUTH_REQUIRED": "true",
        "BASIC_AUTH_PASSWORD": key,
        "CACHE_TYPE": "memory",
        "DATABASE_URL": f"sqlite:///{folder}/forge.db",
        "JWT_SECRET_KEY": key,
        "LOG_LEVEL": "ERROR",
        "MCPGATEWAY_UI_ENABLED": "false",
        "PLATFORM_ADMIN_PASSWORD": f"A1-{key}",
        "PLUGINS_ENABLED": "false",
        "RATE_LIMITING_ENABLED": "false",
        "SSRF_ALLOW_LOCALHOST": "true",
    }
    with (
        (folder / "forge.log").open("w") as log,
        subprocess.Popen(
            [program, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=environ,
            stdout=log,
            stderr=log,
        ) as child,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            token = _token(Path(program).with_name("python"), environ, folder)
            _register(url, token, tool_server)
            yield f"{url}/mcp/", token
        finally:
            child.terminate()


def _token(python: Path, environ: dict[str, str], folder: Path) -> str:
    said = {
        "sub": "admin@example.com",
        "is_admin": True,
        "teams": None,
        "iss": "mcpgateway",
        "aud": "mcpgateway-api",
    }
    words = ["-m", "mcpgateway.utils.create_jwt_token", "--data", json.dumps(said)]
    made = subprocess.run(
        [python, *words, "--exp", "600", "--secret", environ["JWT_SECRET_KEY"]],
        cwd=folder,
        env=environ,
        capture_output=True,
        check=True,
        text=True,
    )
    return made.stdout.split()[-1]


def _register(url: str, token: str, tool_server: str) -> None:
    demo = {"name": "demo", "url": tool_server, "transport": "STREAMABLEHTTP"}
    ends = time.monotonic() + _START_S
    while not _posted(f"{url}/gateways", token, demo):
        if time.monotonic() > ends:
            sys.exit("Error: ContextForge did not start; see forge.log")
        time.sleep(1)


def _posted(url: str, token: str, what: dict[str, Any]) -> bool:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(what).encode(), headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60):  # noqa: S310 -- our own host
            return True
    except urllib.error.HTTPError as exc:
        sys.exit(f"Error: ContextForge does not take the server: {exc.read()[:500]!r}")
    except urllib.error.URLError:
        return False
