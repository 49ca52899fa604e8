"""How many bytes of each message crossed a connection: head and body apart, exactly.

Theory of operation. A :class:`MessageMeter` reads the same bytes as the HTTP parser and follows message framing alone: a
head ends at its blank line; what follows is Content-Length bytes, or chunks, or nothing. ``body`` is content after transfer
decoding; ``head`` is all the rest, chunk framing and trailers included. It never refuses anything: bytes it cannot follow
(the parser will have refused them) count as head of the message they came in. After :meth:`tunnel` everything is body.
It decides nothing but counts, so a mistake here could never change what is forwarded.
"""

import re
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked[ \t]*\r\n", re.IGNORECASE)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;|\Z)")
_LONGEST_LINE = 64 * 2**10


@dataclass(slots=True)
class Tally:
    """Bytes of one message so far."""

    head: int = 0
    body: int = 0
    complete: bool = False
    reported_head: int = 0
    reported_body: int = 0

    def unreported(self) -> tuple[int, int]:
        """Head and body bytes since the last call."""
        fresh = self.head - self.reported_head, self.body - self.reported_body
        self.reported_head, self.reported_body = self.head, self.body
        return fresh


class _State(Enum):
    HEAD = auto()
    FIXED = auto()
    CHUNK_LINE = auto()
    CHUNK_DATA = auto()
    TRAILER = auto()
    LOST = auto()
    TUNNEL = auto()


class MessageMeter:
    """Counts the messages of one direction of one connection; ``tallies`` holds those not yet settled, oldest first."""

    def __init__(self, head_limit: int) -> None:
        self.tallies: deque[Tally] = deque()
        self.head_too_large = False
        """A head went over the limit before it ended."""
        self._head_limit = head_limit
        self._state = _State.HEAD
        self._started = False
        self._held = b""
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Count what just arrived."""
        position = 0
        while position < len(data):
            position = self._step(data, position)

    def tunnel(self) -> None:
        """From here on there are no messages any more: all is body of the current one."""
        self._state = _State.TUNNEL

    def _current(self) -> Tally:
        if not self.tallies or self.tallies[-1].complete:
            self.tallies.append(Tally())
        return self.tallies[-1]

    def _step(self, data: bytes, position: int) -> int:
        tally = self._current()
        rest = len(data) - position
        match self._state:
            case _State.HEAD:
                return self._head(tally, data, position)
            case _State.FIXED | _State.CHUNK_DATA:
                taken = min(rest, self._left)
                tally.body += taken
                self._left -= taken
                if not self._left:
                    if self._state is _State.FIXED:
                        self._finish(tally)
                    else:
                        self._state = _State.CHUNK_LINE
                return position + taken
            case _State.CHUNK_LINE | _State.TRAILER:
                return self._line(tally, data, position)
            case _State.TUNNEL:
                tally.body += rest
            case _State.LOST:
                tally.head += rest
        return len(data)

    def _head(self, tally: Tally, data: bytes, position: int) -> int:
        if not self._started:  # a parser skips blank lines before a message
            begun = len(data) - len(data[position:].lstrip(b"\r\n"))
            tally.head += begun - position
            position = begun
            if position == len(data):
                return position
            self._started = True
        end = data.find(b"\r\n\r\n", position)
        if self._held:
            held = self._held + data[position:]
            end = held.find(b"\r\n\r\n", max(0, len(self._held) - 3))
            size = (end + 4 if end >= 0 else len(held)) - len(self._held)
            head = held[: end + 4] if end >= 0 else held
        else:
            size = (end + 4 if end >= 0 else len(data)) - position
            head = data[position:] if end < 0 else data[position : end + 4]
        tally.head += size
        if tally.head > self._head_limit:
            self.head_too_large = True
        if end < 0:
            self._held = head[-self._head_limit :]
            return len(data)
        self._held = b""
        self._begin_body(tally, head)
        return position + size

    def _begin_body(self, tally: Tally, head: bytes) -> None:
        if _CHUNKED.search(head):
            self._state = _State.CHUNK_LINE
            return
        length = _LENGTH.search(head)
        self._left = int(length[1]) if length and len(length[1]) < 19 else 0
        if self._left:
            self._state = _State.FIXED
        else:
            self._finish(tally)

    def _line(self, tally: Tally, data: bytes, position: int) -> int:
        end = data.find(b"\n", position)
        stop = len(data) if end < 0 else end + 1
        tally.head += stop - position
        self._held += data[position:stop]
        if len(self._held) > _LONGEST_LINE:
            self._state, self._held = _State.LOST, b""
        elif end >= 0:
            line, self._held = self._held.strip(), b""
            self._end_of_line(tally, line)
        return stop

    def _end_of_line(self, tally: Tally, line: bytes) -> None:
        if self._state is _State.TRAILER:
            if not line:
                self._finish(tally)
            return
        if not line:  # the line end after a chunk's data
            return
        size = _SIZE.match(line)
        if size is None:
            self._state = _State.LOST
            return
        self._left = int(size[1], 16)
        self._state = _State.CHUNK_DATA if self._left else _State.TRAILER

    def _finish(self, tally: Tally) -> None:
        tally.complete = True
        self._state = _State.HEAD
        self._started = False
