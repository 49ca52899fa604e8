"""Request bodies the gateway must read: whole, within limits, decoded.

What goes upstream stays what the client sent, byte for byte and with its Content-Encoding; only readers see it decoded. A body
whose coding is broken, unknown or too large is refused before anything was forwarded.
"""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientPayloadError, web

from middleware.codings import DECODABLE, CodingError, decode, parse_codings
from middleware.exchange import Exchange, send_continue
from middleware.limits import Limits
from middleware.problems import Problem

ACCEPTED = "zstd, br, gzip, deflate"
"""What a 415 says is decoded here; contract 4's own 415 for bases says more."""
_OFF_LOOP = 256 * 2**10


class UploadReader:
    """Reads request bodies once an exchange. ``idle`` is the longest silence of a client, in seconds.

    ``server_decodes``: the server undoes gzip, deflate, br and zstd itself before the body is read, as aiohttp's does unless it
    runs with ``auto_decompress=False`` (the gateway's own never does).
    """

    def __init__(self, limits: Limits, idle: float, *, server_decodes: bool = False) -> None:
        self._limits = limits
        self._idle = idle
        self._server_decodes = server_decodes

    async def read(self, request: web.Request, exchange: Exchange) -> bytes | None:
        """The decoded body, or None where there is none. Raises Problem: bad-coding, unsupported-coding, too-large."""
        if exchange.request_body is None and request.body_exists:
            codings = parse_codings(request.headers.getall("Content-Encoding", ()))
            self._refuse_unknown(codings)
            await send_continue(request)
            body = exchange.request_body = await self._whole(request)
            coded = codings and not (self._server_decodes and len(codings) == 1)
            exchange.request_decoded = await self._decoded(body, codings) if coded else body
            request._read_bytes = (
                body  # for a handler that reads the request itself, where this is mounted in another application
            )
        return exchange.request_decoded

    def _refuse_unknown(self, codings: tuple[str, ...]) -> None:
        unknown = [coding for coding in codings if coding not in DECODABLE]
        if unknown:
            raise Problem("unsupported-coding", f"this route decodes {ACCEPTED}", fields={"Accept-Encoding": ACCEPTED})
        if len(codings) > self._limits.layers:
            raise Problem("too-large", f"the body has more than {self._limits.layers} codings (limits.layers)")

    async def _whole(self, request: web.Request) -> bytes:
        pieces, size = [], 0
        async for piece in arriving(request, self._idle):
            pieces.append(piece)
            size += len(piece)
            if size > self._limits.request:
                raise Problem("too-large", f"the request body is over {self._limits.request} bytes (limits.request)")
        return b"".join(pieces)

    async def _decoded(self, body: bytes, codings: tuple[str, ...]) -> bytes:
        limits = self._limits
        try:
            if len(body) > _OFF_LOOP // 8:
                return await asyncio.to_thread(
                    decode, body, codings, limit=limits.request, ratio=limits.ratio, layers=limits.layers
                )
            return decode(body, codings, limit=limits.request, ratio=limits.ratio, layers=limits.layers)
        except CodingError as error:
            raise _refusal(error, limits) from error


def _refusal(error: CodingError, limits: Limits) -> Problem:
    if error.kind in ("too_large", "ratio"):
        limit = (
            f"{limits.request} bytes (limits.request)" if error.kind == "too_large" else f"{limits.ratio} times (limits.ratio)"
        )
        return Problem("too-large", f"the request body, decoded, is over {limit}")
    return Problem("bad-coding", f"the request body is not what Content-Encoding says: {error.kind}")


async def arriving(request: web.Request, idle: float) -> AsyncIterator[bytes]:
    """The pieces of a request body as they come; a stalled or malformed one raises Problem."""
    content = request.content
    while True:
        try:
            async with asyncio.timeout(idle or None):
                piece = await content.readany()
        except TimeoutError:
            raise Problem("bad-request", "the request body stopped arriving", status=408) from None
        except (web.RequestPayloadError, ClientPayloadError):
            raise Problem("bad-request", "the request body is not framed as HTTP/1.1 frames one") from None
        if not piece:
            return
        yield piece
