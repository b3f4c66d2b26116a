"""
Event logs: SQL and in memory.

`sql.SqlStore` keeps streams in a database, `memory.MemoryStore` forgets them with
the process. Only the first opens a database.
"""
