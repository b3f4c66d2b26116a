"""
Read the text files of a folder, and write a summary into it.

Input: {"folder": path}. Output: the files that were read, those that were not with the
reason, and the path of the summary, or its text if it could not be written. The tools
are those of @modelcontextprotocol/server-filesystem, as the server "files".
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from dataclasses import dataclass

from caxton_agent import JSON, AgentError, input, log, mcp_call, mcp_call_many, now

SUMMARY = "SUMMARY.md"
AT_ONCE = 16
TEXT = (".md", ".txt", ".rst")
WORD = re.compile(r"[^\W\d_]{4,}")


@dataclass(frozen=True)
class Note:
    """The facts about one file."""

    name: str
    title: str
    lines: int
    words: Counter[str]


def run() -> dict[str, JSON]:
    folder = input()["folder"]
    names = listed(folder)
    notes, unread = read(folder, names)
    text = summary(folder, notes)
    told: dict[str, JSON] = {"read": [note.name for note in notes], "unread": unread}
    path = posixpath.join(folder, SUMMARY)
    try:
        mcp_call("mcp__files__write_file", {"path": path, "content": text})
    except AgentError as error:
        log.warning(f"the summary is not written: {error}")
        return {**told, "summary": text, "problem": error.code}
    return {**told, "written": path}


def listed(folder: str) -> list[str]:
    """Return the names of the text files in *folder*, in order."""
    answer = mcp_call("mcp__files__list_directory", {"path": folder}).message
    files = re.findall(r"^\[FILE\] (.+)$", answer, re.MULTILINE)
    return sorted(name for name in files if name.endswith(TEXT) and name != SUMMARY)


def read(folder: str, names: list[str]) -> tuple[list[Note], dict[str, str]]:
    """Return a note for each file, and the reasons for unreadable files."""
    notes: list[Note] = []
    unread: dict[str, str] = {}
    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        paths = [posixpath.join(folder, name) for name in some]
        calls = [("mcp__files__read_text_file", {"path": path}) for path in paths]
        for name, reply in zip(some, mcp_call_many(calls), strict=True):
            if isinstance(reply, AgentError):
                log.warning(f"{name} is not read: {reply}")
                unread[name] = reply.code
            else:
                notes.append(noted(name, reply.message))
    return notes, unread


def noted(name: str, text: str) -> Note:
    """Return the note of a file with this *text*."""
    lines = text.splitlines()
    title = next((line.strip("# ") for line in lines if line.strip("# ")), "(empty)")
    words = Counter(word.lower() for word in WORD.findall(text))
    return Note(name=name, title=title, lines=len(lines), words=words)


def summary(folder: str, notes: list[Note]) -> str:
    """Return the summary, in Markdown."""
    everywhere = sum((note.words for note in notes), Counter[str]())
    common = sorted(everywhere, key=lambda word: (-everywhere[word], word))[:5]
    return "\n".join(
        [
            f"# {posixpath.basename(folder.rstrip('/'))}",
            "",
            f"{len(notes)} files on {now():%Y-%m-%d}; often: {', '.join(common)}.",
            "",
            *(f"- {note.name}: {note.title} ({note.lines} lines)" for note in notes),
            "",
        ]
    )
