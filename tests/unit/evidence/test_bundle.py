"""A bundle proves itself to whoever knows the key, and nothing else is believed."""

from __future__ import annotations

import io
import json
import os
import random  # noqa: TID251 -- seeded: where to corrupt
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from caxton_host.core.log import bundle as format_
from caxton_host.core.log.bundle import parse_bundle
from caxton_host.core.log.chain import Fault, Verdict
from caxton_host.core.log.checkpoint import Note
from caxton_host.core.log.events import LogWritten
from caxton_host.errors import (
    BadBytes,
    LogBrokenError,
    NotFoundError,
    StoreError,
    UsageError,
)
from caxton_host.lib.signing import judge
from caxton_host.store import bundle_store
from caxton_host.store.bundle_store import (
    MAX_BUNDLE,
    BundleStore,
    check_bundle,
    read_bundle,
)

from .logs import FORGER, NEW, OLD, Log, public, signed, small, unknown, vectors
from .mutations import chain, mutations

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
VECTORS = REFERENCE / "vectors"
VERIFIER = REFERENCE / "verify_bundle.py"
TRUSTED = [public(OLD)]
#: What only a look into payloads shows, which nobody takes of an unknown signer's.
LAST = (
    "fork-",
    "queued-",
    "begins-",
    "run-called-a-fork",
    "erased-fewer",
    "erased-more",
    "erased-of-",
)


def ours(data: bytes, *outside: Note, trusted: list[bytes] = TRUSTED) -> Verdict:
    try:
        bundle = parse_bundle(iter(io.BytesIO(data).readlines()))
    except BadBytes as exc:
        fault = Fault(kind="form", message=str(exc))
        return Verdict(streams=0, events=0, faults=(fault,))
    return check_bundle(bundle, trusted, outside)


@pytest.fixture(scope="module")
def theirs() -> Callable[[bytes, list[bytes]], str]:
    judge_ = runpy.run_path(str(VERIFIER))["judge"]
    return lambda data, trusted: str(judge_(io.BytesIO(data), trusted)[0])


@pytest.mark.parametrize("name", vectors())
def test_both_verifiers_agree_about_every_vector(
    name: str, theirs: Callable[[bytes, list[bytes]], str]
) -> None:
    data, verdict = vectors()[name]
    kept = VECTORS / f"{name}.caxton"
    if os.environ.get("CAXTON_WRITE_VECTORS"):
        kept.write_bytes(data)
    assert kept.read_bytes() == data, "the format changed: old bundles are still read"
    assert ours(data).verdict == verdict
    assert theirs(data, TRUSTED) == verdict
    without = {"intact": "signer_unknown"}.get(verdict, verdict)
    lineage = name.startswith(LAST)
    assert ours(data, trusted=[]).verdict == ("signer_unknown" if lineage else without)
    assert theirs(data, []) == ours(data, trusted=[]).verdict


def test_the_list_of_vectors_is_complete() -> None:
    listed = json.loads((VECTORS / "vectors.json").read_text())
    expected = {name: verdict for name, (_, verdict) in vectors().items()}
    assert listed == {"key": public(OLD).hex(), "verdicts": expected}
    files = {path.stem for path in VECTORS.glob("*.caxton")}
    assert files == expected.keys()


def test_the_second_verifier_is_short() -> None:
    text = VERIFIER.read_text("utf-8")
    assert len(text.splitlines()) <= 215
    assert "caxton_host" not in text


def corrupted(data: bytes) -> Iterator[bytes]:
    """Yield copies of *data*, each with another small damage."""
    where = random.Random(20261121)  # noqa: S311
    lines = data.splitlines(keepends=True)
    while True:
        at, other = where.randrange(len(data)), where.randrange(256)
        line = where.randrange(len(lines))
        changed = [
            data[:at] + bytes([other]) + data[at + 1 :],
            data[:at] + data[at + 1 :],
            data[:at] + bytes([other]) + data[at:],
            data[:at],
            b"".join(lines[:line] + lines[line + 1 :]),
            b"".join([*lines[: line + 1], *lines[line:]]),
            b"".join([*lines[line:], *lines[:line]]),
        ]
        for one in changed:
            if one != data:
                yield one


@pytest.mark.no_cover
def test_500_random_corruptions_of_a_bundle_are_found(
    theirs: Callable[[bytes, list[bytes]], str],
) -> None:
    for name in ("fork", "run-since"):
        source = corrupted(vectors()[name][0])
        for _ in range(500):
            damaged = next(source)
            verdict = ours(damaged).verdict
            assert verdict != "intact", damaged
            assert theirs(damaged, TRUSTED) == verdict


