"""WebSocket upgrades: the handshake is relayed, then bytes are carried both ways untouched.

Each end negotiates its extensions with the other end, not with us, so permessage-deflate and close codes survive (RFC 6455 9.1).

Theory of operation. A tunnel is *asked* (the request goes up with its Upgrade), *refused* (any answer but 101 is relayed as an
ordinary response) or *open*: two :class:`_Pipe` s, each the parser of one connection, write what arrives to the other
connection, and stop reading while that one cannot take more. It ends when either side closes; the other is then closed too, after
what was on its way is written. A client that is lost cancels the handler, which closes the upstream.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from gateway.aiohttp_seams import drained, is_full, raw_ends
from middleware.exchange import Exchange
from middleware.fields import tokens


def wants_upgrade(request: web.Request) -> bool:
    """Whether the request asks to become a WebSocket (RFC 6455 4.1); other upgrades are not taken up (RFC 9110 7.8)."""
    return (
        request.method == "GET"
        and request.headers.get("Upgrade", "").strip().lower() == "websocket"
        and "upgrade" in tokens(request.headers.getall("Connection", ()))
    )


def upgrade_fields(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """The fields of a handshake, after the hop-by-hop ones were taken out."""
    headers["Connection"] = "Upgrade"
    headers["Upgrade"] = "websocket"
    return headers


async def carry(request: web.Request, exchange: Exchange, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Relay the 101 and be a pipe until either side closes."""
    upstream, upstream_transport = raw_ends(answer)
    client, client_transport = request.protocol, request.transport
    response = web.StreamResponse(status=101, reason=answer.reason, headers=CIMultiDict(answer.headers))
    response.force_close()
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    tunnelled = getattr(client, "tunnelled", None)

    def down(size: int) -> None:
        if tunnelled is not None:
            tunnelled(exchange, size)

    try:
        if client_transport is None or client_transport.is_closing():
            raise ConnectionResetError("the client left before the answer came")
        await response.prepare(request)
        down(0)
        upstream.read_timeout = None
        upstream.set_parser(_Pipe(upstream_transport, client, client_transport, closed, down), None)
        to_upstream: Any = _Pipe(client_transport, upstream, upstream_transport, closed, lambda size: None)
        client.set_parser(to_upstream)
        await closed
    finally:
        answer.close()
    return response


class _Pipe:
    """The parser of one connection: hands every byte to the other."""

    def __init__(
        self, source: asyncio.Transport, sink: Any, sink_transport: asyncio.Transport, closed: "asyncio.Future[None]",
        count: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._source = source
        self._sink = sink
        self._sink_transport = sink_transport
        self._closed = closed
        self._count = count
        self._waiting: asyncio.Task[None] | None = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Called by the connection for what arrived."""
        if self._sink_transport.is_closing():
            self.feed_eof()
            return False, b""
        self._sink_transport.write(data)
        self._count(len(data))
        if is_full(self._sink) and self._waiting is None:
            self._source.pause_reading()
            self._waiting = asyncio.get_running_loop().create_task(self._resume())
        return False, b""

    async def _resume(self) -> None:
        try:
            await drained(self._sink)
        except ConnectionError:
            self.feed_eof()
            return
        finally:
            self._waiting = None
        if not self._source.is_closing():
            self._source.resume_reading()

    def feed_eof(self) -> None:
        """Called when the connection is lost."""
        if not self._closed.done():
            self._closed.set_result(None)
