"""One owner for each vendor library or device that several packages need."""
