"""The few places where aiohttp's private names are touched, each with its reason and a test (tests/gateway/test_aiohttp_seams.py).

pyproject pins aiohttp's minor version for this file's sake. Nothing else in the tree may reach into aiohttp.
"""

import asyncio
import functools
import re
import socket
import ssl
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp import ClientRequest, ClientResponse, TCPConnector, UnixConnector, http, http_writer, payload, web
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import TimerNoop
from aiohttp.http_writer import HttpVersion11
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

_READ_BUFFER = 2**18
_MOST_FIELDS = 4096
_NO_TYPE = CIMultiDict([("Content-Type", None)])
"""The one field aiohttp makes up that a request without it must go without."""

_native = http_writer._serialize_headers
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _serialize_opaque(status_line: str, headers: "CIMultiDict[str]") -> bytes:
    """Head bytes that are not UTF-8 reach the other side unchanged (RFC 9110 5.5: obs-text is opaque).

    aiohttp reads them as surrogate escapes; its C serialiser then drops those. All others still go through it.
    """
    if status_line.isascii() and "".join(headers.values()).isascii():
        return _native(status_line, headers)
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items())]
    if any(_FORBIDDEN.search(line) for line in lines):
        raise ValueError("a control character in a head")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def can_be_sent(reason: str | None, headers: "CIMultiDictProxy[str]") -> bool:
    """Whether a head holds no control character: the parser lets DEL and some others in, the serialiser does not let them out."""
    return not _FORBIDDEN.search("".join((reason or "", *headers.keys(), *headers.values())))


def install() -> None:
    """Put the head serialiser in place. Idempotent; the process must be ours alone."""
    http_writer._serialize_headers = _serialize_opaque


class OutgoingRequest(ClientRequest):
    """A request that is exactly what it is given: no default fields, no cookies, no credentials from anywhere, no proxy.

    aiohttp's own would add Accept, Accept-Encoding and User-Agent, upper-case the method, and copy the fields three times.
    """

    def __init__(
        self, method: str, url: URL, headers: "CIMultiDict[str]", data: Any, loop: asyncio.AbstractEventLoop,
        trust: ssl.SSLContext | bool, server_name: str | None,
    ) -> None:  # fmt: skip
        self.original_url = self.url = url
        self.method = method
        self.headers = headers
        self.version = HttpVersion11
        self.loop = loop
        self.chunked = self.compress = self.length = None
        self.response_class = ClientResponse
        self.server_hostname = server_name
        self.proxy = self.proxy_auth = self.proxy_headers = None
        self._skip_auto_headers = _NO_TYPE
        self._session = None  # type: ignore[assignment]
        self._timer = TimerNoop()
        self._ssl = trust
        self._traces = []
        self.update_body_from_data(data)
        if data is not None:
            self.update_transfer_encoding()

    async def write_bytes(self, writer: Any, conn: Any, content_length: int | None = None) -> None:
        """Send the head at once where the body is still to come: an upstream may refuse before it has seen a byte of it."""
        if not isinstance(self._body, payload.BytesPayload):
            with suppress(ConnectionError):  # what follows meets the same error, and tells whoever waits
                writer.send_headers()
        await super().write_bytes(writer, conn, content_length)


