"""The facts a run leaves, and how they are proven."""
