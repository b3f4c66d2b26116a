"""A bundle in a page: the page's verifier says what the others say."""

from __future__ import annotations

import json
import random  # noqa: TID251 -- seeded: where to corrupt
import re
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from caxton_host import evidence
from caxton_host.core.log.bundle import parse_bundle
from caxton_host.core.log.events import LogWritten
from caxton_host.errors import UsageError
from caxton_host.evidence import page
from caxton_host.evidence.page import html_page
from tests.others import NODE

from .logs import OLD, Log, public, vectors
from .mutations import mutations
from .test_bundle import ours

FOLDER = Path(evidence.__file__).parent
SCRIPTS = [FOLDER / name for name in ("msgpack.js", "verify.js")]
TRUSTED = [public(OLD)]
ENDS = "</script><!--<script>]]>"


def judged(cases: Iterable[tuple[bytes, Sequence[bytes]]]) -> list[dict[str, Any]]:
    """Return what the page's verifier says of each bundle."""
    lines = [
        json.dumps({"data": b64encode(data).decode(), "keys": [k.hex() for k in keys]})
        for data, keys in cases
    ]
    done = subprocess.run(
        [NODE, str(Path(__file__).with_name("page_verdicts.mjs")), *map(str, SCRIPTS)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def read(html: bytes) -> bytes:
    """Return the bundle in a page as a browser reads it."""
    text = html.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    found = re.search(
        '<script type="text/plain" id="bundle">(.*?)</script>', text, re.DOTALL
    )
    assert found
    return found[1].replace("\N{NOT SIGN}", "<").encode()


def damaged(html: bytes) -> Iterator[bytes]:
    """Yield pages, in each of which one byte of the bundle is another one."""
    where = random.Random(20261127)  # noqa: S311
    start = html.index(b'id="bundle">') + len(b'id="bundle">')
    end = html.index(b"</script>", start)
    while True:
        at, other = where.randrange(start, end), where.randrange(256)
        changed = html[:at] + bytes([other]) + html[at + 1 :]
        if read(changed) != read(html):
            yield changed


@pytest.mark.no_cover
def test_the_page_agrees_with_the_library_about_vectors_and_300_mutations() -> None:
    cases = [
        *((data, keys) for data, _ in vectors().values() for keys in ([], TRUSTED)),
        *((data, TRUSTED) for data in islice(mutations(20261127), 300)),
    ]
    seen: Counter[str] = Counter()
    for (data, keys), found in zip(cases, judged(cases), strict=True):
        assert found["verdict"] == ours(data, trusted=[*keys]).verdict, (data, found)
        seen[found["verdict"]] += 1
    assert min(seen.values()) > 20
    assert len(seen) == 3


def test_200_changed_bytes_of_a_page_are_found_and_named() -> None:
    # law 9
    html = html_page(vectors()["fork"][0])
    cases = [(read(one), TRUSTED) for one in islice(damaged(html), 200)]
    found = judged([(read(html), TRUSTED), *cases])
    assert found[0]["verdict"] == "intact"
    for (data, _), one in zip(cases, found[1:], strict=True):
        assert one["verdict"] == "broken", data
        assert one["why"]
        assert one["where"]


def test_the_event_that_was_changed_is_named() -> None:
    run = vectors()["run"][0]
    lines = run.splitlines(keepends=True)
    cases = [
        (b"".join([*lines[:seq], changed, *lines[seq + 1 :]]), TRUSTED)
        for seq in (1, 2, 3, 4)
        for changed in (
            lines[seq].replace(b'"at":17', b'"at":18'),
            re.sub(rb'"salt":"..', b'"salt":"00', lines[seq]),
            re.sub(rb'"hash":"..', b'"hash":"00', lines[seq]),
            lines[seq].replace(b'"seq":', b'"seq":1'),
            lines[seq].replace(b'"span":', b'"span": '),
        )
    ]
    for number, found in enumerate(judged(cases)):
        assert found["where"] == {"stream": "run/a", "seq": number // 5 + 1}, found


def test_a_bundle_of_a_later_form_is_called_that() -> None:
    later = vectors()["run"][0].replace(b"/v1", b"/v2", 1)
    later = later.replace(b'"run":', b'"ran":', 1)
    (found,) = judged([(later, TRUSTED)])
    assert found["why"] == "not a bundle of a form that this page knows"


def test_a_page_that_is_cut_says_that_it_is_not_verified() -> None:
    html = html_page(vectors()["run"][0])
    assert (
        b">Not verified. If this stays, the file is not whole" in html[: len(html) // 2]
    )


def test_no_text_of_a_bundle_ends_its_element_and_all_of_it_comes_back() -> None:
    log = Log()
    log.append(f"run/{ENDS}", LogWritten(n=1, level="info", text=ENDS))
    bundle = log.bundle(f"run/{ENDS}")
    html = html_page(bundle)
    assert read(html) == bundle
    parse_bundle(iter(read(html).splitlines(keepends=True)))
    assert html.count(b"<script") == html.count(b"</script>") == 3
    assert b"<!--" not in html


def test_a_page_runs_its_own_script_and_nothing_else() -> None:
    text = html_page(vectors()["run"][0]).decode()
    policy = re.search(
        '<head>\n<meta http-equiv="Content-Security-Policy" content="(.*)">', text
    )
    assert policy
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        (body,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = b64encode(sha256(body.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe-inline" not in policy[1]
    assert not re.search(
        r"""(src|href)=["']|https?:""", text.partition('id="bundle"')[0]
    )


def test_a_bundle_that_is_too_large_for_a_page_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "MAX_PAGE", 100)
    with pytest.raises(UsageError, match="of 100 that a page may hold") as caught:
        html_page(vectors()["run"][0])
    assert "caxton audit export RUN -o run.caxton" in str(caught.value.fix)