async def _clean_connection(
    connector: aiohttp.BaseConnector, request: OutgoingRequest, timeout: aiohttp.ClientTimeout
) -> aiohttp.connector.Connection:
    """A connection on which nothing is waiting to be read: what an upstream said while nobody asked would be taken for the answer
    to the next request (response queue poisoning). aiohttp's pool looks at that only when a connection comes back.
    """
    try:
        while True:
            connection = await connector.connect(request, traces=[], timeout=timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()
    except TimeoutError as error:
        raise aiohttp.ConnectionTimeoutError("connect") from error


async def send(
    connector: aiohttp.BaseConnector, request: OutgoingRequest, timeout: aiohttp.ClientTimeout, head_limit: int
) -> ClientResponse:
    """One attempt: connect, send, read the head. Undecoded, not redirected, never repeated (aiohttp's session repeats GET and
    PUT after bytes were sent; contract 6 is narrower). The body stays with the response. Raises what aiohttp's client raises.
    """
    connection = await _clean_connection(connector, request, timeout)
    try:
        protocol = connection.protocol
        assert protocol is not None
        protocol.set_response_params(
            timer=request._timer, skip_payload=request.method == "HEAD", read_until_eof=True, auto_decompress=False,
            read_timeout=timeout.sock_read, read_bufsize=_READ_BUFFER, timeout_ceil_threshold=5,
            max_line_size=head_limit, max_field_size=head_limit, max_headers=_MOST_FIELDS,
        )  # fmt: skip
        response = await request.send(connection)
        try:
            await response.start(connection)
        except BaseException:
            response.close()
            raise
    except BaseException:
        connection.close()
        raise
    return response


FRESH: ContextVar[bool] = ContextVar("fresh", default=False)
"""Whether the upstream connection of the request being sent was made for it (rather than taken from the pool)."""


class UpstreamProtocol(ResponseHandler):
    """Two faults of upstreams that aiohttp's client does not survive.

    What follows a bodiless answer (204, 304), as when a server ends a 204 with the last chunk of a chunked body (aiohttp#5106),
    makes its parser lose the answer: we never pipeline, so what follows is nobody's, and the connection is not used again.
    A body whose framing turns out malformed fails the connection, but whoever reads the body is not told and waits on.
    """

    def data_received(self, data: bytes) -> None:
        """Cut a bodiless answer's head out; break a body that cannot be framed."""
        if data[9:12] in (b"204", b"304") and data.startswith(b"HTTP/1."):
            end = data.find(b"\r\n\r\n") + 4
            if 4 <= end < len(data):
                data = data[:end]
                self.force_close()
        super().data_received(data)
        broken = self.exception()
        if broken is not None and self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(aiohttp.ClientPayloadError("the body's framing is malformed"))


class Tcp(TCPConnector):
    """Says in :data:`FRESH` when it opened a connection: only a reused one may be retried on."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory = functools.partial(UpstreamProtocol, loop=self._loop)  # type: ignore[assignment]

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        FRESH.set(True)
        return await super()._create_connection(*args, **kwargs)


class Unix(UnixConnector):
    """The same for unix sockets."""

    def __init__(self, path: str, **settings: Any) -> None:
        super().__init__(path, **settings)
        self._factory = functools.partial(UpstreamProtocol, loop=self._loop)  # type: ignore[assignment]

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        FRESH.set(True)
        return await super()._create_connection(*args, **kwargs)


def exact_url(base: str, target: str) -> URL:
    """The URL of a request whose target on the wire is ``target`` to the byte: yarl drops an empty query's question mark."""
    url = URL(base + target, encoded=True)
    path = URL(base, encoded=True).raw_path.rstrip("/") + target
    if url.raw_path_qs != path:
        url._cache["raw_path_qs"] = path
    return url


def wait_between_reads(response: aiohttp.ClientResponse, seconds: float) -> None:
    """From now on the longest silence is ``seconds``: the limit until the first byte is another one."""
    connection = response.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.read_timeout = seconds or None
        connection.protocol.start_timeout()


UNTYPED = web.ResponseKey("packhorse-untyped", bool)
"""Set on a relayed response that came without a Content-Type: the server must not make one up."""


class GatewayRequest(web.Request):
    """A request whose response keeps the upstream's fields: aiohttp would add Content-Type and Server."""

    async def _prepare_hook(self, resp: web.StreamResponse) -> None:
        if resp.get(UNTYPED):
            resp.headers.popall("Content-Type", None)
        if resp.headers.get("Server") == http.SERVER_SOFTWARE:
            del resp.headers["Server"]


def raw_ends(response: aiohttp.ClientResponse) -> "tuple[Any, Any]":
    """Protocol and transport under a 101 response."""
    connection = response.connection
    assert connection is not None
    assert connection.protocol is not None
    return connection.protocol, connection.transport


def is_full(protocol: Any) -> bool:
    """Whether a connection has more waiting to be written than it should."""
    return bool(protocol._paused)


async def drained(protocol: Any) -> None:
    """Return when a full connection takes more again. Raises ConnectionError where it is lost."""
    await protocol._drain_helper()


def bound_port(site: web.BaseSite) -> int:
    """The port a TCP site really has, for address port 0; 0 for a unix socket."""
    sockets = getattr(site._server, "sockets", None) or ()
    return int(sockets[0].getsockname()[1]) if sockets and sockets[0].family != socket.AF_UNIX else 0
