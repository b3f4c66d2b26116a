"""
A client of the control API of a host that serves.

    cli -> RemoteLog -> Remote -> http

The host is not trusted: all that it sends is bounded, checked, and converted to the
same values as those of a local log.
"""
