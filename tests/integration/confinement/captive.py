"""
A tool server that tries whatever it is told, started as the host starts servers.

A line of JSON, which is code, is answered by what the code leaves in ``result``. So one
process serves many attempts.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

from caxton_host.core.tools.confinement import Confine
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp.transport.confining import confined

from .prisoner import ATTEMPT

#: Readable by every user, unlike that of a virtual environment in a home.
PYTHON = "/usr/bin/python3"

SERVER = (
    """
import ctypes, errno, fcntl, json, os, resource, signal, socket, stat, subprocess, sys
"""
    + ATTEMPT
    + """
def obey(line):
    try:
        names = dict(globals(), result=None)
        exec(json.loads(line), names)
        return names["result"]
    except BaseException as error:
        return dict(raised=type(error).__name__, text=str(error))

for line in sys.stdin:
    print(json.dumps(obey(line)), flush=True)
"""
)


class Captive:
    """
    One such server.

    Args:
        folder: Where its program is.

        confine: Its confinement, or none.

        env: Its environment.
    """

    def __init__(
        self, folder: Path, confine: Confine | None, env: dict[str, str] | None = None
    ) -> None:
        self.program = folder / "captive.py"
        self.program.write_text(SERVER)
        self.env = {"PATH": os.defpath, **(env or {})}
        command = [PYTHON, "-I", "-S", str(self.program)]
        config = ServerConfig(
            name="captive", command=tuple(command), cwd=str(folder), confine=confine
        )
        self._around = confined(config, command, self.env)
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            argv = self._loop.run(self._around.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self.process = subprocess.Popen(
            argv,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def run(self, code: str, **names: object) -> Any:  # noqa: ANN401 -- its JSON
        """Return what *code* leaves in ``result``, or what it raised."""
        text = "".join(f"{key} = {value!r}\n" for key, value in names.items()) + code
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(text).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the server died: {self.process.wait(10)}"
        return json.loads(answer)

    def end(self) -> bytes:
        """Close its input, and return what comes until nobody holds its output."""
        return self.process.communicate(timeout=30)[0]

    def __exit__(self, *_: object) -> None:
        self.end()
        self._loop.run(self._around.__aexit__(None, None, None))
        self._loop.close()