@pytest.mark.no_cover
def test_both_verifiers_agree_on_2000_random_mutations(
    theirs: Callable[[bytes, list[bytes]], str],
) -> None:
    verdicts: Counter[str] = Counter()
    for changed in islice(mutations(20261122), 2000):
        verdict = ours(changed).verdict
        assert theirs(changed, TRUSTED) == verdict, changed
        verdicts[verdict] += 1
    assert min(verdicts.values()) > 100
    assert len(verdicts) == 3


class Endless(io.RawIOBase):
    """A file of one line without end, which says how much of it was taken."""

    taken = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size > 0, "a line is never read without a bound"
        self.taken += size
        return b" " * size


def test_a_line_without_end_is_not_read_whole() -> None:
    judge_ = runpy.run_path(str(VERIFIER))["judge"]
    file = Endless()
    assert judge_(file, TRUSTED) == ("broken", 0)
    assert file.taken <= format_.MAX_HEADER + 1


def test_the_second_verifier_counts_what_was_erased() -> None:
    judge_ = runpy.run_path(str(VERIFIER))["judge"]
    data, _ = vectors()["erased-parent"]
    assert judge_(io.BytesIO(data), TRUSTED) == ("intact", 2)
    assert judge_(io.BytesIO(vectors()["run"][0]), TRUSTED) == ("intact", 0)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_payload_cannot_be_dropped_from_a_bundle(number: int) -> None:
    """Decision 0027: only an erasure that the log holds excuses a missing payload."""
    lines = vectors()["run"][0].splitlines(keepends=True)
    event = json.loads(lines[number])
    del event["payload"], event["salt"]
    lines[number] = _canonical(event)
    found = ours(b"".join(lines))
    assert found.verdict == "broken"
    assert found.first_bad == ("run/a", number, "its payload is missing")


def test_a_bundle_of_another_key_is_of_an_unknown_signer() -> None:
    data, _ = vectors()["rebuilt-by-other-key"]
    found = ours(data)
    assert (found.verdict, found.faults) == ("signer_unknown", ())
    assert found.signer is not None
    assert (found.signer.public_key, found.signer.trusted) == (public(FORGER), False)
    assert ours(data, trusted=[public(FORGER)]).verdict == "intact"


def test_a_rotated_key_still_verifies() -> None:
    data, _ = vectors()["run-of-two-keys"]
    assert ours(data, trusted=[public(OLD)]).verdict == "intact"
    assert ours(data, trusted=[public(NEW)]).verdict == "intact"


def test_a_witness_may_sign_beside_us() -> None:
    log = small()
    note = unknown(signed(log.checkpoint(), OLD))
    assert judge(note, TRUSTED) == "trusted"
    assert judge(note, [bytes(32)]) == "forged"
    assert judge(note, []) == "unknown"


@pytest.mark.parametrize(
    ("outside", "words"),
    [
        (signed(small().checkpoint(), OLD), ""),
        (signed(small().checkpoint(7), OLD), ""),
        (signed(small().checkpoint(6), OLD), "--since"),
        (signed(small().checkpoint(7), FORGER), "no trusted key"),
    ],
)
def test_a_checkpoint_kept_elsewhere_is_compared(outside: Note, words: str) -> None:
    data = small().bundle("run/a", earlier=(7,))
    faults = ours(data, outside).faults
    assert len(faults) == bool(words)
    assert words in "".join(map(str, faults))


def test_a_log_that_was_rewritten_does_not_fit_an_older_checkpoint() -> None:
    other = Log()
    other.append("host/1", LogWritten(n=1, level="info", text="begin"))
    other.run("a", lines=4)
    old = signed(small().checkpoint(5), OLD)
    (fault,) = ours(other.bundle("run/a"), old).faults
    assert "--since" in str(fault)
    same = signed(small().checkpoint(7), OLD)
    (fault,) = ours(other.bundle("run/a"), same).faults
    assert fault.kind == "rewritten"
    assert "with the 7 events that were signed" in fault.message
    again = Log()
    again.run("a")
    (fault,) = ours(again.bundle("run/a"), old).faults
    assert "another log" in str(fault)


