# ruff: noqa: INP001 -- Alembic loads it by its path
"""Runs the migrations on the connection that `caxton_host.store.migrate` gives."""

from __future__ import annotations

from alembic import context

from caxton_host.store.schema import metadata

# Its transaction is the caller's: either all of a migration happens, or nothing.
context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata
)
context.run_migrations()
