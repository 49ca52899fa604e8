"""The body of a response: whole, or still arriving.

Theory of operation. A Body is *waiting* until the server writes it, then *ended* exactly once: delivered (``error`` is None),
or broken off by the client (cancellation, a connection error while writing) or by the source (any other exception). Whoever
wants to know adds a callback to ``on_end``; callbacks run in order, must not raise and must not wait. A Body that was never
written ends as such when it is closed. The source is closed whenever the
Body ends, so an upstream is let go at once when the client leaves. A Body knows nothing of codings, sessions or counters.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

_TAIL = 512

OnEnd = Callable[[BaseException | None], None]


class BodyCut(ConnectionError):
    """The source broke off after the head was out: the server closes the connection without a proper end."""


class NeverWritten(ConnectionError):
    """The body was let go before anybody wrote it: the client left, or another answer took its place."""


class Body(payload.Payload):
    """A response body that counts what it wrote and says how it ended.

    ``source`` is the whole content, or an asynchronous iterator of pieces. An iterator whose ``__anext__`` may be cancelled
    and called again without losing anything says so with ``interruptible``; generators do not survive that.
    """

    def __init__(self, source: bytes | AsyncIterator[bytes], *, interruptible: bool = False) -> None:
        super().__init__(source, content_type="application/octet-stream")
        self.content: bytes | None = source if isinstance(source, bytes) else None
        self._source: AsyncIterator[bytes] | None = None if isinstance(source, bytes) else source
        self._interruptible = interruptible
        self._size = None if self.content is None else len(self.content)
        self.sent = 0
        """Content bytes handed to the connection so far."""
        self.tail: bytes | None = None
        """The last bytes sent, where somebody asked for them by setting it to ``b""``."""
        self.on_end: list[OnEnd] = []
        self._ended = False

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The content as text, where it is whole."""
        if self.content is None:
            raise TypeError("the body is still arriving")
        return self.content.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write it out; called by the server, once."""
        try:
            if self.content is not None:
                await writer.write(self.content)
                self.sent = len(self.content)
            elif self._source is not None:
                if not is_ready(self._source):
                    writer.send_headers()  # the client need not wait for the first piece to see the head
                async for piece in self._source:
                    await writer.write(piece)
                    self.sent += len(piece)
                    if self.tail is not None:
                        self.tail = (self.tail + piece)[-_TAIL:]
        except (asyncio.CancelledError, ConnectionError) as gone:
            await self._end(gone)
            raise
        except Exception as broken:
            await self._end(broken)
            raise BodyCut("the source of the body broke off") from broken
        await self._end(None)

    async def _end(self, error: BaseException | None) -> None:
        if self._ended:
            return
        self._ended = True
        for callback in self.on_end:
            callback(error)
        await close_source(self._source)

    async def close(self) -> None:
        """Let go of the source; the end of a body that nobody wrote."""
        await self._end(NeverWritten("the body was not written"))

    def take(self) -> AsyncIterator[bytes]:
        """The pieces, for whoever wraps them in a Body of its own; this one is then spent.

        The callbacks are not passed on: wrap and move ``on_end`` yourself.
        """
        self._ended = True
        if self.content is not None:
            return _Whole(self.content)
        assert self._source is not None
        return self._source

    @property
    def interruptible(self) -> bool:
        """Whether waiting for a piece may be cancelled and taken up again."""
        return self._interruptible or self.content is not None


def is_ready(source: Any) -> bool:
    """Whether a source has its first piece already; one that cannot tell has not."""
    ready = getattr(source, "ready", None)
    return ready is not None and bool(ready())


async def close_source(source: Any) -> None:
    """Close an iterator that can be closed; a source that is already broken has nothing to add."""
    aclose = getattr(source, "aclose", None)
    if aclose is not None:
        with suppress(Exception):
            await aclose()


class _Whole:
    """The one piece of a whole body."""

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content

    def __aiter__(self) -> "_Whole":
        return self

    async def __anext__(self) -> bytes:
        if not self._content:
            raise StopAsyncIteration
        content, self._content = self._content, None
        return content


class _Resumable:
    """A source whose pending piece survives a cancelled wait, at the price of a task a piece."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._pending: asyncio.Future[bytes] | None = None

    def __aiter__(self) -> "_Resumable":
        return self

    async def __anext__(self) -> bytes:
        if self._pending is None:
            self._pending = asyncio.ensure_future(anext(self._source))
        await asyncio.wait([self._pending])
        pending, self._pending = self._pending, None
        return pending.result()

    async def aclose(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait([self._pending])
        await close_source(self._source)


class _Resumed:
    """Pieces already read, then the rest of their source."""

    def __init__(self, read: list[bytes], rest: AsyncIterator[bytes]) -> None:
        self._read = read[::-1]
        self._rest = rest

    def __aiter__(self) -> "_Resumed":
        return self

    def ready(self) -> bool:
        return bool(self._read) or is_ready(self._rest)

    async def __anext__(self) -> bytes:
        return self._read.pop() if self._read else await anext(self._rest)

    async def aclose(self) -> None:
        await close_source(self._rest)


async def collect(response: web.Response, *, limit: int, wait: float) -> bytes | None:
    """The whole content of a response, or None where it is larger than ``limit`` bytes or not complete after ``wait`` seconds.

    Nothing is lost either way: the response's body is left as a Body that sends the same bytes. What the source raises while
    it is collected is raised here, before any head is out. After a cancellation the source is closed.
    """
    body = response.body
    if body is None:
        return b""
    if isinstance(body, (bytes, bytearray)):
        return bytes(body)
    if isinstance(body, Body):
        if body.content is not None:
            return body.content
        source, on_end = body.take(), body.on_end
        if not body.interruptible:
            source = _Resumable(source)
    else:
        source, on_end = _Resumable(_pieces(body)), []
    read: list[bytes] = []
    arrived = getattr(source, "arrived", None)
    whole = (arrived is not None and arrived(read, limit)) or await _read_all(source, read, limit, wait)
    if whole:
        await close_source(source)
        replacement = Body(b"".join(read))
    else:
        replacement = Body(_Resumed(read, source), interruptible=True)
    replacement.on_end = on_end
    set_body(response, replacement)
    return replacement.content


async def _read_all(source: AsyncIterator[bytes], read: list[bytes], limit: int, wait: float) -> bool:
    size = 0
    try:
        async with asyncio.timeout(wait):
            async for piece in source:
                read.append(piece)
                size += len(piece)
                if size > limit:
                    return False
            return True
    except TimeoutError:
        return False
    except BaseException:
        await close_source(source)
        raise


async def _pieces(body: payload.Payload) -> AsyncIterator[bytes]:
    """The pieces of any aiohttp payload: of an iterable as they come, else at once."""
    value = getattr(body, "_iter", None)
    if value is None:
        yield await body.as_bytes()
        return
    async for piece in value:
        yield piece


def set_body(response: web.Response, body: Body) -> None:
    """Replace a response's body without touching its fields."""
    had_type = "Content-Type" in response.headers
    response.body = body
    if not had_type:
        response.headers.popall("Content-Type", None)
