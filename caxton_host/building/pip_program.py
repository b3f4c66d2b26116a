"""
Run pip for the Python of a runtime instead of the one that runs it.

A program, started by `caxton_host.building.resolve`. pip itself takes the version of
another Python, but not its platform where a requirement has a marker. It imports
nothing of this package.

Arguments: a JSON object with the values of markers (PEP 508), the versions of Python
that the program requires, and the arguments of pip.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main() -> int:
    """Run pip with the arguments of the command line."""
    environment, requires = json.loads(sys.argv[1]), sys.argv[2]
    has = environment["python_full_version"]
    if has not in import_module("pip._vendor.packaging.specifiers").SpecifierSet(
        requires, prereleases=True
    ):
        sys.stderr.write(f"requires-python is {requires}; the runtime has {has}\n")
        return 1
    markers = vars(import_module("pip._vendor.packaging.markers"))
    markers["default_environment"] = environment.copy
    code: int = import_module("pip._internal.cli.main").main(sys.argv[3:])
    return code


if __name__ == "__main__":
    sys.exit(main())