async def test_a_bundle_is_a_store_that_takes_nothing() -> None:
    bundle = parse_bundle(iter(io.BytesIO(vectors()["fork"][0]).readlines()))
    store = BundleStore(bundle)
    events = await store.read("run/c")
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [type(event.event).__name__ for event in events][-1] == "RunCompleted"
    # At the earliest, by what the bundle proves of its last event.
    assert {event.position for event in events} == {bundle.header.parts[2].index + 1}
    assert len(await store.read("run/a")) == 2
    assert await store.read("run/none") == []
    (digest,) = bundle.blobs
    assert await store.blob(digest) == bundle.blobs[digest]
    with pytest.raises(NotFoundError):
        await store.blob("00" * 32)
    with pytest.raises(StoreError, match="takes no events"):
        store.create("run/d")
    with pytest.raises(StoreError, match="takes no events"):
        await store.claim("run/c", after=4)


async def test_an_erased_event_has_no_content() -> None:
    bundle = parse_bundle(iter(io.BytesIO(vectors()["erased"][0]).readlines()))
    found = check_bundle(bundle, TRUSTED)
    assert (found.erased, found.erased_runs) == (4, ("a",))
    events = await BundleStore(bundle).read("run/a")
    assert [event.event for event in events] == [None, None, None, None]


def test_the_erasure_of_a_run_is_among_its_events() -> None:
    bundle = parse_bundle(iter(io.BytesIO(vectors()["erased"][0]).readlines()))
    *own, erasure = BundleStore(bundle).recorded()
    assert {event.stream for event in own} == {"run/a"}
    assert (erasure.stream, erasure.type) == ("host/1", "RunErased")


@pytest.mark.parametrize("name", ["no-checkpoint", "key-of-another"])
def test_who_signed_a_forged_checkpoint_is_not_trusted(name: str) -> None:
    signer = ours(vectors()[name][0]).signer
    assert signer is not None
    assert not signer.trusted


def test_a_file_is_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.caxton"
    file.write_bytes(vectors()["run"][0])
    header, *lines = file.read_bytes().splitlines(keepends=True)
    monkeypatch.setattr(bundle_store, "MAX_HEADER", len(header))
    monkeypatch.setattr(bundle_store, "MAX_LINE", max(map(len, lines)))
    assert check_bundle(read_bundle(file), TRUSTED).verdict == "intact"


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "run.caxton"
    with file.open("wb") as sparse:
        sparse.truncate(MAX_BUNDLE + 1)
    with pytest.raises(UsageError, match="at most"):
        read_bundle(file)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a file"):
        read_bundle(tmp_path / "pipe")
    with file.open("wb") as sparse:
        sparse.truncate(MAX_BUNDLE)
    with pytest.raises(BadBytes, match="1048577 bytes"):
        read_bundle(file)


HEADERS: list[tuple[dict[str, object], str]] = [
    ({"$type": "caxton.event/v1"}, "not caxton.bundle/v1"),
    ({"blobs": -1}, "a number"),
    ({"blobs": True}, "a number"),
    ({"blobs": format_.MAX_BLOBS + 1}, "a number"),
    ({"checkpoint": 1}, "a valid text"),
    ({"checkpoint": ""}, "a valid text"),
    ({"checkpoint": "\x1b[2J"}, "a valid text"),
    ({"earlier": {}}, "not a list"),
    ({"earlier": [1]}, "something else"),
    ({"earlier": [{}]}, "its keys"),
    ({"earlier": [{"checkpoint": "x", "proof": []}] * 65}, "more than 64"),
    ({"key": "AA" * 32}, "in hex"),
    ({"key": "aa" * 31}, "in hex"),
    ({"key": "x"}, "in hex"),
    ({"key": None}, "in hex"),
    ({"run": "b"}, "that of the run"),
    ({"streams": []}, "no stream"),
    ({"run": "\u0663"}, "a valid text"),
    ({"extra": 1}, "its keys"),
]


@pytest.mark.parametrize(("change", "words"), HEADERS)
def test_a_header_that_is_none_is_refused(
    change: dict[str, object], words: str
) -> None:
    lines = vectors()["run"][0].splitlines(keepends=True)
    header = {**json.loads(lines[0]), **change}
    lines[0] = _canonical(header)
    with pytest.raises(BadBytes, match=words):
        parse_bundle(iter(lines))


