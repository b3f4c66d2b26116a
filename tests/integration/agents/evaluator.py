"""An agent that evaluates what it is told, with the standard library at hand."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys

import caxton_agent as ca
from caxton_agent import aio

with contextlib.suppress(ImportError):
    importlib.import_module("helping")  # Beside it where it is built.

NAMES = """
ast asyncio base64 collections dataclasses datetime decimal difflib functools hashlib
html io itertools json logging math os pathlib random re secrets select shutil socket
statistics string subprocess sys tempfile textwrap threading time urllib.parse uuid zlib
"""
for each in NAMES.split():
    importlib.import_module(each)
AT_HAND: dict[str, object] = {**sys.modules, "ca": ca}


def evaluate(text: str) -> str:
    try:
        return repr(eval(text, AT_HAND))  # noqa: S307 -- what it is for
    except BaseException as error:  # noqa: BLE001 -- whatever it is
        return f"{type(error).__name__}: {error}"


async def gathered() -> list[object]:
    reply, value = await asyncio.gather(aio.mcp_call("x"), aio.tools["y"]())
    return [reply.message, value]


AT_HAND["gathered"] = lambda: asyncio.run(gathered())
AT_HAND["at_build"] = evaluate("time.time(), random.random(), uuid.uuid4()")


def run() -> list[str]:
    return [evaluate(text) for text in ca.input()]
