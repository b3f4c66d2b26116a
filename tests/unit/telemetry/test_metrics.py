"""What is counted: the table, the page that shows it, and the bound of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client.parser import text_string_to_metric_families as parse

from caxton_host.core.log.events import EgressAllowed, EgressRefused, ServerFailed
from caxton_host.telemetry import looks
from caxton_host.telemetry.instruments import (
    CALL_SECONDS,
    CALLS,
    FREE,
    INSTRUMENTS,
    LOG_UP,
    RUNS,
    SIZE,
    Instrument,
)
from caxton_host.telemetry.looks import Point
from caxton_host.telemetry.metrics import MOST, OTHER, Metrics, nothing_to_read, reader

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"


@dataclass
class Read:
    """Metrics, and what Prometheus reads of them."""

    metrics: Metrics
    scrape: Callable[[], tuple[str, bytes]]

    def points(self, family: str) -> dict[tuple[str, ...], float]:
        """Return the values of a family by their labels, but not the buckets."""
        found = {one.name: one for one in parse(self.text())}
        return {
            tuple(v for k, v in sorted(sample.labels.items())): sample.value
            for sample in (found[family].samples if family in found else ())
            if not sample.name.endswith(("_bucket", "_sum", "_created"))
        }

    def text(self) -> str:
        kind, text = self.scrape()
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        return text.decode()


@pytest.fixture
def read() -> Read:
    made, scrape = reader()
    provider = MeterProvider([made], shutdown_on_exit=False)
    return Read(Metrics(provider.get_meter("test")), scrape)


def use(read: Read, one: Instrument) -> None:
    labels = [f"a {label}" for label in one.labels]
    if one.looked:
        read.metrics.look(lambda: [(one, 1, tuple(labels))], one)
    elif one.kind == "histogram":
        read.metrics.time(one, 0.2, *labels)
    else:
        read.metrics.add(one, *labels)


@dataclass(frozen=True)
class State:
    server: str
    up: bool = True
    breaker: str = "closed"
    generation: int = 1
    problem: str | None = None


def test_page_has_every_metric_with_its_kind_and_its_labels(read: Read) -> None:
    read.metrics.servers = lambda: [State("demo")]
    for one in INSTRUMENTS:
        use(read, one)
    families = {one.name: one for one in parse(read.text())}
    shown: dict[str, tuple[str, set[str]]] = {}
    rows = re.findall(r"^\| `(\S+\.\S+)` \| (.*)", PAGE.read_text(), re.MULTILINE)
    for (name, rest), one in zip(rows, INSTRUMENTS, strict=True):
        prometheus, kind, labels, _ = map(str.strip, rest.split("|", 3))
        assert (name, kind) == (one.name, one.kind)
        assert re.findall(r"`(.+?)`", labels) == [*one.labels]
        known = {label.replace(".", "_") for label in one.labels}
        shown[prometheus.strip("`").removesuffix("_total")] = kind, known

    assert shown == {
        name: (one.type, set().union(*(s.labels for s in one.samples)) - {"le"})
        for name, one in families.items()
        if name != "target_info"
    }


def test_what_needs_an_alert_is_there_before_anything_happens(read: Read) -> None:
    zero = {one.name.replace(".", "_") for one in INSTRUMENTS if one.zero}
    assert {name for name in zero if read.points(name) == {(): 0.0}} == zero
    assert "caxton_worker_deaths" in zero


@pytest.mark.no_cover
def test_names_without_end_take_a_bounded_room(read: Read) -> None:
    for n in range(3 * MOST):
        read.metrics.add(CALLS, "demo", f"tool{n}", "ok")
        read.metrics.time(CALL_SECONDS, 0.1, "execute_tool", "demo", f"tool{n}", "")

    for family in ("caxton_calls", "gen_ai_execute_tool_duration_seconds"):
        points = read.points(family)
        assert len(points) == MOST + 1
        assert sum(points.values()) == 3 * MOST
        assert max(points.values()) == 2 * MOST
    assert read.points("caxton_calls")[OTHER, OTHER, OTHER] == 2 * MOST


def test_names_that_a_server_chose_cannot_forge_a_line(read: Read) -> None:
    evil = 'x"} 1\ncaxton_runs 99\n\\'
    read.metrics.add(CALLS, "demo", evil, "ok")
    assert read.points("caxton_calls") == {("demo", "ok", evil): 1}
    assert read.points("caxton_runs") == {(): 0}


def test_name_that_cannot_be_written_down_stops_no_reader(read: Read) -> None:
    for _ in range(2):
        read.metrics.add(CALLS, "demo", "half \ud800", "ok")
        read.metrics.time(CALL_SECONDS, 0.1, "execute_tool", "demo", "x" * 9_999, "")

    assert read.points("caxton_calls") == {("demo", "ok", "half \\ud800"): 2}
    [labels] = read.points("gen_ai_execute_tool_duration_seconds")
    assert max(map(len, labels)) == 200


def test_readers_at_the_same_time_get_whole_answers(read: Read) -> None:
    for n in range(200):
        read.metrics.add(CALLS, "demo", f"tool{n}", "ok")
    with ThreadPoolExecutor(4) as threads:
        texts = [*threads.map(lambda _: read.text(), range(12))]
    assert {text.count("caxton_calls_total{") for text in texts} == {200}


def test_gauge_goes_down_again(read: Read) -> None:
    read.metrics.add(RUNS, by=2)
    read.metrics.add(RUNS, by=-1)
    assert read.points("caxton_runs") == {(): 1}


def test_servers_are_looked_at_when_somebody_reads(read: Read) -> None:
    states = [State("demo"), State("lazy", up=False, generation=0)]
    read.metrics.look_at(lambda: states)
    assert read.points("caxton_server_up") == {("demo",): 1}
    # Of two with the same name, for runs with other headers, one is down.
    states[:] = [
        State("demo", up=False, breaker="half_open"),
        State("demo"),
        State("bad", up=False, breaker="open", generation=0, problem="no such program"),
    ]
    assert read.points("caxton_server_up") == {("demo",): 1, ("bad",): 0}
    assert read.points("caxton_server_breaker") == {("demo",): 1, ("bad",): 2}
    states.clear()
    assert read.points("caxton_server_up") == {}


def test_two_hosts_of_a_process_do_not_see_each_other(read: Read) -> None:
    other, scrape = reader()
    provider = MeterProvider([other], shutdown_on_exit=False)
    Metrics(provider.get_meter("test")).worker("died")
    assert b"caxton_worker_deaths_total 1.0" in scrape()[1]
    assert "caxton_worker_deaths_total 0.0" in read.text()


def test_where_nothing_is_counted_there_is_nothing_to_read() -> None:
    assert nothing_to_read()[1] == b""


def test_look_that_fails_takes_only_its_own_values_away(
    read: Read, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "FRESH_S", 0.0)
    found: list[Point] = []

    def broken() -> list[Point]:
        if not found:
            raise OSError("the disk is gone")
        return found

    read.metrics.look(broken, SIZE, what="sizes")
    read.metrics.look(lambda: [(LOG_UP, 1, ())], LOG_UP, what="health")
    for failures in (1, 2):
        assert read.points("caxton_eventstore_size_bytes") == {}
        assert read.points("caxton_eventstore_up") == {(): 1}
        assert read.points("caxton_look_failures")[("sizes",)] >= failures
    assert caplog.messages == [
        "the metrics of the sizes cannot be read: the disk is gone"
    ]

    found.append((SIZE, 7, ("database",)))
    assert read.points("caxton_eventstore_size_bytes") == {("database",): 7}
    read.metrics.forget()
    assert read.points("caxton_eventstore_size_bytes") == {}


def test_look_that_takes_too_long_holds_up_no_reader_and_is_not_made_twice(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "FRESH_S", 0.0)
    monkeypatch.setattr(looks, "PATIENCE_S", 0.01)
    let, begun = threading.Event(), list[None]()

    def slow() -> list[Point]:
        begun.append(None)
        assert let.wait(30)
        return [(SIZE, 7, ("database",))]

    read.metrics.look(slow, SIZE, FREE, what="sizes")
    for _ in range(3):
        assert read.points("caxton_eventstore_size_bytes") == {}
    assert read.points("caxton_look_failures") == {("sizes",): 1}
    assert len(begun) == 1

    let.set()
    monkeypatch.setattr(looks, "PATIENCE_S", 30.0)
    assert read.points("caxton_eventstore_size_bytes") == {("database",): 7}


def test_look_is_made_again_after_a_while(read: Read) -> None:
    begun: list[None] = []

    def nothing() -> list[Point]:
        begun.append(None)
        return []

    read.metrics.look(nothing, SIZE, FREE, what="sizes")
    for _ in range(3):
        read.text()
    assert len(begun) == 1


def test_requests_are_counted_by_route_and_status(read: Read) -> None:
    for method, status in (("GET", 200), ("GET", 503), ("BREW", 0)):
        read.metrics.requested(method, "https", "/runs/{run}", status, 0.1)
    name = "http_server_request_duration_seconds_count"
    counts = [line for line in read.text().splitlines() if line.startswith(name)]
    assert [re.findall(r'"([^"]*)"', line) for line in counts] == [
        ["", "GET", "200", "/runs/{run}", "https"],
        ["503", "GET", "503", "/runs/{run}", "https"],
        ["", "_OTHER", "", "/runs/{run}", "https"],
    ]


def test_refusals_of_confinement_are_counted_by_server_and_never_by_name(
    read: Read,
) -> None:
    for attempts in (1, 41):
        read.metrics.happened(
            EgressRefused(
                server="crm",
                host="evil.test",
                port=443,
                reason="unlisted",
                attempts=attempts,
            )
        )
    read.metrics.happened(EgressAllowed(server="crm", host="a.test", port=443))
    for reason in ("confinement: no Landlock", "it ended with status 1"):
        read.metrics.happened(ServerFailed(server="crm", reason=reason))

    assert read.points("caxton_confinement_refusals") == {
        ("crm", "connect"): 42,
        ("crm", "start"): 1,
    }
    assert "evil" not in read.text()
