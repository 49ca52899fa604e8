"""Where content is cut into chunks (docs/protocol.md, "Splitting").

The rule is greedy over lines. Because a chunk closes when the next line would not fit, it always ends at the last line
feed within the limit; so one backward search per chunk finds it, and lines need not be walked one by one.

A boundary depends on the bytes before it and on fewer than `limit + 1` bytes after it: on the line that begins there,
until that line ends or is known to be too long. `settled` relies on this to say which chunks of an earlier content a
later one certainly shares.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from ctxpack.errors import ContextPackError

DEFAULT_LIMIT = 512
"""Bytes of content a chunk holds at most. On the wire always this (docs/protocol.md)."""

LEAST_LIMIT = 4
"""The longest character of UTF-8, in bytes: a smaller chunk could not hold every character."""

_LINE_FEED = 0x0A


def split_content(text: str, max_chunk_bytes: int = DEFAULT_LIMIT) -> Tuple[bytes, ...]:
    """Cut `text` into its chunks: UTF-8, none empty, each at most `max_chunk_bytes` bytes (at least 4).

    The same text always gives the same chunks, and joined they are the text. Raises `ContextPackError` with
    `invalid_utf8` for lone surrogates and `invalid_type` for a limit under 4.
    """
    return tuple(split_utf8(encode_text(text), max_chunk_bytes))


def encode_text(text: str) -> bytes:
    """Return `text` in UTF-8; `ContextPackError` with `invalid_utf8` where a surrogate stands alone."""
    if not isinstance(text, str):
        raise TypeError(f"content is a str, not {type(text).__name__}; for encoded bytes there is from_utf8")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        reason = f"character {error.start} is a lone surrogate, which UTF-8 cannot carry"
        raise ContextPackError("invalid_utf8", reason) from error


def split_utf8(data: bytes, limit: int = DEFAULT_LIMIT, start: int = 0) -> List[bytes]:
    """Cut `data[start:]` into chunks of at most `limit` bytes.

    `data` is valid UTF-8 and `start` a chunk boundary of it: 0, or one `settled` gave. Raises `ContextPackError` with
    `invalid_type` for a limit that is not an integer of at least 4.
    """
    if type(limit) is not int or limit < LEAST_LIMIT:
        raise ContextPackError("invalid_type", f"max_chunk_bytes is an integer of at least 4, not {limit!r}")
    chunks: List[bytes] = []
    size, position = len(data), start
    if start and data[start - 1] != _LINE_FEED:
        position = _cut_line(data, position, limit, chunks)
    while size - position > limit:
        end = data.rfind(b"\n", position, position + limit) + 1
        if end:
            chunks.append(data[position:end])
            position = end
        else:
            position = _cut_line(data, position, limit, chunks)
    if position < size:
        chunks.append(data[position:])
    return chunks


def _cut_line(data: bytes, position: int, limit: int, chunks: List[bytes]) -> int:
    """Append the pieces of the long line (or the rest of one) at `position`; return where the next line begins."""
    stop = data.find(b"\n", position) + 1 or len(data)
    while stop - position > limit:
        end = position + limit
        while data[end] & 0xC0 == 0x80:  # a continuation byte: the character began earlier
            end -= 1
        chunks.append(data[position:end])
        position = end
    chunks.append(data[position:stop])
    return stop


def settled(chunks: Sequence[bytes], total: int, limit: int, common: int) -> Tuple[int, int]:
    """Say how many of `chunks` every content shares that has the same first `common` bytes: `(count, bytes)`.

    `chunks` are `total` bytes split at `limit`. A boundary is kept if more than `limit` common bytes follow it; the
    cost is that of the chunks given up, not of those kept.
    """
    count, end = len(chunks), total
    while count and end + limit >= common:
        count -= 1
        end -= len(chunks[count])
    return count, end


def common_prefix(one: bytes, other: bytes) -> int:
    """Return how many first bytes two contents share.

    Compares by halves, so what is read and copied adds up to the shorter of the two, at the speed of memory.
    """
    low, high = 0, min(len(one), len(other))
    if len(one) <= len(other):
        if other.startswith(one):
            return high
    elif one.startswith(other):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
