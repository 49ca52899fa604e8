"""Content codings (RFC 9110 8.4): which were applied, undoing them within limits, and making gzip and zstd.

The one owner of content codings here: aiohttp's own decoding accepts truncated bodies as complete ones. The codings that need
a base (``dcz``, ``ctxpack.*``) are not undone here; whoever holds bases peels them off first.

Theory of operation of a Decoder. It is *open* until ``finish`` or an error; after an error it is spent, and every later call
raises that error again, so that no half-decoded body can pass for a whole one. Pieces travel depth-first through the stack:
in memory are at most a step of output a layer, whatever the input expands to.
"""

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Final

from middleware.coding_layers import CodingError, Kind, new_layer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["DECODABLE", "CodingError", "Decoder", "Kind", "decode", "gzip_encode", "parse_codings", "zstd_encode"]

DECODABLE: Final = frozenset({"gzip", "deflate", "br", "zstd"})
"""The codings a Decoder undoes."""

_SLICE: Final = 16384  # input bytes at a time: codecs copy what they have not yet consumed
_RATIO_FROM: Final = 1 << 20
_SMALL: Final = 4096
_SMALL_MEMORY: Final = 6  # zlib's memLevel: 4,096 symbols a block, so that small data is still one block
_LOOKAHEAD: Final = 262  # zlib looks back no farther than its window less this
_WINDOW_LOG: Final = 23  # 8 MiB: RFC 9659 section 3


def parse_codings(values: Iterable[str]) -> tuple[str, ...]:
    """The tokens of Content-Encoding field lines in the order they were applied (RFC 9110 8.4), lower-case.

    ``identity`` and empty members are dropped, ``x-gzip`` is ``gzip`` (8.4.1.3). What is no token is kept as it is, to be
    refused as an unknown coding.
    """
    names = (member.strip(" \t").lower() for line in values for member in line.split(","))
    return tuple("gzip" if name == "x-gzip" else name for name in names if name not in ("", "identity"))


class Decoder:
    """Undoes a stack of codings as the bytes come.

    What a codec can give for the bytes fed so far is given at once, so an event stream decodes event by event. ``limit`` is
    bytes of decoded content; ``ratio`` the largest decoded size over coded size, looked at once more than 1 MiB is decoded;
    ``layers`` the longest stack. ``window_log_max`` bounds the window of zstd frames (23: 8 MiB). Raises CodingError:
    ``layers`` and ``unknown`` here, ``truncated`` from ``finish``, the others from ``feed``.
    """

    def __init__(
        self, codings: Sequence[str], *, limit: int, ratio: int, layers: int, window_log_max: int = _WINDOW_LOG
    ) -> None:
        if len(codings) > layers:
            raise CodingError("layers")
        self._layers = [new_layer(coding, window_log_max) for coding in reversed(codings)]
        self._limit, self._ratio = limit, ratio
        # Content that decodes to nothing (skippable frames, empty members) still costs time: what lies between two layers, and
        # what comes in, is bounded too, with room for small content flushed event by event.
        self._coded_limit = 4 * limit + _RATIO_FROM
        self._between = [0] * len(self._layers)
        self._refused: Kind | None = None  # not the error itself, whose traceback would hold the content
        self.coded = 0
        """Bytes fed so far."""
        self.decoded = 0
        """Bytes given out so far."""

    def feed(self, data: bytes) -> bytes:
        """All that these further bytes decode to. Where that may be much, take ``pieces`` one at a time instead."""
        first = b""
        whole: BytesIO | None = None
        for piece in self.pieces(data):
            if whole is not None:
                whole.write(piece)
            elif first:
                whole = BytesIO()  # grows in place, and gives its buffer away without a copy
                whole.write(first)
                whole.write(piece)
            else:
                first = piece
        return first if whole is None else whole.getvalue()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The same as ``feed``, in pieces of about 64 KiB at most; exhaust it before the next call."""
        if self._refused is not None:
            raise CodingError(self._refused)
        try:
            self.coded += len(data)
            if self._layers and self.coded > self._coded_limit:
                raise CodingError("too_large")
            if not self._layers:
                self._count(len(data))
                yield data
                return
            for start in range(0, len(data), _SLICE):
                yield from self._through(0, data[start : start + _SLICE])
        except CodingError as error:
            self._refused = error.kind
            raise

    def _through(self, index: int, data: bytes) -> Iterator[bytes]:
        last = index + 1 == len(self._layers)
        for piece in self._layers[index].push(data):
            if last:
                self._count(len(piece))
                yield piece
                continue
            self._between[index] += len(piece)
            if self._between[index] > self._coded_limit:
                raise CodingError("too_large")
            yield from self._through(index + 1, piece)

    def _count(self, size: int) -> None:
        self.decoded += size
        if self.decoded > self._limit:
            raise CodingError("too_large")
        if self.decoded > _RATIO_FROM and self.decoded > self._ratio * self.coded:
            raise CodingError("ratio")

    def finish(self) -> bytes:
        """No more bytes come: raises ``truncated`` unless every coding has ended. Returns what was still held: nothing."""
        if self._refused is not None:
            raise CodingError(self._refused)
        try:
            for layer in self._layers:
                layer.end()
        except CodingError as error:
            self._refused = error.kind
            raise
        return b""


def decode(
    data: bytes, codings: Sequence[str], *, limit: int, ratio: int, layers: int, window_log_max: int = _WINDOW_LOG
) -> bytes:
    """The whole of a coded body; raises CodingError as Decoder does."""
    decoder = Decoder(codings, limit=limit, ratio=ratio, layers=layers, window_log_max=window_log_max)
    decoded = decoder.feed(data)
    decoder.finish()
    return decoded


def gzip_encode(data: bytes, level: int = 6) -> bytes:
    """One gzip member (RFC 1952) with the 10-byte header and no time in it: equal content gives equal bytes.

    Little data gets little tables: clearing those of a full window costs four times what coding a delta of 1 KB does.
    """
    if len(data) > _SMALL:
        return zlib.compress(data, level, wbits=31)
    coder = zlib.compressobj(level, zlib.DEFLATED, 16 + max(9, (len(data) + _LOOKAHEAD).bit_length()), _SMALL_MEMORY)
    return coder.compress(data) + coder.flush()


def zstd_encode(data: bytes, level: int = 3) -> bytes:
    """One zstd frame (RFC 8878) that declares its size, with a window of at most 8 MiB at every level (RFC 9659).

    No content checksum: truncation shows without one, transport already guards the bytes, and it is 4 bytes a body on links
    where each counts. (``dcz`` does carry one, for there a wrong base decodes to wrong bytes without any other sign.)
    """
    if level < 20:  # windows up to level 19 are 8 MiB at most
        return zstd.compress(data, level)
    parameter = zstd.CompressionParameter
    return zstd.compress(data, options={parameter.compression_level: level, parameter.window_log: _WINDOW_LOG})
