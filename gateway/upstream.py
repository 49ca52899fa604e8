"""Towards the upstream: the innermost handler of every route.

Theory of operation. A :class:`Forwarder` belongs to one route. It sends what ``exchange.outgoing`` and the request body are,
and answers with a response whose body is still arriving (:class:`Arriving`). It never follows redirects, keeps no cookies,
reads no environment proxies, adds no fields but Host and framing, and repeats a request only as contract 6 allows: a safe
method, once, where a reused connection closed before any byte of the answer. Whatever goes wrong becomes a Problem with a
fixed sentence, never with a URL, a field or an exception's text in it: those hold secrets.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from functools import lru_cache

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from config.schema import Route, Timeouts
from gateway.aiohttp_seams import FRESH, UNTYPED, OutgoingRequest, can_be_sent, exact_url, send, wait_between_reads
from gateway.clients import Pool
from gateway.target import split_target
from gateway.tunnel import carry, upgrade_fields, wants_upgrade
from gateway.upstream_address import upstream_address
from middleware.body import Body
from middleware.exchange import Exchange, exchange_of, send_continue
from middleware.problems import Problem
from middleware.uploads import arriving

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""RFC 9110 9.2.1."""
NO_BODY = frozenset({204, 304})
_EVENTS = "text/event-stream"
_TARGETS = 1024
"""Targets a route remembers the URL of."""


