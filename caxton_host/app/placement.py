"""The engine that places the runs of a host, as configured."""

from __future__ import annotations

from importlib.util import find_spec

from ..config import Config
from ..errors import UsageError
from ..placement.in_process import InProcess
from ..ports.placement import Placement
from ..store.sql import SqlStore


def placement_of(config: Config, store: SqlStore) -> Placement:
    """
    Return the engine that places runs, over the connections of *store*.

    Raises:
        UsageError: It is not installed, or the log is in no PostgreSQL.
    """
    if config.engine == "in process":
        return InProcess()
    _address(config)
    from ..placement.procrastinate import Procrastinate  # noqa: PLC0415 -- an extra

    return Procrastinate(over=store.over, bell=store.bell)


async def prepare_placement(config: Config) -> None:
    """
    Make the tables of the engine, if it has any.

    Raises:
        UsageError: See `placement_of`.

        StoreError: It could not be done.
    """
    if config.engine == "in process":
        return
    address = _address(config)
    from ..placement.procrastinate import prepare  # noqa: PLC0415 -- an extra

    await prepare(address)


def _address(config: Config) -> str:
    from ..store.engine import libpq_address  # noqa: PLC0415 -- slow

    address = libpq_address(config.store_url)
    if address is None:
        raise UsageError(
            '[placement] engine = "procrastinate" needs a log in PostgreSQL',
            fix='write its [store] url, or engine = "in process"',
        )
    if find_spec("procrastinate") is None:
        raise UsageError(
            'engine = "procrastinate" needs its library',
            fix="pip install 'caxton-host[procrastinate]'",
        )
    return address
