"""``--input`` and ``--input-text``: what a run is given, and where that is read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from ..core.calls import JSON
from ..errors import BadBytes, UsageError

_MAX_INPUT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RunInput:
    """
    The input of a run.

    Attributes:
        given: As typed: the input itself, ``@FILE``, or ``-`` for stdin.

        is_text: It is text, and not JSON.
    """

    given: str | None
    is_text: bool = False

    @property
    def file(self) -> Path | None:
        """The file that it is read from, if there is one."""
        found = self.given is not None and self.given.startswith("@")
        return Path(str(self.given)[1:]) if found else None

    def read(self, *, taken: bool = False) -> JSON:
        """
        Return the value.

        Args:
            taken: Stdin is the program.

        Raises:
            UsageError: It cannot be read, or is not JSON, or not UTF-8.
        """
        from ..lib.codec import load_json

        if self.given is None:
            return None
        if self.given == "-" and taken:
            raise UsageError(
                "stdin cannot be both the program and the input",
                fix="write the input to a file: --input @input.json",
            )
        raw = self._bytes(self.given)
        if not self.is_text:
            try:
                return load_json(raw, limit=_MAX_INPUT)
            except BadBytes as exc:
                text = self.given if self.given == "-" or self.file else "TEXT"
                raise UsageError(
                    f"--input: {exc}",
                    fix='pass JSON, for example \'{"location": "Seattle"}\'; or pass '
                    f"text that is not JSON: --input-text {text}",
                ) from None
        try:
            if len(raw) > _MAX_INPUT:
                raise UsageError(
                    f"--input-text: more than {_MAX_INPUT} bytes", fix="pass less"
                )
            return raw.decode()
        except UnicodeDecodeError as exc:
            raise UsageError(
                f"--input-text: byte {exc.start} is not UTF-8", fix="write it in UTF-8"
            ) from None

    def _bytes(self, given: str) -> bytes:
        if given == "-":
            return sys.stdin.buffer.read(_MAX_INPUT + 1)
        if self.file is None:
            return os.fsencode(given)
        try:
            with self.file.open("rb") as file:
                return file.read(_MAX_INPUT + 1)
        except OSError as exc:
            raise UsageError(
                f"cannot read the input {self.file}: {exc.strerror}",
                fix="name a file that exists, after @",
            ) from None


def run_input(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--input`` and ``--input-text``, as one argument ``input_``."""

    def gathered(
        *args: object, input_: str | None, input_text: str | None, **rest: object
    ) -> object:
        if input_ is not None and input_text is not None:
            raise UsageError(
                "--input and --input-text exclude each other",
                fix="leave one of them out",
            )
        is_text = input_text is not None
        given = RunInput(input_text if is_text else input_, is_text)
        return function(*args, input_=given, **rest)

    json = click.option(
        "-i",
        "--input",
        "input_",
        metavar="JSON|@FILE|-",
        help="The input: JSON, @FILE or - for stdin.",
    )
    text = click.option(
        "--input-text",
        metavar="TEXT|@FILE|-",
        help="The input as a string that is not parsed.",
    )
    return json(text(update_wrapper(gathered, function)))
