# ruff: noqa: INP001 -- Alembic loads it by its path
"""Runs the migrations on the connection that `caxton_host.store.migrate` gives."""

from __future__ import annotations

from alembic import context

from caxton_host.store.schema import declared

# Its transaction is the caller's: either all of a migration happens, or nothing.
connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=declared(connection.dialect.name)
)
context.run_migrations()
