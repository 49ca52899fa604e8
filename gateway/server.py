"""The listener's side: connections that count every byte, refuse malformed heads as problems, and never quote them.

Theory of operation. aiohttp's low-level server calls one handler; each connection is a :class:`Connection`. It meters what
arrives (:class:`gateway.wire.MessageMeter`) and takes what left from the response writer's own count, so that per exchange the
four figures (head and body, up and down) add up to exactly what the socket carried. Figures are settled when an exchange ends,
and once more when its upload ends later or the connection is lost. What the HTTP parser refuses never reaches a middleware:
:meth:`Connection.handle_error` answers it here. A handler is cancelled when its client leaves; that stops the upstream.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_writer import HttpVersion11
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from gateway.aiohttp_seams import GatewayRequest
from gateway.wire import MessageMeter, Tally
from middleware.body import Body
from middleware.exchange import EXCHANGE, Exchange, exchange_of
from middleware.problems import Problem, internal_response, problem_response

log = logging.getLogger("packhorse.server")

_MOST_FIELDS = 4096
_VERSIONS = ((1, 0), (1, 1))


class WireRecorder(Protocol):
    """Where the connection reports to. Methods return at once and never raise."""

    def crossed(self, exchange: Exchange | None, direction: str, head: int, body: int) -> None:
        """Bytes that crossed the client's link. ``exchange`` is None where no request could be made of them."""
        ...

    def malformed(self, status: int) -> None:
        """A request that the HTTP parser refused."""
        ...


class Unrecorded:
    """A recorder for a listener whose bytes are nobody's link."""

    def crossed(self, exchange: Exchange | None, direction: str, head: int, body: int) -> None:
        """Nothing is kept."""

    def malformed(self, status: int) -> None:
        """Nothing is kept."""


