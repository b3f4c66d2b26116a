"""The spans that the installed commands send, and send once more of the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests import standin
from tests.collector import Collector, attributes, collecting

from .guests import call, guest
from .shell import Shell, toml
from .test_docs import add, blocks, commands, type_in

CLIENT = Span.SPAN_KIND_CLIENT
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "trace.md"

AGENT = guest(call("mcp__demo__echo", text="one"), call("mcp__demo__add", a=1, b=2))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def traced(shell: Shell, collector: Collector) -> Shell:
    """Return a folder with a run whose spans were sent."""
    server = standin.command()
    tables: dict[str, dict[str, object]] = {
        "telemetry": {"endpoint": collector.url},
        "servers.demo": dict(server),
        "agents.a": {"module": "a.wasm"},
    }
    shell.write(
        "caxton.toml", toml(tables, '[[agents.a.allow]]\ntools = ["demo/echo"]')
    )
    shell.write("a.wasm", AGENT)
    assert shell.typed("run", "a").code == 0
    return shell


def ids(spans: list[Span]) -> dict[str, tuple[bytes, bytes, bytes]]:
    return {s.name: (s.trace_id, s.span_id, s.parent_span_id) for s in spans}


def test_run_over_a_real_server_is_traced(traced: Shell, collector: Collector) -> None:
    attempt = attributes(collector.named("tools/call echo"))
    assert attempt["mcp.method.name"] == "tools/call"
    assert attempt["mcp.protocol.version"] == "2026-07-28"
    assert attempt["network.transport"] == "pipe"
    call = attributes(collector.named("execute_tool mcp__demo__echo"))
    events = traced("events", "list", "@last", "--json").document
    (intent,) = [e for e in events if e["seq"] == call["caxton.event.seq"]]
    assert intent["type"] == "ToolInvoked"
    assert intent["hash"] == call["caxton.event.hash"]
    run = attributes(collector.named("invoke_agent a"))
    assert run["caxton.log.head"] == events[-1]["hash"]
    denied = attributes(collector.named("execute_tool mcp__demo__add"))
    assert denied["caxton.call.outcome"] == "denied"


def test_replay_is_traced_and_has_no_client_span(
    traced: Shell, collector: Collector
) -> None:  # law 6
    before = ids(collector.spans)
    collector.spans.clear()

    assert traced.typed("replay", "@last").code == 0

    assert len(collector.spans) == 3
    assert CLIENT not in {span.kind for span in collector.spans}
    run = collector.named("invoke_agent a")
    assert run.trace_id != before["invoke_agent a"][0]
    assert run.links[0].span_id == before["invoke_agent a"][1]
    assert attributes(run)["caxton.replay.diverged"] is False


def test_trace_of_a_recorded_run_is_sent_once_more_without_its_servers(
    traced: Shell, collector: Collector
) -> None:
    before = ids(collector.spans)
    collector.spans.clear()
    traced.write("caxton.toml", "version = 1\n")

    done = traced(
        "events", "export", "--to-otlp", "@last", "--endpoint", collector.url, "--json"
    )

    assert (done.code, done.document["spans"]) == (0, 4)
    assert done.document["trace_id"] in done.err
    assert ids(collector.spans) == before


def test_spans_that_cannot_be_sent_are_an_error(
    traced: Shell, collector: Collector
) -> None:
    collector.refuses.add("/v1/traces")
    done = traced("events", "export", "--to-otlp", "@last")
    assert done.code == 1
    assert "did not take the spans" in done.err
    assert "--endpoint" in done.fix


def test_an_address_that_is_none_is_said_to_be_none(traced: Shell) -> None:
    done = traced("events", "export", "--to-otlp", "@last", "--endpoint", "nonsense")
    assert done.code == 1
    assert done.err.startswith("Error: an address that is no URL did not take")


def test_without_a_receiver_it_is_said_how_to_name_one(shell: Shell) -> None:
    done = shell("events", "export", "--to-otlp", "@last")
    assert done.code == 2
    assert "--endpoint" in done.fix
    assert ENDPOINT in done.fix


@pytest.mark.parametrize(
    "words",
    [
        ("--to-otlp",),
        ("--to-otlp", "--all"),
        ("--to-otlp", "@last", "--since", "1h"),
        ("@last", "--endpoint", "http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_sent_is_a_usage_error(
    shell: Shell, words: tuple[str, ...]
) -> None:
    done = shell("events", "export", *words)
    assert (done.code, done.out) == (2, "")
    assert "--to-otlp sends the trace of one whole run" in done.err
    assert "caxton events export --to-otlp @last --endpoint http" in done.fix


def test_the_page_about_traces(shell: Shell, collector: Collector) -> None:
    typed: list[str] = []
    for language, _, text in blocks(PAGE):
        said = text.replace("http://127.0.0.1:6006", collector.url)
        if language == "toml" and "[telemetry]" not in said:
            add(shell, said)
        for line in commands(language, said):
            typed.append(line)
            type_in(shell, line, 3 if line.startswith("caxton run careful") else 0)
            if line == "caxton init":
                add(shell, f'[telemetry]\nendpoint = "{collector.url}"\n')
    modes = [
        attributes(span)["caxton.run.mode"]
        for span in collector.spans
        if span.name.startswith("invoke_agent")
    ]
    assert modes[:4] == ["live", "replay", "live", "resume"]
    assert any("--to-otlp" in line for line in typed)
