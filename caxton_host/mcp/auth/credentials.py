"""The SDK's provider of tokens, held to what the operator said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from ...core.tools.servers import OAuth
from ...errors import ToolError
from .exchange import SPEAKS, STEPS, Send

METHODS: dict[str, Literal["client_secret_basic", "client_secret_post"]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}

# It logs what an authorization server answered, token or not (law 8).
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)


def registered(
    config: OAuth, redirect_uris: list[AnyUrl] | None
) -> OAuthClientInformationFull:
    """Return the client that the operator registered for logins."""
    return OAuthClientInformationFull(
        client_id=config.client_id,
        client_secret=config.client_secret or None,
        redirect_uris=redirect_uris,
        token_endpoint_auth_method=(
            METHODS[config.method] if config.client_secret else "none"
        ),
    )


class Memory:
    """
    Where the SDK keeps tokens: nowhere. See its `TokenStorage`.

    Args:
        learn: Is shown each before anything is done with it.
    """

    def __init__(self, learn: Callable[[OAuthToken], None]) -> None:
        self._learn = learn

    async def get_tokens(self) -> OAuthToken | None:
        """Return nothing: none outlives its provider."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Show them to whoever wants to know."""
        self._learn(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return nothing: the client is the operator's."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing here."""


class Provider(ClientCredentialsOAuthProvider):
    """
    Gets tokens for a client that the operator registered.

    Every token is shown to *learn* before anything is done with it.
    """

    due = False

    def __init__(
        self, config: OAuth, url: str, learn: Callable[[OAuthToken], None]
    ) -> None:
        super().__init__(
            url,
            Memory(learn),
            config.client_id,
            config.client_secret,
            METHODS[config.method],
            config.scope,
            config.issuer,
        )
        self._url = url
        self._scope = config.scope
        self.issuer = config.issuer
        # For servers that do not say where their tokens come from.
        self.context.auth_server_url = config.issuer

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        if self._scope is not None:
            # The flow has put there what the server asks for.
            self.context.client_metadata.scope = self._scope
        return await super()._exchange_token_client_credentials()

    @property
    def token(self) -> str | None:
        """The token that may be used now, if there is one."""
        tokens = self.context.current_tokens
        if tokens is None or not self.context.is_token_valid():
            return None
        return tokens.access_token

    def forget(self) -> None:
        """Use no token that was got before."""
        self.context.clear_tokens()

    async def get(self, send: Send, challenge: str, used: str | None) -> None:
        """Go through the flow as if the server had just turned a request away."""
        del used
        before = self.token
        ours = httpx2.Request("POST", self._url, headers=SPEAKS)
        told = False
        flow = self.async_auth_flow(ours)
        try:
            wanted = await anext(flow)
            for _ in range(STEPS):
                if wanted is not ours:
                    answer = await send(wanted)
                elif told or self.token not in {None, before}:
                    return
                else:
                    told = True
                    said = {"www-authenticate": challenge}
                    answer = httpx2.Response(401, headers=said, request=ours)
                wanted = await flow.asend(answer)
        finally:
            await flow.aclose()
        raise ToolError("protocol", "no", "it takes too many requests")
