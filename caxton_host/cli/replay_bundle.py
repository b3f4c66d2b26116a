"""``caxton replay --bundle``: a run of another machine, executed again here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .frame import Frame
from .screen import patience
from .verdict import of_bundle, refuse, trusted

if TYPE_CHECKING:
    from ..replay import Replayed

__all__ = ["replay_bundle"]


async def replay_bundle(
    frame: Frame, path: Path, keys: tuple[str, ...]
) -> Replayed | None:
    """
    Execute the run of a bundle, if a believed key signed it, or tell why not.

    Nothing of it is interpreted before that.
    """
    from ..bootstrap import open_sandbox
    from ..evidence import BundleStore
    from ..replay import replay
    from ..telemetry import NoTelemetry

    bundle, found = of_bundle(path, trusted(frame, keys))
    if bundle is None or found.verdict != "intact":
        refuse(found)
        return None
    async with open_sandbox(frame.paths(), frame.load().places) as sandbox:
        with patience("replaying"):
            return await replay(
                bundle.header.run,
                store=BundleStore(bundle),
                sandbox=sandbox,
                telemetry=NoTelemetry(),
            )
