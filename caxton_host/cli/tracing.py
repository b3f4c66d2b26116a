"""``caxton events export --to-otlp``: the trace of a recorded run, sent once more."""

from __future__ import annotations

import asyncio
import os

from ..errors import UsageError
from .context import Frame
from .output import counted, note, patience, show


async def send_trace(
    frame: Frame, run: str, endpoint: str | None, *, as_json: bool
) -> None:
    """
    Send the spans of a recorded run. No tool server is started, nothing is written.

    Args:
        frame: Where the log is.

        run: The run, as a person names it.

        endpoint: Where to; by default what the configuration or the environment says.

        as_json: Print a document.

    Raises:
        UsageError: There is no such run, it was erased, or nowhere to send to.

        CaxtonError: The spans were not taken.
    """
    from ..app.bootstrap import open_store
    from ..runs.recording import Recording
    from ..telemetry.export import address, host
    from ..telemetry.rebuild_spans import send_again

    config = frame.look("telemetry")
    url = address("traces", endpoint or config.telemetry_endpoint, os.environ)
    if not url:
        raise UsageError(
            "there is no OpenTelemetry receiver to send to",
            fix="name one with --endpoint http://localhost:4318, as endpoint in "
            "[telemetry], or in OTEL_EXPORTER_OTLP_ENDPOINT",
        )
    async with open_store(config, write=False) as store:
        recording = await Recording.load(await store.reader.find_run(run), store.reader)
    with patience("sending spans"):
        sent = await asyncio.to_thread(send_again, recording, url, os.environ)
    trace_id = recording.own[0].trace_id
    if as_json:
        show({"run_id": recording.run_id, "trace_id": trace_id, "spans": sent})
    note(
        f"sent {counted(sent, 'span')} of run {recording.run_id} to {host(url)}, "
        f"trace {trace_id}"
    )
