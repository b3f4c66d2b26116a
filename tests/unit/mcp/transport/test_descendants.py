"""What a process started is looked for while it may end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from caxton_host.mcp.transport.descendants import descendants, end


def test_the_children_of_children_are_found_and_ended() -> None:
    sleeps = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", f"{sleeps}; print(1, flush=True)"],
        stdout=subprocess.PIPE,
    ) as process:
        found: list[int] = []
        while not found:
            found = descendants(process.pid)
        end(found)
        assert process.communicate(timeout=20)[0] == b"1\n"


def test_a_process_that_ends_while_it_is_looked_at_has_none() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- counts itself too
    for _ in range(50):
        process = subprocess.Popen(["true"])
        # Another thread waits for it, as the event loop's does.
        waiting = threading.Thread(target=process.wait)
        waiting.start()
        while waiting.is_alive():
            assert descendants(process.pid) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 -- as above
