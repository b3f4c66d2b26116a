"""
What the application needs from the outside, as protocols.

Each is shipped twice: for real (`store`, `mcp` and `webhooks`, `sandbox`,
`telemetry`, `clock`), and as a fake that needs nothing and forgets everything
(`testing`, `store.memory`, `telemetry.NoTelemetry`).

Nothing is imported here: a worker takes `ports.sandbox` alone, and starts 40 ms sooner.
"""
