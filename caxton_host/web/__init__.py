"""
The network side: who may ask a host for something, and what it answers.

    edge -> app -> operations -> Service

The only owner of starlette and PyJWT.
"""
