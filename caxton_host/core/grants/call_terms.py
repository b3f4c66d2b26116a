"""
Terms of an allowed call: its timeout, the size of its answer, and masked parts.

Parts are masked before the agent and the log get the answer. A part that cannot be
searched is masked as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from ..calls import JSON, Completed
from ..log.events import ToolInvoked
from ..text.answers import STRUCTURED, held, said
from ..text.jsonpath import JsonPath, masked
from ..text.redact import MASK
from .grants import Grant, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """
    The terms of a call, by the rules that allow it.

    Attributes:
        timeout: Most seconds of one send.

        max_result: Most bytes of the answer.

        redact: The parts of the answer to mask.
    """

    timeout: float | None = None
    max_result: int | None = None
    redact: tuple[JsonPath, ...] = ()

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Self:
        """Return the strictest terms of these rules."""
        rules = [rule for rule in rules if rule.has_terms]
        if not rules:
            return cls()
        times = [rule.timeout for rule in rules if rule.timeout is not None]
        sizes = [rule.max_result for rule in rules if rule.max_result is not None]
        paths = (path for rule in rules for path in rule.redact_result)
        return cls(
            timeout=min(times, default=None),
            max_result=min(sizes, default=None),
            redact=tuple(dict.fromkeys(paths)),
        )

    @classmethod
    def of_call(
        cls, invoked: ToolInvoked, grant: Grant, others: Iterable[Grant] = ()
    ) -> Self:
        """
        Return the terms of a recorded call.

        Args:
            invoked: The call. Its rule is one of *grant*.

            grant: The grant of its run.

            others: The grants that have to allow the call too. Which of their rules
                allowed it is not recorded, so each rule of the tool counts.
        """
        target = invoked.server or "", invoked.tool or ""
        return cls.of(
            [
                *(rule for rule in grant.allow if rule.id == invoked.rule),
                *(
                    rule
                    for other in others
                    for rule in other.allow
                    if rule.matches(*target)
                ),
            ]
        )

    def conceal(self, done: Completed) -> Completed:
        """
        Return an answer with its parts masked. Its size and duration do not change.

        >>> terms = Terms(redact=(JsonPath.parse("$.mail"),))
        >>> done = Completed(data={"mail": "ada@example.org", "n": 1})
        >>> terms.conceal(done).data
        {'mail': '[redacted]', 'n': 1}
        """
        if not self.redact:
            return done
        try:
            return _with(done, _concealed(done.data, self.redact))
        except Exception:  # noqa: BLE001 -- what cannot be searched is masked
            return replace(
                done, data=MASK, message=MASK, blobs=(), contents={}, told=None
            )


def _with(done: Completed, data: JSON) -> Completed:
    """Return an answer with other data, and a message made from these."""
    if done.told is None or data == MASK:
        message = MASK if done.message else ""
    else:
        message = done.told(data if isinstance(data, dict) else {})
    # The bytes of a blob belong to a part that could not be searched.
    return replace(done, data=data, message=message, blobs=(), contents={}, told=None)


def _concealed(data: JSON, paths: Sequence[JsonPath]) -> JSON:
    if not isinstance(data, dict):
        return _parts([data], paths)[0]
    if data.keys() == {"$cut"}:
        # The digest of masked data would confirm a guess of it.
        return MASK
    content = data.get("content")
    if not isinstance(content, list):
        return _parts([data], paths)[0]
    return _answer(data, content, paths)


def _answer(
    data: dict[str, JSON], content: list[JSON], paths: Sequence[JsonPath]
) -> JSON:
    """Return the masked data of an MCP result."""
    texts = [said(block) for block in content]
    before = [held(text) for text in texts]
    structured = [data[STRUCTURED]] if STRUCTURED in data else []
    after = _parts([*before, *structured], paths)
    blocks: list[JSON] = [
        {"type": "text", "text": text if new is old else _spelt(new)}
        for text, old, new in zip(texts, before, after, strict=False)
    ]
    kept: dict[str, JSON] = {"content": blocks}
    if structured:
        kept[STRUCTURED] = after[-1]
    return kept


def _parts(values: Sequence[JSON], paths: Sequence[JsonPath]) -> list[JSON]:
    """
    Return the masked parts of an answer.

    The parts may repeat the same values in other forms. So if a path matches in one
    part, a part without a match is masked as a whole. A part that is neither a map nor
    a list is always masked as a whole.
    """
    found = [masked(value, paths) for value in values]
    some = any(count for _, count in found)
    return [
        clean
        if value is None or (isinstance(value, dict | list) and (count or not some))
        else MASK
        for value, (clean, count) in zip(values, found, strict=True)
    ]


def _spelt(value: JSON) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()  # raises where the log could not store it
    return text
