"""
The command line with a shorter lease: launcher.py SECONDS WORD...

What hosts do after a lease is then done sooner, too. Only a test that must end soon
needs it: everything else starts the installed command.
"""

from __future__ import annotations

import sys

from caxton_host.app import serve_app
from caxton_host.cli import main
from caxton_host.service import placing
from caxton_host.store.sql import SqlStore

if __name__ == "__main__":
    lease = float(sys.argv.pop(1))
    SqlStore.open.__func__.__kwdefaults__["lease"] = lease  # type: ignore[attr-defined]
    serve_app._SELDOM_S = lease / 3
    placing._LOST_S = lease / 3
    main()
