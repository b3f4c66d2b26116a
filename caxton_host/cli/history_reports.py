"""Files about a judged history: JUnit XML, a run a test; and a page of HTML."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from ..core.analysis.history import CHANGES, VERDICTS, Finding, History
from ..errors import UsageError
from .output import plain

#: The element that says why a run is not as it was. Its text is the reason.
_ELEMENTS = {
    **dict.fromkeys(CHANGES, "failure"),
    "failed": "error",
    "incomplete": "skipped",
    "unjudged": "skipped",
}


@contextmanager
def reporting(
    history: History, junit: Path | None, html: Path | None
) -> Generator[Callable[[Finding], None]]:
    """
    Return what takes each finding, and write the files if all runs were judged.

    Raises:
        UsageError: A file cannot be written.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as cases:

        def take(finding: Finding) -> None:
            history.take(finding)
            if junit:
                cases.write(_case(finding))

        yield take
        if not history.complete:
            return
        try:
            if junit:
                cases.seek(0)
                with junit.open("w", encoding="utf-8") as file:
                    file.write(_head(history))
                    shutil.copyfileobj(cases, file)
                    file.write("</testsuite>\n</testsuites>\n")
            if html:
                html.write_bytes(_page(history))
        except OSError as exc:
            raise UsageError(
                f"cannot write {exc.filename}: {exc.strerror}",
                fix="name a file in a folder that exists, and that you may write",
            ) from None


def _head(history: History) -> str:
    told = history.verdicts
    numbers = {
        "tests": history.runs,
        "failures": history.changed,
        "errors": told["failed"],
        "skipped": told["incomplete"] + told["unjudged"],
    }
    counts = " ".join(f'{name}="{number}"' for name, number in numbers.items())
    against = "{kind} {name}".format(**history.against).strip()
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n'
        f"<testsuite name={_quoted(f'caxton replay: {against}')} {counts}>\n"
    )


def _case(one: Finding) -> str:
    begin = f"<testcase classname={_quoted(one.agent)} name={_quoted(one.run_id)}"
    element = _ELEMENTS.get(one.verdict)
    if element is None:
        return f"{begin}/>\n"
    event = f"event {one.seq}: " if one.seq else ""
    values = " became ".join(filter(None, (one.was, one.now)))
    why = _quoted(f"{VERDICTS[one.verdict]}: {one.what}")
    text = escape(plain(f"{event}{values}"))
    return f"{begin}><{element} message={why}>{text}</{element}></testcase>\n"


def _quoted(text: str) -> str:
    # XML has no form for control characters.
    return quoteattr(plain(text))


def _page(history: History) -> bytes:
    from ..web.ui.render import page

    values = {"history": history, "groups": [*history.groups()], "words": VERDICTS}
    return page("history", values)
