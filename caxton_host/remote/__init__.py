"""
A host that serves, from afar: its control API, as the command line needs it.

    cli -> RemoteLog -> Remote -> http

Nothing that such a host sends is believed: it is bounded, and becomes the same values
as what a log here holds.
"""
