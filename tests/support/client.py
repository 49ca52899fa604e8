"""A client that sends exact bytes and reads strictly; its two counters are what a counting socket sees."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from support.channel import PATIENCE, Channel
from support.messages import (
    FieldsLike,
    Response,
    as_fields,
    chunked,
    head_bytes,
    read_response_body,
    read_response_head,
)


def request_bytes(
    method: str, target: str | bytes, fields: FieldsLike = (), body: bytes = b"", *, framing: str = "length", host: str = "gw"
) -> bytes:
    """A request. ``framing``: ``length``, ``chunked`` or ``none`` (the fields say all)."""
    target = target.encode("latin-1") if isinstance(target, str) else target
    pairs = as_fields(fields)
    if not any(name.lower() == b"host" for name, _ in pairs):
        pairs.insert(0, (b"Host", host.encode()))
    if framing == "chunked":
        pairs.append((b"Transfer-Encoding", b"chunked"))
        body = chunked(*(body[index : index + 1000] for index in range(0, len(body), 1000)))
    elif framing == "length" and (body or method in ("POST", "PUT", "PATCH")):
        pairs.append((b"Content-Length", str(len(body)).encode()))
    return head_bytes(method.encode() + b" " + target + b" HTTP/1.1", pairs) + body


class Client(Channel):
    """A connection to the gateway."""

    async def response(self, method: str = "GET") -> Response:
        """The next response, whole or cut."""
        response = await read_response_head(self, method)
        await read_response_body(self, response)
        return response

    async def response_head(self, method: str = "GET") -> Response:
        """Only its head; read the rest with :meth:`body_of` or :meth:`chunk`."""
        return await read_response_head(self, method)

    async def body_of(self, response: Response) -> Response:
        await read_response_body(self, response)
        return response

    async def arrives(self, mark: bytes, within: float = PATIENCE) -> None:
        """Wait until ``mark`` is among the bytes that came and were not read."""
        async with asyncio.timeout(within):
            while mark not in self.buffer:
                await self._more()

    async def ask(self, method: str, target: str | bytes, fields: FieldsLike = (), body: bytes = b"", **more: Any) -> Response:
        """One exchange."""
        await self.send(request_bytes(method, target, fields, body, **more))
        return await self.response(method)

    async def leave(self) -> None:
        """Close, and wait until the socket is gone on our side."""
        self.close()
        async with asyncio.timeout(PATIENCE):
            await self.lost.wait()


@contextlib.asynccontextmanager
async def connect(where: Any, *, tls: ssl.SSLContext | None = None, server_name: str = "localhost") -> AsyncIterator[Client]:
    """To a gateway (its ``url``), to an url, or to a port on loopback."""
    loop = asyncio.get_running_loop()
    url = f"http://127.0.0.1:{where}" if isinstance(where, int) else where if isinstance(where, str) else where.url
    if url.startswith("unix:"):
        _, client = await loop.create_unix_connection(Client, url.removeprefix("unix:"))
    else:
        parts = urlsplit(url)
        name = server_name if tls else None
        _, client = await loop.create_connection(Client, parts.hostname, parts.port, ssl=tls, server_hostname=name)
    try:
        yield client
    finally:
        if not client.lost.is_set():
            client.transport.abort()
            async with asyncio.timeout(PATIENCE):
                await client.lost.wait()


async def ask(
    where: Any, method: str, target: str | bytes, fields: FieldsLike = (), body: bytes = b"", **more: Any
) -> Response:
    """One exchange on a connection of its own."""
    async with connect(where) as client:
        return await client.ask(method, target, fields, body, **more)
