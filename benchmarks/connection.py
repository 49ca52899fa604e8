"""One connection of the load: asks, waits for the whole answer, asks again. As little work as an honest client can do."""

import asyncio
import re
from collections.abc import Callable
from time import perf_counter
from typing import cast

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_ROOM = 2**20
"""Bytes; every answer is smaller."""

Asked = Callable[["Connection"], bytes | None]
"""The next request of a connection, or None where it has none left."""
Answered = Callable[["Connection", float, bytes, memoryview], None]
"""An answer is here: seconds since it was asked for, its head, its body as it crossed (framing included where chunked)."""


class Connection(asyncio.BufferedProtocol):
    """Keeps one request under way. ``turn`` and ``session`` are the caller's to use."""

    def __init__(self, ask: Asked, answered: Answered, failed: Callable[[str], None]) -> None:
        self.turn = 0
        self.session = b""
        self.fresh = True
        """Whether the session has asked for nothing yet."""
        self._ask, self._answered, self._failed = ask, answered, failed
        self._buffer = bytearray(_ROOM)
        self._view = memoryview(self._buffer)
        self._transport: asyncio.Transport | None = None
        self._filled = 0
        self._head: bytes | None = None
        self._position = 0
        self._end = -1
        self._asked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._next()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the event loop reads to."""
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """More of the answer is here."""
        self._filled += nbytes
        if self._head is None and not self._begin():
            return
        if self._end < 0 and not self._last_chunk():
            return
        if self._filled < self._end:
            return
        seconds = perf_counter() - self._asked_at
        head, start = self._head, len(self._head or b"") + 2
        assert head is not None
        self._answered(self, seconds, head, self._view[start : self._end])
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody should hang up on the load."""
        self._failed(f"a connection was lost: {exc or 'closed by the server'}")

    def close(self) -> None:
        """No more requests."""
        self._failed = _ignore
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> None:
        self._filled, self._head, self._end = 0, None, -1
        request = self._ask(self)
        if request is None:
            self.close()
            return
        assert self._transport is not None
        self._asked_at = perf_counter()
        self._transport.write(request)

    def _begin(self) -> bool:
        """Read the head; False while it is not whole."""
        end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if end < 0:
            return False
        head = self._head = bytes(self._view[: end + 2])
        if not head.startswith(b"HTTP/1.1 200 "):
            self._refuse(f"an answer was {head[:40]!r}")
        length = _LENGTH.search(head)
        if length:
            self._end = end + 4 + int(length[1])
        elif _CHUNKED.search(head):
            self._position = end + 4
        else:
            self._refuse("an answer came without a length")
        if self._end > _ROOM:
            self._refuse("an answer is larger than any should be")
        return True

    def _last_chunk(self) -> bool:
        """Walk the chunks that are here; True once the last of them is."""
        while True:
            line = self._buffer.find(b"\r\n", self._position, self._filled)
            if line < 0:
                return False
            size = int(self._buffer[self._position : line], 16)
            after = line + 2 + size + 2
            if size == 0:
                self._end = after
                return True
            if after > self._filled:
                return False
            self._position = after

    def _refuse(self, why: str) -> None:
        self._failed(why)
        self._end = self._filled
        self.close()


def unchunked(body: bytes) -> bytes:
    """The content of a chunked body."""
    parts: list[bytes] = []
    position = 0
    while True:
        line = body.index(b"\r\n", position)
        size = int(body[position:line], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[line + 2 : line + 2 + size])
        position = line + 2 + size + 2


def _ignore(_why: str) -> None:
    """What happens to a connection that is no longer used does not matter."""
