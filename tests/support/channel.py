"""One end of a socket for tests: every byte counted, the peer's leaving seen at once, and nothing parsed behind our back.

Theory of operation. A Channel reads always (unless paused), so a FIN or RST is noticed when it arrives and not when somebody
next reads; bytes wait in ``buffer`` until a reader takes them. It knows no HTTP: messages.py reads that from it.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

PATIENCE = 10.0
"""Seconds any single wait may take: a test that hangs says where."""


class Ended(Exception):
    """The peer closed before what was waited for had come; ``partial`` is what had."""

    def __init__(self, partial: bytes) -> None:
        super().__init__(f"the peer closed after {partial[-200:]!r}")
        self.partial = partial


class Channel(asyncio.Protocol):
    """See the module. ``sent`` and ``received`` count the bytes of this socket (of the TLS payload, where there is TLS)."""

    def __init__(self, on_connect: "Callable[[Channel], None] | None" = None) -> None:
        self.buffer = bytearray()
        self.transcript = bytearray()
        """All that ever arrived."""
        self.sent = 0
        self.received = 0
        self.opened_at = 0.0
        self.closed_at: float | None = None
        """time.monotonic() when the peer's FIN or RST was seen."""
        self.how_closed: Literal["fin", "rst"] | None = None
        self.closed = asyncio.Event()
        self.lost = asyncio.Event()
        self.transport: Any = None
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._on_connect = on_connect

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.opened_at = time.monotonic()
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._on_connect is not None:
            self._on_connect(self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.buffer += data
        self.transcript += data
        self._news.set()

    def eof_received(self) -> bool:
        self._gone("fin")
        return self.transport.get_extra_info("ssl_object") is None  # stay half open

    def connection_lost(self, error: BaseException | None) -> None:
        self._gone("rst" if error is not None else "fin")
        self.lost.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _gone(self, how: Literal["fin", "rst"]) -> None:
        if self.closed_at is None:
            self.closed_at = time.monotonic()
        if self.how_closed != "rst":
            self.how_closed = how
        self.closed.set()
        self._news.set()

    # reading
    async def _more(self) -> None:
        """Wait for bytes or the end."""
        if self.closed.is_set():
            raise Ended(bytes(self.buffer))
        self._news.clear()
        async with asyncio.timeout(PATIENCE):
            await self._news.wait()

    async def until(self, mark: bytes) -> bytes:
        """Bytes up to and with ``mark``."""
        start = 0
        while (at := self.buffer.find(mark, start)) < 0:
            start = max(0, len(self.buffer) - len(mark) + 1)
            await self._more()
        return self.take(at + len(mark))

    async def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            await self._more()
        return self.take(count)

    async def some(self) -> bytes:
        """At least one byte, or b"" at the end."""
        while not self.buffer:
            if self.closed.is_set():
                return b""
            await self._more()
        return self.take(len(self.buffer))

    async def to_end(self) -> bytes:
        """All until the peer closes."""
        async with asyncio.timeout(PATIENCE):
            await self.closed.wait()
        return self.take(len(self.buffer))

    def take(self, count: int) -> bytes:
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    # writing
    async def send(self, *pieces: bytes) -> None:
        """Each piece a write of its own; waits while the peer does not read."""
        for piece in pieces:
            if self.transport.is_closing():
                raise ConnectionResetError("this side is closed")
            self.sent += len(piece)
            self.transport.write(piece)
            await self._writable.wait()

    async def trickle(self, data: bytes) -> None:
        """A segment a byte, as far as the system allows: the loop turns between them."""
        for index in range(len(data)):
            await self.send(data[index : index + 1])
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Half close: we say no more."""
        self.transport.write_eof()

    def close(self) -> None:
        """FIN once everything is written."""
        self.transport.close()

    def reset(self) -> None:
        """RST."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0 and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def pause(self) -> None:
        """Read nothing any more, so that the peer feels back-pressure."""
        self.transport.pause_reading()

    def resume(self) -> None:
        self.transport.resume_reading()

    async def gone(self, within: float = PATIENCE) -> float:
        """Wait until the peer has closed; the moment it did."""
        async with asyncio.timeout(within):
            await self.closed.wait()
        assert self.closed_at is not None
        return self.closed_at


async def eventually(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], within: float = PATIENCE) -> Any:
    """The first true value of ``condition``, asked again and again; for what no event tells (counters, /readyz)."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value or time.monotonic() > deadline:
            assert value, "it never came true"
            return value
        await asyncio.sleep(0.02)
