"""
The runtime of programs in Python: it executes source text that the host gives it.

The build imports `main`, and keeps the memory that this leaves; see `library` for the
modules that programs may import, and `main` for how one is executed.
"""