class Forwarder:
    """The proxy handler of one route; ``pool`` has the connections the route's upstream needs."""

    def __init__(self, route: Route, timeouts: Timeouts, pool: Pool, body_limit: int) -> None:
        address = upstream_address(route)
        self._base, self._host = address.base, address.host
        self._strip = route.match.rstrip("/") if route.strip_prefix else ""
        self._server_name = route.tls.server_name
        self._pool = pool
        self.url = lru_cache(_TARGETS)(self._url)
        self._idle = timeouts.idle
        self._limit = body_limit
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=timeouts.connect or None, sock_connect=timeouts.connect or None,
            sock_read=timeouts.first_byte or None,
        )  # fmt: skip

    def _url(self, raw_target: str) -> URL:
        """Where a request goes: the upstream's own path, then the client's target, byte for byte."""
        target = split_target(raw_target)
        path = target.path[len(self._strip) :] or "/" if self._strip else target.path
        if not path.startswith("/"):
            path = "/" + path
        return exact_url(self._base, path + target.query)

    def head(self, exchange: Exchange) -> CIMultiDict[str]:
        """The fields to send: Host is the upstream's (RFC 9110 7.2)."""
        headers = exchange.outgoing
        headers["Host"] = self._host
        names = {name for name, _ in headers.items()}
        if len(names) != len({name.lower() for name in names}):
            # X-A beside x-a: the client session would take the second for a replacement of the first
            return CIMultiDict((name.lower(), value) for name, value in headers.items())
        return headers

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Send the request on and answer with what comes, as it comes."""
        exchange = exchange_of(request)
        exchange.sent_upstream_at = time.perf_counter()
        upload = Upload(request, exchange, self._limit, self._idle)
        upgrading = wants_upgrade(request)
        if upgrading:
            upgrade_fields(exchange.outgoing)
        answer = await self._exchange(request, exchange, upload)
        exchange.upstream_seconds = time.perf_counter() - exchange.sent_upstream_at
        if answer.status < 100 or _head_size(answer) > self._pool.head_limit or not can_be_sent(answer.reason, answer.headers):
            answer.close()
            exchange.upstream_error = "malformed"
            raise Problem("upstream-cut", "the upstream's answer is not HTTP, or its head is over the limit (limits.headers)")
        if answer.status == 101:
            if upgrading:
                return await carry(request, exchange, answer)
            answer.close()
            exchange.upstream_error = "malformed"
            raise Problem("upstream-cut", "the upstream switched protocols without being asked to")
        return self._relay(request, exchange, answer)

    async def _exchange(self, request: web.Request, exchange: Exchange, upload: "Upload") -> aiohttp.ClientResponse:
        loop, pool = asyncio.get_running_loop(), self._pool
        attempts = 2 if request.method in SAFE and not upload.present else 1
        for attempt in range(attempts):
            FRESH.set(False)
            try:
                outgoing = OutgoingRequest(
                    request.method,
                    self.url(request.raw_path),
                    self.head(exchange),
                    upload.data(),
                    loop,
                    pool.trust,
                    self._server_name,
                )
                return await send(pool.connector, outgoing, self._timeout, pool.head_limit)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                again = attempt + 1 < attempts and not FRESH.get() and not isinstance(error, aiohttp.ClientConnectorError)
                if not again:
                    raise self._failed(error, exchange, upload) from error
            except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError) as error:
                raise self._failed(error, exchange, upload) from error
        raise AssertionError("unreachable")

    def _failed(self, error: BaseException, exchange: Exchange, upload: "Upload") -> Problem:
        if upload.problem is not None:
            return upload.problem
        reason, problem = _translate(error)
        exchange.upstream_error = reason
        return problem

    def _relay(self, request: web.Request, exchange: Exchange, answer: aiohttp.ClientResponse) -> web.Response:
        headers = answer.headers  # the response makes its own copy
        if request.method == "HEAD" or answer.status in NO_BODY:
            answer.release()
            response = web.Response(status=answer.status, reason=answer.reason, headers=headers)
        else:
            wait_between_reads(answer, self._idle)
            body = Body(Arriving(answer, exchange), interruptible=True)
            if headers.get("Content-Type", "").lower().startswith(_EVENTS):
                body.tail = b""
            response = web.Response(status=answer.status, reason=answer.reason, headers=headers, body=body)
        if "Content-Type" not in answer.headers:
            response[UNTYPED] = True
            response.headers.popall("Content-Type", None)
        return response


def _head_size(answer: aiohttp.ClientResponse) -> int:
    return sum(len(name) + len(value) + 4 for name, value in answer.raw_headers)


class Upload:
    """A request body on its way up. The client is told to go on (100) when the upstream connection wants the first byte."""

    def __init__(self, request: web.Request, exchange: Exchange, limit: int, idle: float) -> None:
        self._request = request
        self._exchange = exchange
        self._limit = limit
        self._idle = idle
        self.present = exchange.request_body is not None or request.body_exists
        self.problem: Problem | None = None
        """What was wrong with the upload; takes precedence over what the broken-off sending looks like."""

    def data(self) -> bytes | AsyncIterator[bytes] | None:
        """What to hand to the client session: bytes where all is here already, else the pieces as they come."""
        whole = self._exchange.request_body
        if whole is not None:
            return whole or None
        if not self.present:
            return None
        content = self._request.content
        if not content.is_eof() or content.exception() is not None:
            return self._pieces()
        body = content.read_nowait()
        if len(body) > self._limit:
            raise self._too_large()
        self._copied([body], len(body))
        return body

    def _copied(self, pieces: list[bytes], size: int) -> None:
        """The whole upload was sent on: leave a copy where one was asked for."""
        if 0 < size <= self._exchange.copy_upload:
            self._exchange.request_decoded = b"".join(pieces)

    def _too_large(self) -> Problem:
        return Problem("too-large", f"the request body is over {self._limit} bytes (limits.request)")

    async def _pieces(self) -> AsyncIterator[bytes]:
        await send_continue(self._request)
        sent, copy = 0, self._exchange.copy_upload
        copied: list[bytes] = []
        try:
            async for piece in arriving(self._request, self._idle):
                sent += len(piece)
                if sent > self._limit:
                    raise self._too_large()
                if sent <= copy:
                    copied.append(piece)
                yield piece
            self._copied(copied, sent)
        except Problem as problem:
            self.problem = problem
            raise


class Arriving:
    """The pieces of an upstream's answer. A wait that is cancelled loses nothing; closing it lets the upstream go at once."""

    def __init__(self, answer: aiohttp.ClientResponse, exchange: Exchange) -> None:
        self._answer = answer
        self._exchange = exchange
        self._done = False

    def __aiter__(self) -> "Arriving":
        return self

    def ready(self) -> bool:
        """Whether the first piece is here."""
        content = self._answer.content
        return content.total_bytes > 0 or content.is_eof()

    def arrived(self, read: list[bytes], limit: int) -> bool:
        """Move the whole answer to ``read`` if all of it is here and within ``limit`` bytes; nothing otherwise."""
        content = self._answer.content
        if not content.is_eof() or content.exception() is not None or content.total_bytes > limit:
            return False
        read.append(content.read_nowait())
        self._done = True
        self._answer.release()
        return True

    async def __anext__(self) -> bytes:
        try:
            piece = await self._answer.content.readany()
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError) as error:
            self._done = True
            self._answer.close()
            self._exchange.upstream_error, problem = _translate(error, streaming=True)
            raise problem from error
        if not piece:
            self._done = True
            self._answer.release()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Drop the connection unless the answer is complete."""
        if not self._done:
            self._done = True
            if self._answer.content.at_eof():
                self._answer.release()
            else:
                self._answer.close()


def _translate(error: BaseException, *, streaming: bool = False) -> tuple[str, Problem]:
    """Reason for the counters, and the Problem."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "connect-timeout", Problem("upstream-timeout", "no connection to the upstream in time (timeouts.connect)")
    if isinstance(error, TimeoutError):
        which = "idle" if streaming else "first_byte"
        return f"{which.replace('_', '-')}-timeout", Problem("upstream-timeout", f"the upstream fell silent (timeouts.{which})")
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError)):
        return "tls", Problem("upstream-unreachable", "the upstream's certificate does not verify")
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return "tls", Problem("upstream-unreachable", "no TLS connection to the upstream could be made")
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect", Problem("upstream-unreachable", "no connection to the upstream could be made")
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, HttpProcessingError)) and not streaming:
        return "malformed", Problem(
            "upstream-cut", "the upstream's answer is not HTTP, or its head is over the limit (limits.headers)"
        )
    if isinstance(error, (aiohttp.InvalidURL, ValueError)):
        return "malformed", Problem("bad-request", "the request target or a field cannot be sent on")
    return "cut", Problem("upstream-cut", "the upstream closed the connection before its answer was complete")
