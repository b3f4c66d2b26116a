"""The SDK's provider of tokens, held to what the operator said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from ..core.servers import OAuth

__all__ = ["Provider"]

_METHODS: dict[str, Literal["client_secret_basic", "client_secret_post"]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}

# It logs what an authorization server answered, token or not (law 8).
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)


class _Memory:
    """Where tokens are kept: nowhere else. See the SDK's `TokenStorage`."""

    def __init__(self, learn: Callable[[OAuthToken], None]) -> None:
        self._learn = learn
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._learn(tokens)
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing: the client is the operator's."""


class Provider(ClientCredentialsOAuthProvider):
    """
    Gets tokens for a client that the operator registered.

    Every token is shown to *learn* before anything is done with it.
    """

    def __init__(
        self, config: OAuth, url: str, learn: Callable[[OAuthToken], None]
    ) -> None:
        super().__init__(
            url,
            _Memory(learn),
            config.client_id,
            config.client_secret,
            _METHODS[config.method],
            config.scope,
            config.issuer,
        )
        self._scope = config.scope
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
