"""
Run the client of the suite in a process that has already imported it.

    python -IS launch.py SOCKET URL

The import takes ten times as long as most scenarios.
"""

from __future__ import annotations

import os
import socket
import sys

if __name__ == "__main__":
    told = os.environ.get("MCP_CONFORMANCE_CONTEXT", "")
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(sys.argv[1])
        said = "\n".join([sys.argv[2], told]).encode()
        socket.send_fds(parent, [len(said).to_bytes(4, "big") + said], [0, 1, 2])
        code = parent.recv(1)
    sys.exit(code[0] if code else 1)
