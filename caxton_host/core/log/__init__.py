"""Events of runs and hosts: their forms, views and proofs."""
