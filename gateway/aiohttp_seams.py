"""The few places where aiohttp's private names are touched, each with its reason and a test (tests/gateway/test_aiohttp_seams.py).

pyproject pins aiohttp's minor version for this file's sake. Nothing else in the tree may reach into aiohttp.
"""

import functools
import re
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp import ClientSession, TCPConnector, UnixConnector, http, http_writer, web
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

_native = http_writer._serialize_headers
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _serialize_opaque(status_line: str, headers: "CIMultiDict[str]") -> bytes:
    """Head bytes that are not UTF-8 reach the other side unchanged (RFC 9110 5.5: obs-text is opaque).

    aiohttp reads them as surrogate escapes; its C serialiser then drops those. All others still go through it.
    """
    if status_line.isascii() and all(value.isascii() for value in headers.values()):
        return _native(status_line, headers)
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items())]
    if any(_FORBIDDEN.search(line) for line in lines):
        raise ValueError("a control character in a head")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def install() -> None:
    """Put the head serialiser in place. Idempotent; the process must be ours alone."""
    http_writer._serialize_headers = _serialize_opaque


def never_replay(session: ClientSession) -> ClientSession:
    """Switch off aiohttp's own retry: it repeats GET and PUT after bytes were sent; contract 6 is narrower."""
    session._retry_connection = False
    return session


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
