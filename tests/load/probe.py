"""
``python -m tests.load.probe URL``: poll the health of a host.

The probe is a separate process, because the process that makes the load is busy. It
ends with its standard input, and prints the latency of each answer in milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
import time

import httpx

_EVERY = 0.005


def main() -> None:
    """Poll until standard input ends."""
    took: list[float] = []
    with httpx.Client() as client:
        while not took or not select.select([sys.stdin], [], [], _EVERY)[0]:
            began = time.perf_counter()
            with contextlib.suppress(httpx.TransportError):  # It took that long.
                client.get(f"{sys.argv[1]}/healthz").raise_for_status()
            took.append(1e3 * (time.perf_counter() - began))
    sys.stdout.write(json.dumps(took))


if __name__ == "__main__":
    main()