class Connection(RequestHandler):
    """One client connection."""

    __slots__ = ("_head_limit", "_meter", "_owners", "_poisoned", "_recorder")

    def __init__(self, *args: Any, recorder: WireRecorder, head_limit: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recorder = recorder
        self._meter = MessageMeter(head_limit)
        self._owners: list[tuple[Tally, Exchange | None]] = []
        self._poisoned = False

    # Arriving

    def data_received(self, data: bytes) -> None:
        """Count, then parse. A head over the limit is cut short by a byte no parser takes."""
        if data and not (self._force_close or self._close):
            self._meter.feed(data)
            if self._meter.head_too_large and not self._poisoned:
                self._poisoned = True
                data = b"\0\r\n\r\n"
            elif self._poisoned:
                return
        waiting = len(self._messages)
        super().data_received(data)
        if len(self._messages) > waiting and isinstance(self._messages[-1][0], _ErrInfo):
            self._break_upload()

    def _break_upload(self) -> None:
        """What the parser refused was a body's framing: tell whoever reads the body, which aiohttp does not."""
        request = self._current_request
        if request is not None and not request.content.is_eof():
            request.content.set_exception(web.RequestPayloadError("the body's framing is malformed"))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Settle what arrived for exchanges that will not end in the ordinary way."""
        current = self._current_request
        exchange = current.get(EXCHANGE) if current is not None else None
        if current is not None and current.writer.output_size:  # a 100 or a 101: no response will be finished
            self._recorder.crossed(exchange, "down", current.writer.output_size, 0)
        super().connection_lost(exc)
        self._settle_uploads(exchange, lost=True)

    def close_if_idle(self) -> None:
        """Close it unless an exchange is under way; that one closes it when it ends."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self.force_close()

    # Answering

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what the parser refused, or to a fault of our own that nothing caught."""
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionError("nothing can be answered any more: the connection is closed")
        if status == 500:
            log.error("a fault of the gateway's own outside every middleware: %s", type(exc).__name__)
            response = internal_response()
        else:
            response = problem_response(self._refusal(exc))
            self._recorder.malformed(response.status)
        response.force_close()
        return response

    def _refusal(self, exc: BaseException | None) -> Problem:
        if self._poisoned or isinstance(exc, LineTooLong):
            return Problem("headers-too-large", "the head of the request is over the limit (limits.headers)")
        return Problem("bad-request", "the request is not well-formed HTTP/1.1")

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """aiohttp would log the offending bytes."""
        fault = kw.get("exc_info")
        log.debug("connection closed: %s", type(fault).__name__ if fault is not None else "error")

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write the response out and settle what it cost."""
        writer = request.writer
        finished = False
        if not resp.prepared and getattr(self._manager, "draining", False):
            resp.force_close()
        try:
            result = await super().finish_response(request, resp, start_time)
            finished = not result[1]
            return result
        finally:
            exchange = request.get(EXCHANGE)
            body = _body_sent(resp) if writer.output_size else 0
            self._recorder.crossed(exchange, "down", writer.output_size - body, body)
            self._settle_uploads(exchange, lost=False)
            if not finished:
                await _let_go(resp)
                self._cut(resp)

    def _cut(self, resp: web.StreamResponse) -> None:
        """End a broken response so that it looks broken: by a reset where only the end of the stream would end it."""
        framed = "Content-Length" in resp.headers or "Transfer-Encoding" in resp.headers
        if self.transport is not None and not framed:
            self.transport.abort()

    def _settle_uploads(self, exchange: Exchange | None, *, lost: bool) -> None:
        """Report what arrived: the oldest message belongs to ``exchange``, earlier ones to whoever they were settled with."""
        tallies = self._meter.tallies
        if tallies and (exchange is not None or not lost):
            self._owners.append((tallies.popleft(), exchange))
        if lost:
            self._owners.extend((tally, exchange) for tally in tallies)
            tallies.clear()
        for tally, owner in self._owners:
            head, body = tally.unreported()
            if head or body:
                self._recorder.crossed(owner, "up", head, body)
        self._owners = [(tally, owner) for tally, owner in self._owners if not tally.complete and not lost]

    def tunnelled(self, exchange: Exchange, sent: int) -> None:
        """From now on this connection is a tunnel: what arrives is body. ``sent`` further bytes of it went down."""
        self._meter.tunnel()
        self._recorder.crossed(exchange, "down", 0, sent)


def _body_sent(resp: web.StreamResponse) -> int:
    body = resp.body if isinstance(resp, web.Response) else None
    if isinstance(body, Body):
        return body.sent
    if isinstance(body, (bytes, bytearray)) and not resp._must_be_empty_body:
        return len(body)
    return 0


async def _let_go(resp: web.StreamResponse) -> None:
    body = resp.body if isinstance(resp, web.Response) else None
    if isinstance(body, Body):
        await body.close()


class GatewayServer(web.Server):
    """aiohttp's low-level server with our connections and requests; the handler is one callable that can be swapped."""

    def __init__(
        self, handler: Callable[[Any], Awaitable[web.StreamResponse]], *, recorder: WireRecorder, head_limit: int,
        keep_alive: float,
    ) -> None:  # fmt: skip
        super().__init__(handler, request_factory=self._request, handler_cancellation=True)
        self.draining = False
        self._connection_settings: dict[str, Any] = {
            "recorder": recorder, "head_limit": head_limit, "keepalive_timeout": keep_alive or 1e9, "auto_decompress": False,
            "access_log": None, "max_line_size": head_limit, "max_field_size": head_limit, "max_headers": _MOST_FIELDS,
            "lingering_time": 5.0,
        }  # fmt: skip

    def drain(self) -> None:
        """Close idle connections now, and each other one after the answer that is under way on it."""
        self.draining = True
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.close_if_idle()

    def __call__(self) -> RequestHandler:
        """A protocol for a connection just accepted."""
        return Connection(self, loop=self._loop, **self._connection_settings)

    def _request(
        self, message: Any, payload: Any, protocol: RequestHandler, writer: Any, task: "asyncio.Task[None]"
    ) -> web.BaseRequest:
        version = message.version
        if version not in _VERSIONS:
            message = message._replace(version=HttpVersion11, should_close=True)
        request = GatewayRequest(message, payload, protocol, writer, task, self._loop, client_max_size=0)
        if version not in _VERSIONS:
            exchange_of(request).refused = Problem("bad-request", "HTTP/1.1 and HTTP/1.0 are served here", status=505)
        elif "Expect" in message.headers and version >= (1, 1):
            exchange_of(request).expects = True
        return request
