"""Documents of many parts, which have to stay small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import Response

from ...core.calls import JSON

_BYTES = 4 * 1024 * 1024


def text_of(document: JSON) -> str:
    """Return a document as it is sent."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


@dataclass(slots=True)
class Page:
    """Parts, each as it is sent: so many bytes, and whatever the last one has."""

    _parts: list[str] = field(default_factory=list[str], init=False)
    _size: int = field(default=0, init=False)

    def add(self, document: JSON) -> None:
        """Add a part."""
        text = text_of(document)
        self._parts.append(text)
        self._size += len(text)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def is_full(self) -> bool:
        """Whether the rest belongs on another page."""
        return self._size >= _BYTES

    def answer(self, document: Mapping[str, JSON], name: str) -> Response:
        """Return a response that holds *document*, with the parts under *name*."""
        head = text_of({**document})[:-1]
        body = f"{head},{json.dumps(name)}:[{','.join(self._parts)}]}}"
        return Response(body, media_type="application/json")
