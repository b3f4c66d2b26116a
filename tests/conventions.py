"""
Compares what a host sends with the conventions that it names.

`tests.collector` does so with everything that it gets, in every test that uses it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Value: TypeAlias = str | int | bool
Said: TypeAlias = Mapping[str, Value]

TABLE: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
#: Names of ours.
OURS = "caxton."


def of_resource(said: Said, schema: str) -> Iterator[str]:
    """Yield what is wrong with the description of a host."""
    yield from _schema("resource", schema)
    yield from _attributes("resource", TABLE["resource"], said, more=[*said])


def of_scope(name: str, version: str, schema: str) -> Iterator[str]:
    """Yield what is wrong with the name of what made a signal."""
    yield from _schema("scope", schema)
    if name != "caxton_host" or not version:
        yield f"scope: {name!r} {version!r}"


def of_span(span: Span, said: Said) -> Iterator[str]:
    """Yield what is wrong with a span."""
    row = TABLE["spans"][_kind_of(span, said)]
    name = " ".join(str(said.get(word, "")) for word in _words(row["name"])).strip()
    kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
    failed = span.status.code == span.status.STATUS_CODE_ERROR
    if span.name != name:
        yield f"{span.name}: its name is to be {name!r}"
    if kind != row["kind"]:
        yield f"{span.name}: its kind is {kind}"
    if span.status.message:
        yield f"{span.name}: its status quotes an error"
    if not span.start_time_unix_nano <= span.end_time_unix_nano:
        yield f"{span.name}: it ends before it begins"
    yield from _attributes(span.name, row["attributes"], said, failed=failed)
    for event in span.events:
        for item in event.attributes:
            if not (event.name + item.key).startswith(OURS):
                yield f"{span.name}: event {event.name} says {item.key}"
    for link in span.links:
        if [item.key for item in link.attributes] != ["caxton.link.type"]:
            yield f"{span.name}: a link without its type"


def of_metric(metric: Metric, said: Said) -> Iterator[str]:
    """Yield what is wrong with a point of a metric."""
    if metric.name.startswith(OURS):
        return
    row = TABLE["metrics"].get(metric.name)
    if row is None:
        yield f"{metric.name}: it is no metric of the conventions"
    elif (metric.unit, metric.WhichOneof("data")) != (row["unit"], row["kind"]):
        yield f"{metric.name}: its unit is {metric.unit}"
    else:
        more = row.get("more", [])
        yield from _attributes(metric.name, row["attributes"], said, more=more)


def of_log(body: str, said: Said) -> Iterator[str]:
    """Yield what is wrong with a log record."""
    yield from _attributes(f"log {body!r}", TABLE["logs"], said)


def _kind_of(span: Span, said: Said) -> str:
    if span.kind == Span.SPAN_KIND_SERVER:
        return "mcp_server"
    if span.kind == Span.SPAN_KIND_CLIENT:
        return "mcp_client" if "mcp.method.name" in said else "http_client"
    return str(said.get("gen_ai.operation.name"))


def _words(name: str) -> Iterator[str]:
    for word in name.split():
        yield word.strip("{}") if word.startswith("{") else "gen_ai.operation.name"


def _schema(of: str, schema: str) -> Iterator[str]:
    if schema != TABLE["schema"]:
        yield f"{of}: its schema is {schema!r}"


def _attributes(
    of: str,
    levels: Mapping[str, str],
    said: Said,
    *,
    failed: bool = False,
    more: list[str] | None = None,
) -> Iterator[str]:
    """Yield the attributes that are missing, unknown, or of another type."""
    holds = {
        "required": True,
        "if failed": failed,
        "if a tool": said.get("mcp.method.name") == "tools/call",
    }
    for key, level in levels.items():
        if holds.get(level) and key not in said:
            yield f"{of}: {key} is missing"
        if level == "if failed" and key in said and not failed:
            yield f"{of}: {key} is said and it did not fail"
    for key, value in said.items():
        if key not in levels and key not in (more or []) and not key.startswith(OURS):
            yield f"{of}: {key} is unknown"
        kind = int if key in TABLE["integers"] else str
        if not key.startswith(OURS) and type(value) is not kind:
            yield f"{of}: {key} is {value!r}"
        if value not in TABLE["values"].get(key, [value]):
            yield f"{of}: {key} cannot be {value!r}"
