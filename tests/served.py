"""A host that serves on a port of its own, in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from caxton_host.app.maintenance import keeping_for
from caxton_host.app.serve_app import serving
from caxton_host.config import Config, Paths, load
from caxton_host.web.app import Upkeep, application
from caxton_host.web.edge.authentication import identity_of
from caxton_host.web.edge.listen import bind, listening

__all__ = ["Served", "served"]

_SOON = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """
    Attributes:
        url: Where it is.
    """

    url: str


@contextmanager
def served(
    folder: Path,
    *,
    change: Callable[[Config], Config] = lambda it: it,
    strangers: bool = False,
) -> Generator[Served]:
    """Serve the configuration of a folder while the block lasts."""
    up: list[Served] = []
    began, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        config = load(folder / "caxton.toml", environ=os.environ, cwd=folder)
        limits = replace(config.serve, allow_unauthenticated=strangers)
        config = change(replace(config, serve=limits))
        listener = bind("127.0.0.1", 0)
        async with serving(config, Paths.of(os.environ)) as it:
            app = application(
                it.service,
                identity_of(limits, it.up.store.tokens, it.up.host.clock),
                limits,
                ready=it.ready,
                upkeep=Upkeep(
                    verifying=it.verifying, keeping=partial(keeping_for, it.keeper)
                ),
            )
            async with listening(app, listener):
                it.begin()
                up.append(Served(f"http://127.0.0.1:{listener.getsockname()[1]}"))
                began.set()
                await stop.wait()
                await it.drain(0)

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            began.set()
            loop.close()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    assert began.wait(_SOON)
    try:
        (it,) = up
        yield it
    finally:
        if up:
            loop.call_soon_threadsafe(stop.set)
        thread.join(_SOON)
        assert not thread.is_alive()