def test_bundle_of_a_later_version_is_called_that(tmp_path: Path) -> None:
    file = tmp_path / "run.caxton"
    lines = vectors()["run"][0].splitlines(keepends=True)
    header = {**json.loads(lines[0]), "$type": "caxton.bundle/v2", "mood": "good"}
    file.write_bytes(b"".join([_canonical(header), *lines[1:]]))

    with pytest.raises(UsageError, match=r"is a caxton\.bundle/v2") as refused:
        read_bundle(file)
    assert "later version" in refused.value.fix

    done = subprocess.run(
        (sys.executable, VERIFIER, file, public(OLD).hex()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "of a later version\n")


async def test_event_of_a_later_version_is_named() -> None:
    log = small()
    at, (stream, event) = [
        one for one in enumerate(log.events) if one[1][0] == "run/a"
    ][1]
    log.events[at] = stream, replace(event, type="RunDreamt")
    chain(log)
    data = log.bundle("run/a")
    assert ours(data).verdict == "intact"
    bundle = parse_bundle(iter(io.BytesIO(data).readlines()))

    with pytest.raises(LogBrokenError, match="event 2 of run/a") as refused:
        await BundleStore(bundle).read("run/a")
    assert "later version" in refused.value.fix


def test_line_is_parsed_only_up_to_its_largest_size() -> None:  # law 9
    with pytest.raises(BadBytes, match="not JSON"):
        parse_bundle(iter([b"x" * format_.MAX_HEADER]))
    with pytest.raises(BadBytes, match="allowed"):
        parse_bundle(iter([b"x" * (format_.MAX_HEADER + 1)]))


def test_header_may_be_as_long_as_its_limits_say() -> None:
    lines = vectors()["run"][0].splitlines(keepends=True)
    header = json.loads(lines[0])
    one = {"checkpoint": header["checkpoint"], "proof": ["00" * 32] * 64}
    lines[0] = _canonical({**header, "earlier": [one] * 64})
    earlier = parse_bundle(iter(lines)).header.earlier
    assert [len(one.proof) for one in earlier] == [64] * 64


def test_bundle_that_was_cut_off_says_so() -> None:
    lines = vectors()["run"][0].splitlines(keepends=True)
    with pytest.raises(BadBytes, match="the last line of the bundle: it is missing"):
        parse_bundle(iter(lines[:-1]))


def test_limits_are_those_of_the_page() -> None:
    page = (REFERENCE / "bundle.md").read_text()
    table = dict(re.findall(r"^\| ([a-z ,]+) \| (.+) \|$", page, re.MULTILINE))
    limits = {
        "file": f"{MAX_BUNDLE >> 30} GiB",
        "header": f"{format_.MAX_HEADER >> 20} MiB",
        "any other line": f"{format_.MAX_LINE >> 20} MiB",
        "streams, older checkpoints": f"{format_.MAX_STREAMS}, {format_.MAX_EARLIER}",
        "events, blobs": f"{format_.MAX_EVENTS:,}, {format_.MAX_BLOBS:,}",
        "hashes of one proof": f"{format_.MAX_PROOF}",
    }
    assert table.items() >= limits.items()


@pytest.mark.parametrize(
    "change",
    [
        {"events": 0},
        {"events": 10**9},
        {"index": -1},
        {"stream": "host/1"},
        {"erased": {}},
        {"erased": None},
    ],
)
def test_a_stream_that_is_none_is_refused(change: dict[str, object]) -> None:
    lines = vectors()["fork"][0].splitlines(keepends=True)
    header = json.loads(lines[0])
    header["streams"][0] |= change
    lines[0] = _canonical(header)
    with pytest.raises(BadBytes, match="the header"):
        parse_bundle(iter(lines))


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, {"at": 1.5}),
        (1, {"trace": 1}),
        (1, {"payload": 1}),
        (1, {"payload": "A"}),
        (1, {"payload": "AB=="}),
        (5, {"sha256": "00" * 32}),
        (5, {"bytes": "", "sha256": "00" * 32}),
    ],
)
def test_a_line_that_is_none_is_refused(number: int, change: dict[str, object]) -> None:
    lines = vectors()["run"][0].splitlines(keepends=True)
    lines[number] = _canonical({**json.loads(lines[number]), **change})
    with pytest.raises(BadBytes, match=f"line {number + 1}"):
        parse_bundle(iter(lines))


def test_blobs_come_in_one_order() -> None:
    lines = vectors()["run"][0].splitlines(keepends=True)
    lines[0] = lines[0].replace(b'"blobs":1', b'"blobs":2')
    with pytest.raises(BadBytes, match="in the order"):
        parse_bundle(iter([*lines, lines[-1]]))


@pytest.mark.parametrize(
    "deep", [b"[" * 100_000, b'{"a":' * 100_000, b"[]\n", b"\xff\n"]
)
def test_what_is_deep_or_no_text_is_refused(deep: bytes) -> None:
    with pytest.raises(BadBytes, match="not JSON"):
        parse_bundle(iter([deep]))


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    "words", [(), ("absent",), (__file__, "key"), (__file__, "abc"), (__file__, "ab")]
)
def test_the_script_says_in_one_line_what_it_cannot_use(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        (sys.executable, VERIFIER, *words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
