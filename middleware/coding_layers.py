"""One content coding undone as its bytes arrive, in bounded steps.

Theory of operation. A layer is *between* members (nothing of the next one seen), *inside* one, or spent after an error. gzip
(RFC 1952 2.2) and zstd (RFC 8878 3.1) are sequences of members, decoded as the concatenation of their contents; deflate and br
are exactly one. A layer gives out whatever its codec can give for the bytes pushed so far and keeps nothing back, at most
about ``STEP`` bytes a piece, so what a few bytes may expand to is never in memory at once. It knows nothing of limits: whoever
takes the pieces counts them.
"""

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Literal, Protocol

import brotli  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP: Final = 65536
"""Bytes of output a codec is asked for at a time (brotli rounds up to its own blocks, at most half as much again)."""

Kind = Literal["corrupt", "truncated", "trailing", "too_large", "ratio", "layers", "unknown"]

_REASONS: Final[dict[Kind, str]] = {
    "corrupt": "the content does not decode",
    "truncated": "the content ends before its coding does",
    "trailing": "bytes follow the end of the coded content",
    "too_large": "the decoded content is over the limit, or needs a window over the limit",
    "ratio": "the decoded content is out of proportion to the coded one",
    "layers": "too many codings are stacked",
    "unknown": "the coding is not one that is undone here",
}


class CodingError(Exception):
    """Coded content that is refused; ``kind`` says why. Carries no byte of the content and no name a peer chose."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(_REASONS[kind])
        self.kind: Kind = kind


class Layer(Protocol):
    """One coding of a stack."""

    def push(self, data: bytes) -> Iterator[bytes]:
        """What these bytes decode to, in pieces; exhaust it before the next push."""
        ...

    def end(self) -> None:
        """No more bytes come: raises ``truncated`` unless the coding has ended too."""
        ...


class _Codec(Protocol):
    """One member under way. ``more``: it can give further output without input. ``eof``: the member is complete."""

    more: bool
    eof: bool
    rest: bytes
    """Input it has not taken: to be given again, or after ``eof`` to whatever comes next."""

    def step(self, data: bytes) -> bytes: ...


class _Inflate:
    """zlib's three wrappings (RFC 1950, 1951, 1952), chosen by ``wbits``; checksums and lengths are verified by zlib."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)
        self.more = self.eof = False
        self.rest = b""

    def step(self, data: bytes) -> bytes:
        inner = self._inner
        try:
            piece = inner.decompress(data, STEP)
        except zlib.error as error:
            raise CodingError("corrupt") from error
        self.eof = inner.eof
        self.rest = inner.unused_data if inner.eof else inner.unconsumed_tail
        # A full step may hide output that zlib still holds although it took all the input.
        self.more = bool(inner.unconsumed_tail) or len(piece) == STEP
        return piece


class _Unzstd:
    """One zstd or skippable frame. A window over ``1 << window_log_max`` is refused before it is allocated."""

    def __init__(self, window_log_max: int) -> None:
        self._inner = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log_max})
        self.more = self.eof = False
        self.rest = b""

    def step(self, data: bytes) -> bytes:
        inner = self._inner
        try:
            piece = inner.decompress(data, STEP)
        except zstd.ZstdError as error:
            # libzstd tells a window over the limit (RFC 9659) from damage by its message only.
            raise CodingError("too_large" if "too much memory" in str(error) else "corrupt") from error
        self.eof = inner.eof
        self.rest = inner.unused_data
        self.more = not inner.needs_input
        return piece


_GZIP_START = re.compile(rb"\x1f(?:\x8b|\Z)")
_ZSTD_START = re.compile(rb"(?:\x28(?:\Z|\xb5(?:\Z|\x2f(?:\Z|\xfd)))|[\x50-\x5f](?:\Z|\x2a(?:\Z|\x4d(?:\Z|\x18))))")


class _Members:
    """A sequence of one or more members of one coding."""

    # Opening a decoder is dear (20 us for zstd), and an empty frame is 9 bytes: unchecked, 1 MiB of them keeps a core busy for
    # seconds. A server that sends each event as a frame of its own stays far below this.
    _FREE, _CONTENT_EACH = 4096, 64

    def __init__(self, open_one: Callable[[], _Codec], start: re.Pattern[bytes]) -> None:
        self._open, self._start = open_one, start
        self._codec: _Codec | None = None
        self._head = b""
        self._ended = 0
        self._given = 0

    def push(self, data: bytes) -> Iterator[bytes]:
        while data:
            codec = self._enter(data)
            while True:
                piece = codec.step(data)
                if piece:
                    self._given += len(piece)
                    yield piece
                data = codec.rest
                if codec.eof or not codec.more:
                    break
            if codec.eof:
                self._leave()

    def _enter(self, data: bytes) -> _Codec:
        if self._codec is None:
            self._codec, self._head = self._open(), b""
        if self._ended and len(self._head) < 4:
            self._head = (self._head + data[:4])[:4]
            if not self._start.match(self._head):
                raise CodingError("trailing")
        return self._codec

    def _leave(self) -> None:
        self._codec = None
        self._ended += 1
        if self._ended > self._FREE + self._given // self._CONTENT_EACH:
            raise CodingError("ratio")

    def end(self) -> None:
        if self._codec is not None or not self._ended:
            raise CodingError("truncated")


class _Deflate:
    """The "deflate" coding: zlib's format (RFC 9110 8.4.1.2), or bare RFC 1951 as some servers send it.

    The first two bytes decide. A bare stream that begins like a zlib header would begin with a stored block whose padding bits
    are not zero, which no known encoder writes.
    """

    def __init__(self) -> None:
        self._codec: _Inflate | None = None
        self._head = b""

    def push(self, data: bytes) -> Iterator[bytes]:
        codec = self._codec
        if codec is None:
            data = self._head + data
            if len(data) < 2:
                self._head = data
                return
            wrapped = data[0] & 0x0F == 8 and data[0] >> 4 <= 7 and int.from_bytes(data[:2], "big") % 31 == 0
            codec = self._codec = _Inflate(15 if wrapped else -15)
        if codec.eof and data:
            raise CodingError("trailing")
        while not codec.eof:
            piece = codec.step(data)
            if piece:
                yield piece
            data = codec.rest
            if codec.eof and data:
                raise CodingError("trailing")
            if not codec.more:
                break

    def end(self) -> None:
        if self._codec is None or not self._codec.eof:
            raise CodingError("truncated")


class _Brotli:
    """The "br" coding (RFC 7932). The codec cannot tell bytes after its end from damage: both are ``corrupt``."""

    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def push(self, data: bytes) -> Iterator[bytes]:
        inner = self._inner
        while True:
            try:
                piece: bytes = inner.process(data, output_buffer_limit=STEP)
            except brotli.error as error:
                raise CodingError("corrupt") from error
            data = b""
            if piece:
                yield piece
            # It may hold output although it could take input, so only an empty piece says that nothing is left.
            if inner.is_finished() or (not piece and inner.can_accept_more_data()):
                return

    def end(self) -> None:
        if not self._inner.is_finished():
            raise CodingError("truncated")


def new_layer(coding: str, window_log_max: int) -> Layer:
    """A layer that undoes ``coding`` (a token of ``DECODABLE``); raises ``unknown``."""
    if coding == "gzip":
        return _Members(lambda: _Inflate(31), _GZIP_START)
    if coding == "zstd":
        return _Members(lambda: _Unzstd(window_log_max), _ZSTD_START)
    if coding == "deflate":
        return _Deflate()
    if coding == "br":
        return _Brotli()
    raise CodingError("unknown")
