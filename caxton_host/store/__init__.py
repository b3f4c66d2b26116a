"""Event stores: `sql.SqlStore` in a database, `memory.MemoryStore` in memory."""
