"""As much of curl as the pages use: it is not on every machine."""

from __future__ import annotations

import argparse
import sys

import httpx


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("-s", action="store_true")
    options.add_argument("-N", action="store_true")
    options.add_argument("-X", default=None)
    options.add_argument("-H", action="append", default=[])
    options.add_argument("-d", default=None)
    options.add_argument("url")
    given = options.parse_args()
    headers = dict(header.split(": ", 1) for header in given.H)
    method = given.X or ("GET" if given.d is None else "POST")
    with httpx.stream(
        method, given.url, headers=headers, content=given.d, timeout=60
    ) as answer:
        for text in answer.iter_text():
            sys.stdout.write(text)
        sys.stderr.write(f"{answer.status_code}\n")


main()
