"""Somebody who says yes wherever they are sent, with a browser without a screen."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.shared.auth import AuthorizationCodeResult

from caxton_host.mcp.auth.login import Asked

__all__ = ["Visitor"]


@dataclass(slots=True, kw_only=True)
class Visitor:
    """
    A `Person`.

    Attributes:
        brings: What they bring back instead of what they were given.

        asked: What they were asked, each time.
    """

    redirect_uri: str = "http://127.0.0.1:9/callback"
    brings: dict[str, str | None] = field(default_factory=dict[str, str | None])
    asked: list[Asked] = field(default_factory=list[Asked])

    async def allow(self, asked: Asked) -> AuthorizationCodeResult:
        self.asked.append(asked)
        async with httpx2.AsyncClient(follow_redirects=False) as browser:
            sent = await browser.get(asked.address)
        query = parse_qs(urlsplit(sent.headers["location"]).query)
        given = {name: texts[0] for name, texts in query.items()}
        return AuthorizationCodeResult.model_validate(given | self.brings)
