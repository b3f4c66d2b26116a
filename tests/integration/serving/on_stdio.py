"""
Agents on fakes, served on stdin and stdout.

    python -m tests.integration.serving.on_stdio FOLDER

The agent is another one once FOLDER has a file ``other``.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from caxton_host.config import Config
from caxton_host.web.mcp import server
from caxton_host.web.mcp.server import serve_stdio
from tests.office import ANN, Office


async def _main(folder: Path) -> None:
    office = Office(folder)
    agent = office.config.agents["weather"]
    other = replace(
        office.config, agents={"weather": replace(agent, description="Another.")}
    )

    def config() -> Config:
        return other if (folder / "other").exists() else office.config

    office.service.config = config
    server.EVERY = 0.01
    await serve_stdio(office.service, ANN)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[-1])))
