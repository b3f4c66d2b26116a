"""Files that say that they are cassettes."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import Completed, Denied, Failed
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolInvoked,
    settled,
)
from caxton_host.errors import BadBytes, UsageError
from caxton_host.lib import codec
from caxton_host.testing import cassette, offer
from caxton_host.testing.cassette import parse, read, write
from tests.scene import JSON_VALUES

OFFER = offer("demo", "echo", "Says it")
STARTED = RunStarted(
    agent="a",
    actor={},
    module_sha256="",
    abi="",
    entry="run",
    input={"n": 1.0},
    context={"who": "Ada"},
    limits={**Limits().to_payload(), "wall": 1.5},
    seed="00" * 32,
    grants={},
    grants_sha256="",
    catalogue={
        "echo": {
            "server": "demo",
            "tool": "echo",
            "definition_sha256": OFFER.definition_sha256,
            "effect": "unsafe",
            "visible": True,
        },
        "hidden": {"server": "demo", "tool": "x", "definition_sha256": None},
    },
    servers={},
    host=None,
    engine="",
)
BLOBS = {OFFER.definition_sha256: OFFER.definition, "module": b"\x00asm"}


def history(*events: Event, started: RunStarted = STARTED) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream="run/1",
            seq=seq,
            type=type(event).__name__,
            schema_version=1,
            recorded_at=1_700_000_000_000_000,
            trace_id=None,
            span_id=None,
            hash=b"",
            event=event,
        )
        for seq, event in enumerate([started, *events], 1)
    ]


def invoked(call: int, params: Any, digest: str | None = None) -> ToolInvoked:  # noqa: ANN401
    return ToolInvoked(
        call=call,
        name="echo",
        server=None,
        tool=None,
        params=params,
        params_sha256=digest or codec.sha256(codec.encode(params)),
        effect="unsafe",
        rule=None,
        idempotency_key="",
        fuel=0,
    )


def completed(output: Any) -> RunCompleted:  # noqa: ANN401
    digest = codec.sha256(codec.encode(output))
    return RunCompleted(output=output, output_sha256=digest, fuel=None)


OUTCOMES = st.one_of(
    st.builds(
        Completed, is_error=st.booleans(), message=st.text(max_size=9), data=JSON_VALUES
    ),
    st.builds(
        Failed,
        kind=st.sampled_from(["timeout", "transport", "changed"]),
        sent=st.sampled_from(["no", "yes", "unknown"]),
        code=st.none() | st.integers(-(2**31), 2**31),
        message=st.text(max_size=9),
    ),
    st.builds(
        Denied,
        code=st.sampled_from(["not_granted", "denied", "bad_request", "limit"]),
        rule=st.none() | st.just("limits.total_calls"),
        message=st.text(max_size=9),
    ),
)
PARAMS = st.none() | st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3)
ENDS = JSON_VALUES.map(completed) | st.builds(
    RunFailed,
    kind=st.sampled_from(["trap", "agent_error"]),
    message=st.text(max_size=9),
    fuel=st.none(),
)


@given(st.lists(st.tuples(PARAMS, OUTCOMES), max_size=4), st.text(max_size=20), ENDS)
def test_what_was_written_is_read(
    calls: list[tuple[Any, Any]], text: str, end: Event
) -> None:
    events: list[Event] = [LogWritten(n=1, level="info", text=text)]
    for number, (params, outcome) in enumerate(calls, 1):
        events += [invoked(number, params), settled(number, outcome)]
    events.append(end)
    found = parse(write(history(*events), BLOBS))
    assert list(found.events) == events
    assert found.now == 1_700_000_000_000_000
    assert (found.started.input, found.started.context) == ({"n": 1.0}, {"who": "Ada"})
    assert found.limits == Limits(wall=1.5)


def test_of_the_catalogue_the_agent_gets_the_same() -> None:  # law 5
    found = parse(write(history(completed(None)), BLOBS))
    assert [*found.started.catalogue] == ["echo"]
    (definition,) = found.definitions.values()
    assert codec.decode_trusted(definition) == {
        "description": "Says it",
        "inputSchema": {"type": "object"},
    }


def test_bytes_that_values_do_not_tell_are_kept_by_their_digest() -> None:
    spelt = "ab" * 32
    done = settled(1, Completed())
    end = RunCompleted(output=None, output_sha256=spelt, fuel=None)
    found = parse(write(history(invoked(1, None, spelt), done, end), BLOBS))
    assert found.events == [invoked(1, None, spelt), done, end]


def test_calls_of_a_batch_are_written_with_their_answers() -> None:
    events = [invoked(1, {}), invoked(2, {}), settled(2, Completed(message="b"))]
    text = write(history(*events, settled(1, Completed()), completed(1)), BLOBS)
    found = [e for e in parse(text).events if not isinstance(e, ToolInvoked)]
    assert found == [
        settled(1, Completed()),
        settled(2, Completed(message="b")),
        completed(1),
    ]


@pytest.mark.parametrize(
    "end",
    [
        RunCancelled(actor={}, reason="enough"),
        RunFailed(kind="limit", message="wall: 1 s", fuel=None),
        RunFailed(kind="limit", message="compute: 1 s", fuel=None),
        RunFailed(kind="worker", message="it died", fuel=None),
    ],
)
def test_a_run_that_did_not_end_by_itself_is_no_cassette(end: Event) -> None:
    with pytest.raises(UsageError, match="did not end by itself"):
        write(history(end), BLOBS)


def test_a_run_of_a_wasi_program_is_no_cassette() -> None:
    program = dataclasses.replace(STARTED, abi="wasi/1", command={"args": ["a"]})
    with pytest.raises(UsageError, match="which a WASI program gets"):
        write(history(completed(None), started=program), BLOBS)


WHOLE = json.loads(
    write(
        history(
            LogWritten(n=1, level="info", text="a"),
            invoked(1, {"text": "a"}),
            settled(1, Completed(message="a", data=[1])),
            invoked(2, {}),
            settled(2, Failed(kind="timeout", sent="no", message="")),
            invoked(3, {}),
            settled(3, Denied(code="denied", rule="deny[1]", message="")),
            completed({"a": 1}),
        ),
        BLOBS,
    )
)
Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("$type"), r"\$ has no \$type"),
        (lambda d: d.update({"$type": 1}), r"\$\.\$type is of the wrong kind"),
        (lambda d: d.update(agent=None), r"\$\.agent is of the wrong kind"),
        (lambda d: d.update(agent="a\x1b[1m"), "not a valid name of an agent"),
        (lambda d: d["tools"][0].update(description=1), "description is of the wrong"),
        (lambda d: d.update(now=True), r"\$\.now is of the wrong kind"),
        (lambda d: d.update(now=-1), r"\$\.now is not a time"),
        (lambda d: d.update(now=2**63), r"\.now is not a time"),
        (lambda d: d.update(seed="0" * 63), r"\$\.seed is not 32 bytes"),
        (lambda d: d.update(seed="G" * 64), r"\.seed is not 32 bytes"),
        (lambda d: d.update(context=[]), r"\$\.context is not an object"),
        (lambda d: d.update(events={}), r"\$\.events is not a list"),
        (lambda d: d.update(events=[1]), r"\$\.events\[0\] is not an object"),
        (lambda d: d.update(events=[{}] * 200_001), "more than 200000 items"),
        (lambda d: d.update(limits={"wal": 1}), "unknown key .wal.* mean wall"),
        (lambda d: d.update(limits={"wall": "x"}), r"limits\.wall is not a limit"),
        (lambda d: d.update(limits={"fuel": 1.5}), r"limits\.fuel is not a limit"),
        (lambda d: d.update(limits={"fuel": True}), r"\.fuel is not a limit"),
        (lambda d: d.update(limits={"memory": -1}), r"limits\.memory is not a limit"),
        (lambda d: d["tools"][0].pop("tool"), r"\$\.tools\[0\] has no tool"),
        (lambda d: d["tools"][0].update(x=1), r"\$\.tools\[0\] has the unknown key"),
        (
            lambda d: d["events"][0].update(log="loud"),
            r"events\[0\]\.log is not one of",
        ),
        (lambda d: d["events"][0].update(text=1), r"events\[0\]\.text is of the wr"),
        (lambda d: d["events"][1].update(params=[1]), r"events\[1\]\.params is not an"),
        (lambda d: d["events"][1].update(params_sha256="x"), "not 32 bytes in hex"),
        (lambda d: d["events"][1].pop("reply"), r"events\[1\] has no reply"),
        (
            lambda d: d["events"][1]["reply"].update(status="well"),
            "status is not one of",
        ),
        (lambda d: d["events"][1]["reply"].pop("data"), r"reply has no data"),
        (lambda d: d["events"][2]["reply"].update(kind="odd"), "kind is not one of"),
        (lambda d: d["events"][2]["reply"].update(sent="maybe"), "sent is not one of"),
        (
            lambda d: d["events"][2]["reply"].update(server_code="1"),
            "server_code is of the wrong",
        ),
        (lambda d: d["events"][3]["reply"].update(rule=1), "rule is of the wrong"),
        (lambda d: d["events"][3]["reply"].update(data=1), "unknown key 'data'"),
        (lambda d: d.update(end={"status": "cancelled"}), "end.status is not one of"),
        (lambda d: d["end"].pop("output"), r"\$\.end has no output"),
        (
            lambda d: d.update(end={"status": "failed", "kind": "host", "message": ""}),
            "end.kind is not one of",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused(change: Change, message: str) -> None:  # law 9
    document = copy.deepcopy(WHOLE)
    parse(json.dumps(document))
    change(document)
    with pytest.raises(BadBytes, match=message):
        parse(json.dumps(document))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", r"\$ is not an object"),
        (b"[" * 100_000, "not JSON"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b'{"a": 1, "a": 1}', "same key twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"\\ud800": 1}', "surrogate"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_bytes_that_are_no_json_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadBytes, match=message):
        parse(data)


def test_a_file_is_bounded_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # law 9
    path = tmp_path / "large.json"
    path.write_text(json.dumps(WHOLE))
    assert read(path).started.agent == "a"
    monkeypatch.setattr(cassette, "MAX_FILE", 100)
    with pytest.raises(UsageError, match=r"large.json is not one: 101 bytes, of 100"):
        read(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UsageError, match=r"there is no cassette pipe\.json"):
        read(tmp_path / "pipe.json")


def test_a_file_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shut.json"
    path.write_text("{}")

    def shut(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", shut)
    with pytest.raises(
        UsageError, match=r"shut\.json cannot be read: Permission denied"
    ):
        read(path)


def test_a_reviewer_sees_every_character() -> None:
    odd = "\u202e \u2028 \u200b \U000e0001 é 漢 😀 \x07"
    text = write(
        history(LogWritten(n=1, level="info", text=odd), completed(None)), BLOBS
    )
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "é 漢 😀" in text
    assert parse(text).events[0] == LogWritten(n=1, level="info", text=odd)
