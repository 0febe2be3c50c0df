"""The HTTP transport under the OpenAI SDK: it sends the headers of a chat request and no others.

The SDK adds headers from environment variables and about this machine; here they are dropped.
"""

import httpx2
from pydantic import SecretStr

SENT_HEADERS = (
    "host",
    "accept",
    "accept-encoding",
    "connection",
    "content-type",
    "content-length",
    "transfer-encoding",
    "user-agent",
)


class ChatTransport(httpx2.AsyncHTTPTransport):
    """Sends requests directly to their address: no proxy, no credentials but the given key."""

    def __init__(self, api_key: SecretStr | None, *, max_connections: int) -> None:
        super().__init__(trust_env=False, limits=httpx2.Limits(max_connections=max_connections))
        self._api_key = api_key

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a copy of the request with its own headers alone."""
        headers = {name: value for name, value in request.headers.items() if name.lower() in SENT_HEADERS}
        if self._api_key is not None:
            headers["authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        own = httpx2.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
        )
        return await super().handle_async_request(own)
