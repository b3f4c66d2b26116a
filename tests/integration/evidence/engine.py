"""The engine of a browser, V8, which executes recorded runs as a page does."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caxton_host import evidence
from caxton_host.core.log.events import Recorded, to_payload
from caxton_host.lib import codec
from tests.others import NODE

HERE = Path(__file__).parent
FOLDER = Path(evidence.__file__).parent
#: The scripts of the worker, in the order in which they are loaded.
SCRIPTS = ("msgpack", "bytes", "recording", "guest", "wasi", "execute")


@dataclass(frozen=True, slots=True)
class Case:
    """
    What a page sends its worker.

    Attributes:
        events: Of the run and its ancestors; ``payload`` is what `unpack` is given.
    """

    run: str
    events: Sequence[Mapping[str, Any]]
    blobs: Mapping[str, bytes]

    @classmethod
    def of(cls, history: Sequence[Recorded], blobs: Mapping[str, bytes]) -> Case:
        """Return the case of a run; *history* is behind that of its ancestors."""
        events = [
            {
                "seq": one.seq,
                "stream": one.stream,
                "type": one.type,
                "schema_version": one.schema_version,
                "recorded_at": one.recorded_at,
                "payload": one.event and codec.encode(to_payload(one.event)),
            }
            for one in history
        ]
        return cls(history[-1].stream.partition("/")[2], events, blobs)


class Engine:
    """A process that executes one run after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, case: Case) -> dict[str, Any]:
        """Return what the worker says at last, and the calls it said before."""
        question = {"run": case.run, "events": case.events, "blobs": case.blobs}
        found: dict[str, Any] = self.ask(question)
        return found

    def ask(self, question: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- JSON
        """Return the answer to one line."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(question, default=_bytes), file=self._process.stdin)
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _bytes(data: bytes) -> str:
    return b64encode(data).decode()


@contextmanager
def running() -> Generator[Engine]:
    """Start the engine."""
    scripts = [str(FOLDER / f"{name}.js") for name in SCRIPTS]
    with subprocess.Popen(
        [NODE, str(HERE / "execute.mjs"), *scripts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Engine(process)
        assert process.stdin
        process.stdin.close()
