"""PgBouncer in transaction mode, as Debian packages it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import sqlalchemy as sa

SETTINGS = """\
[databases]
* = host={host} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
"""


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """Run a pooler, and give the url of the same database behind it."""
    direct = sa.make_url(url)
    host = Path(str(direct.query["host"]))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    settings = host.parent / f"pgbouncer-{port}.ini"
    settings.write_text(SETTINGS.format(host=host, port=port, user=direct.username))
    # It does not run as root, and the server does not either.
    child = subprocess.Popen(["pgbouncer", "-q", settings], user=host.stat().st_uid)
    behind = direct.set(host="127.0.0.1", port=port, query={})
    try:
        while True:
            try:
                psycopg.connect(libpq(behind)).close()
            except psycopg.OperationalError:
                assert child.poll() is None
                time.sleep(0.05)
            else:
                break
        yield behind.render_as_string(hide_password=False)
    finally:
        child.terminate()
        child.wait(30)


def libpq(url: sa.URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
