"""
Log lines: how they look, and what they never say.

One record is one line, for people or as JSON. What a record is about (its run, its
call, who asked) is known from where it was logged: see `about`. Secrets of the hosts
of this process are taken out, and nothing in a line can steer a terminal or begin
another line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from ..core.calls import JSON

if TYPE_CHECKING:
    from ..core.text.redact import Redactor


Style: TypeAlias = Literal["text", "json"]

#: Returns trace and span id of what is done now, in hex.
Ids: TypeAlias = Callable[[], tuple[str | None, str | None]]

#: The attribute of a record that holds fields of its own.
FIELDS = "caxton_fields"

#: Seconds that the last lines get.
_LAST = 1.0
#: Seconds in which lines gather.
_GATHER = 0.02

_NOTHING: Mapping[str, JSON] = {}
_about: ContextVar[Mapping[str, JSON]] = ContextVar("_about", default=_NOTHING)
_hosts: list[tuple[Redactor, Ids]] = []


class about:  # noqa: N801 -- reads as a function
    """
    Say what everything is about that is logged within.

    Some names have a meaning: ``run``, ``agent``, ``call``, ``server``, ``tool`` and
    ``principal``.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: JSON) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _about.set({**_about.get(), **self._fields})

    def __exit__(self, *_: object) -> None:
        _about.reset(self._token)


@contextlib.contextmanager
def of_host(redact: Redactor, ids: Ids) -> Generator[None]:
    """
    Say whose secrets are in no line that is written within, and who knows the trace.

    Several hosts of one process keep each other's.
    """
    host = redact, ids
    _hosts.append(host)
    try:
        yield
    finally:
        _hosts.remove(host)


def fields_of(record: logging.LogRecord) -> dict[str, JSON]:
    """
    Return what a record says and what it is about, without secrets.

    Only where it was logged: its context is looked at.
    """
    return _Said.by(record).redacted()


@dataclass(frozen=True, slots=True)
class _Said:
    """What a record says, and whose secrets are not to be said, when it was logged."""

    record: logging.LogRecord
    fields: dict[str, JSON]
    trace: Mapping[str, JSON]
    masks: tuple[Callable[[JSON], JSON], ...]

    @classmethod
    def by(cls, record: logging.LogRecord) -> _Said:
        """Gather what is known only where and when *record* was logged."""
        fields: dict[str, JSON] = {
            **_about.get(),
            **getattr(record, FIELDS, _NOTHING),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        masks = tuple(redact.as_now() for redact, _ in _hosts)
        return cls(record, fields, _trace(), masks)

    def redacted(self) -> dict[str, JSON]:
        fields: JSON = self.fields
        for mask in self.masks:
            fields = mask(fields)
        return cast("dict[str, JSON]", fields)


def _trace() -> Mapping[str, JSON]:
    for _, ids in _hosts:
        trace_id, span_id = ids()
        if trace_id:
            return {"trace_id": trace_id, "span_id": span_id}
    return _NOTHING


class Lines(logging.Formatter):
    """Makes one line of a record, for people or for programs."""

    def __init__(self, style: Style) -> None:
        super().__init__()
        self._write = _json if style == "json" else _text

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as a line."""
        return self.line(_Said.by(record))

    def line(self, said: _Said) -> str:
        """Return the line of what was said, anywhere and at any time."""
        at = datetime.fromtimestamp(said.record.created, UTC)
        return self._write(
            {
                "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "level": said.record.levelname.lower(),
                "logger": said.record.name,
                **said.redacted(),
                **said.trace,
            }
        )


class Behind(logging.Handler):
    """
    Makes and writes lines in a thread of its own: they hold nobody up.

    Those that find no room are left out, and counted in a line of their own.

    Args:
        lines: Makes them.

        write: Writes lines, with breaks between them. It may take its time.

        room: How many lines may wait.
    """

    def __init__(
        self, lines: Lines, write: Callable[[str], object], room: int = 10_000
    ) -> None:
        super().__init__()
        self._lines = lines
        self._write = write
        self._waiting: Queue[_Said | None] = Queue(room)
        self._lost = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        try:
            self._waiting.put_nowait(_Said.by(record))
        except Exception:  # noqa: BLE001 -- no room, or its words do not fit
            self._lost += 1

    def _drain(self) -> None:
        while (first := self._waiting.get()) is not None:
            # What comes by then goes out with it: a thread that wakes for each line
            # takes the interpreter from the others each time.
            time.sleep(_GATHER)
            came = [first, *self._come()]
            lines = [*self._made(came)]
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                self._write("\n".join(lines))
            if came[-1] is None:
                return
            if self._lost and self._waiting.empty():
                lost, self._lost = self._lost, 0
                logging.getLogger(__name__).warning("%d lines were left out", lost)

    def _made(self, came: Iterable[_Said | None]) -> Generator[str]:
        for said in came:
            try:
                if said:
                    yield self._lines.line(said)
            except Exception:  # noqa: BLE001 -- one bad line is not the end of all
                self._lost += 1

    def _come(self) -> Generator[_Said | None]:
        with contextlib.suppress(Empty):
            while (said := self._waiting.get_nowait()) is not None:
                yield said
            yield None

    def close(self) -> None:
        """Write what waits, for at most a second."""
        with contextlib.suppress(Full):
            self._waiting.put(None, timeout=_LAST)
        self._thread.join(_LAST)
        super().close()


def _json(fields: Mapping[str, JSON]) -> str:
    # All else that is not a printable character of ASCII is escaped as it is.
    return json.dumps(fields).replace("\x7f", "\\u007f")


def _text(fields: Mapping[str, JSON]) -> str:
    head = ("ts", "level", "logger", "message")
    said = [str(fields["ts"]), f"{fields['level']:<7}", _harmless(fields["message"])]
    said += [f"{key}={_word(fields[key])}" for key in fields if key not in head]
    return " ".join(said)


def _word(value: JSON) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    plain = text.isprintable() and not {" ", '"', "="} & {*text}
    return text if text and plain else _harmless(json.dumps(text, ensure_ascii=False))


def _harmless(value: JSON) -> str:
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
