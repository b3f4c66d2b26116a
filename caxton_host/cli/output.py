"""What is printed, and the exit codes: data on stdout, the rest on stderr.

Nothing from outside can control a terminal: what is not printable is shown as an
escape, and in JSON it is written as one, with the same value.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial

import click

from ..core.calls import JSON
from ..errors import (
    CaxtonError,
    ForbiddenError,
    LogBrokenError,
    NondeterminismError,
    ServerUnavailable,
    StoreError,
    Suspend,
    UsageError,
)
from ..lib.logs import Behind, Lines, Style, fields_of

#: Seconds after which a person wonders whether anything happens.
PATIENCE = 2.0
_LOOK = 0.1
_LEAST_WIDTH = 24
_ENDLESS = 1_000_000


def plain(value: object) -> str:
    """
    Return *value* as one line that cannot steer a terminal.

    >>> plain("a\\x1b[31m"), plain({"a": 1}), plain(None)
    ('a\\\\x1b[31m', '{"a": 1}', '')
    """
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else ascii(char)[1:-1] for char in text)


def to_json(value: JSON, *, indent: int | None = None) -> str:
    """
    Return *value* as JSON that cannot steer a terminal.

    >>> to_json("12\u00a0°C \u202e\x9b")
    '"12\u00a0°C \\\\u202e\\\\u009b"'
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    # A line break outside a string is the indentation's; inside, it is escaped.
    return "".join(
        char if char == "\n" or _harmless(char) else json.dumps(char)[1:-1]
        for char in text
    )


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def clipped(text: str, width: int) -> str:
    """
    Return *text*, cut to that many characters.

    >>> clipped("weather", 7), clipped("whether", 6)
    ('weather', 'whe...')
    """
    return text if len(text) <= width else f"{text[: width - 3]}..."


def counted(number: int, noun: str) -> str:
    """
    Return a number of things.

    >>> counted(1, "call"), counted(2, "call")
    ('1 call', '2 calls')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(text: str) -> None:
    """Print lines for people on stdout."""
    click.echo(_lines(text))


def note(text: str) -> None:
    """Print lines for people on stderr."""
    click.echo(_lines(text), err=True)


def pour(text: str) -> None:
    """Print *text* on stdout: as it is in a pipe, harmless on a terminal."""
    # By itself, click takes escapes out of what goes into a pipe.
    click.echo(_lines(text) if on_terminal() else text, color=True)


def show(document: JSON) -> None:
    """Print a JSON document on stdout."""
    click.echo(to_json(document, indent=2 if on_terminal() else None))


def complain(text: str, fix: str) -> None:
    """Print what was wrong, and what can be done, with the options that were given."""
    ctx = click.get_current_context(silent=True)
    named: Callable[[str], str] = getattr(ctx and ctx.find_root().obj, "named", str)
    note(f"Error: {text}")
    note(f"To fix: {named(fix)}")


def _lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))


def on_terminal() -> bool:
    """Return whether a person reads stdout."""
    return sys.stdout.isatty()


class Notes(logging.Handler):
    """Prints what the package logs for the operator: warnings and faults."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        said = fields_of(record)
        words = [str(said[name]) for name in ("message", "exception") if name in said]
        note(f"{record.levelname.lower()}: " + "\n".join(words))


