"""Where content is cut into chunks (docs/protocol.md, "Splitting").

The rule is greedy over lines. Because a chunk closes when the next line would not fit, it always ends at the last line
feed within the limit; so one backward search per chunk finds it, and lines need not be walked one by one.

Where a chunk ends depends on the bytes before it, on its first `limit` bytes, and on the byte after those being there
(and, in a long line, being the first of a character). `settled` relies on this to say which chunks of an earlier content
a later one certainly shares.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import List, Sequence, Tuple

from ctxpack.errors import ContextPackError

DEFAULT_LIMIT = 512
"""Bytes of content a chunk holds at most. On the wire always this (docs/protocol.md)."""

LEAST_LIMIT = 4
"""The longest character of UTF-8, in bytes: a smaller chunk could not hold every character."""

_LINE_FEED = 0x0A

_BLOCK = 1 << 16


def split_content(text: str, max_chunk_bytes: int = DEFAULT_LIMIT) -> Tuple[bytes, ...]:
    """Cut `text` into its chunks: UTF-8, none empty, each at most `max_chunk_bytes` bytes (at least 4).

    The same text always gives the same chunks, and joined they are the text. Raises `ContextPackError` with
    `invalid_utf8` for lone surrogates and `invalid_type` for a limit under 4.
    """
    data = encode_text(text)
    return tuple(pieces(data, split_ends(data, max_chunk_bytes)))


def encode_text(text: str) -> bytes:
    """Return `text` in UTF-8; `ContextPackError` with `invalid_utf8` where a surrogate stands alone."""
    if not isinstance(text, str):
        raise TypeError(f"content is a str, not {type(text).__name__}; for encoded bytes there is from_utf8")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        reason = f"character {error.start} is a lone surrogate, which UTF-8 cannot carry"
        raise ContextPackError("invalid_utf8", reason) from error


def split_ends(data: bytes, limit: int = DEFAULT_LIMIT, start: int = 0) -> array[int]:
    """Return where the chunks of `data[start:]` end, as offsets into `data`: each chunk at most `limit` bytes.

    `data` is valid UTF-8 and `start` a chunk boundary of it: 0, or one `settled` gave. Raises `ContextPackError` with
    `invalid_type` for a limit that is not an integer of at least 4.
    """
    check_limit(limit)
    ends: List[int] = []
    size, position = len(data), start
    if start and data[start - 1] != _LINE_FEED:
        position = _cut_line(data, position, limit, ends)
    append, rfind, last = ends.append, data.rfind, size - limit
    while position < last:
        end = rfind(b"\n", position, position + limit) + 1
        if end:
            append(end)
            position = end
        else:
            position = _cut_line(data, position, limit, ends)
    if position < size:
        append(size)
    return array("Q", ends)


def check_limit(limit: int) -> None:
    """Raise `invalid_type` unless `limit` is an integer of at least 4."""
    if type(limit) is not int or limit < LEAST_LIMIT:
        raise ContextPackError("invalid_type", f"max_chunk_bytes is an integer of at least 4, not {limit!r}")


def _cut_line(data: bytes, position: int, limit: int, ends: List[int]) -> int:
    """Append the ends of the pieces of the long line (or the rest of one) at `position`; return where the next begins."""
    stop = data.find(b"\n", position) + 1 or len(data)
    while stop - position > limit:
        end = position + limit
        while data[end] & 0xC0 == 0x80:  # a continuation byte: the character began earlier
            end -= 1
        ends.append(end)
        position = end
    ends.append(stop)
    return stop


def pieces(data: bytes, ends: Sequence[int], start: int = 0) -> List[bytes]:
    """Return what lies between `start` and the first of `ends`, then between each of them and the next."""
    return [data[begin:end] for begin, end in zip([start, *ends], ends)]


def settled(ends: Sequence[int], limit: int, common: int) -> int:
    """Say how many chunks every content shares that has the same first `common` bytes; never all.

    `ends` are those of a content of at least `common` bytes, split at `limit`. A chunk is kept if more than `limit`
    common bytes follow its first: where it ends depends on no others.
    """
    return bisect_left(ends, common - limit) + 1 if ends and common > limit else 0


def common_prefix(one: bytes, other: bytes) -> int:
    """Return how many first bytes two contents share, at the speed of memory.

    Walks in blocks that stay in the processor's cache, since each is copied to be compared; then by halves in the block
    that differs.
    """
    size = min(len(one), len(other))
    if other.startswith(one) or one.startswith(other):
        return size
    low = 0
    while one.startswith(other[low : low + _BLOCK], low):
        low += _BLOCK
    high = min(low + _BLOCK, size)
    while high - low > 1:
        middle = (low + high) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle
    return low