@contextlib.contextmanager
def logged(style: Style | None, level: str) -> Generator[None]:
    """
    Replace `Notes` as the log handler, within.

    Args:
        style: How; ``None``: as notes.

        level: The least that is logged.
    """
    least = logging.getLevelNamesMapping()[level.upper()]
    package, root = logging.getLogger("caxton_host"), logging.getLogger()
    before = package.level, root.handlers[:]
    write = partial(print, file=sys.stderr)
    handler = Notes() if style is None else Behind(Lines(style), write)
    handler.setLevel(least)
    package.setLevel(least)
    for one in root.handlers[:]:
        if isinstance(one, (Notes, Behind)):
            root.removeHandler(one)
    root.addHandler(handler)
    try:
        yield
    finally:
        package.setLevel(before[0])
        root.handlers[:] = before[1]
        handler.close()


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """
    Print rows under headings: a table on a terminal, tabs in a pipe.

    What is too wide for the terminal is folded, the first column last: other
    commands take what stands there.
    """
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(plain(cell) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    cells = [[plain(cell) for cell in row] for row in rows]
    first = max((len(row[0]) for row in cells), default=0)
    shown = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in cells:
        shown.add_row(*map(Text, row))
    console = Console()
    endless = console.options.update(max_width=_ENDLESS)
    # A least width would be added to what the other columns were given.
    if Measurement.get(console, endless, shown).maximum > console.width:
        shown.columns[0].width = min(first, _LEAST_WIDTH)
    if cells:
        console.print(shown)


@dataclass(slots=True)
class Doing:
    """
    What is under way, as long as it takes.

    Attributes:
        tell: Returns it in words. Called in another thread.
    """

    tell: Callable[[], str]

    @contextlib.contextmanager
    def part(self, text: str | Callable[[], str]) -> Generator[None]:
        """Show *text* instead, within; where no terminal is, too, if it takes long."""
        whole, self.tell = self.tell, text if callable(text) else lambda: text
        try:
            yield
        finally:
            self.tell = whole


#: Between two notes of progress.
_EVERY_S = 10.0


@contextlib.contextmanager
def patience(doing: str, *, quiet: bool = False) -> Generator[Doing]:
    """Show on a terminal that something takes long, once it does; not if *quiet*."""
    under_way = Doing(lambda: doing)
    if quiet:
        yield under_way
        return
    done = threading.Event()
    target = _wait if sys.stderr.isatty() else _tell_parts
    waiter = threading.Thread(target=target, args=(under_way, done), daemon=True)
    waiter.start()
    try:
        yield under_way
    finally:
        done.set()
        waiter.join()


@contextlib.contextmanager
def awaiting(text: str | Callable[[], str]) -> Generator[None]:
    """Show that something takes long, once it does; where no terminal is, too."""
    with patience("") as doing, doing.part(text):
        yield


@contextlib.contextmanager
def progress(doing: str) -> Generator[Callable[[int, int], None]]:
    """Return a callback for the progress: done, total. A terminal shows it."""
    if not sys.stderr.isatty():
        yield _untold
        return
    from rich.console import Console
    from rich.progress import Progress

    began = time.monotonic()
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(plain(doing))

    def tell(done: int, total: int) -> None:
        if time.monotonic() - began > PATIENCE:
            bar.start()  # Once more is nothing.
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


def _untold(done: int, total: int) -> None:
    del done, total


def _tell_parts(doing: Doing, done: threading.Event) -> None:
    whole, shown, began = doing.tell(), "", 0.0
    tick = ticker(whole)
    while not done.wait(PATIENCE):
        if (text := doing.tell()) not in {whole, shown}:
            shown, began = text, time.monotonic()
            note(shown)
            tick = ticker(shown)
        elif text == shown and tick:
            tick(time.monotonic() - began)


def _wait(doing: Doing, done: threading.Event) -> None:
    if done.wait(PATIENCE):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(plain(doing.tell()), total=None)
        while not done.wait(_LOOK):
            progress.update(task, description=plain(doing.tell()))


def ticker(doing: str) -> Callable[[float], None] | None:
    """Return a callback that notes every ten seconds what takes long, off terminals."""
    if sys.stderr.isatty():
        return None
    noted = 0

    def tick(seconds: float) -> None:
        nonlocal noted
        if seconds // _EVERY_S > noted:
            noted = int(seconds // _EVERY_S)
            note(f"{doing}: {seconds:.0f} s")

    return tick


FAILED, USAGE, SUSPENDED, DIVERGED, AUDIT, UNAVAILABLE = range(1, 7)

#: The first that fits counts, so a kind stands before what it is a kind of.
_KINDS: tuple[tuple[type[CaxtonError], int, str], ...] = (
    (UsageError, USAGE, "correct what is named, or see caxton --help"),
    (ForbiddenError, USAGE, "use a token that may"),
    (Suspend, SUSPENDED, "caxton runs show @last"),
    (NondeterminismError, DIVERGED, "run the module that was recorded"),
    (
        LogBrokenError,
        AUDIT,
        "caxton audit verify; restore the database from a copy: docs/how-to/restore.md",
    ),
    (StoreError, FAILED, "see that the database's disk has room; caxton db status"),
    (ServerUnavailable, UNAVAILABLE, "caxton server list"),
    (CaxtonError, FAILED, "try again; caxton doctor shows what this machine lacks"),
)


def exit_code(error: CaxtonError) -> int:
    """
    Return the exit code that stands for *error*.

    >>> exit_code(UsageError("no such file")), exit_code(CaxtonError("broken"))
    (2, 1)
    """
    return next(code for kind, code, _ in _KINDS if isinstance(error, kind))


def remedy(error: CaxtonError) -> str:
    """
    Return what the reader can do about *error*.

    >>> remedy(CaxtonError("it rains", fix="take an umbrella"))
    'take an umbrella'
    """
    if error.fix:
        return error.fix
    return next(fix for kind, _, fix in _KINDS if isinstance(error, kind))
