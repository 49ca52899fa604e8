"""A pack: content as chunks that can be checked and shared (docs/protocol.md, "Pack").

Theory of operation. A pack never changes. A gateway keeps many, so one holds its text once and little else:

* the content, as one `bytes` (the very object it was made of, where that was one), and where its chunks end, eight
  bytes a chunk. Chunks, Base64 and JSON are made at each call and not kept;
* its digest, once somebody asked for it, and a few *resume points*: running hashes, each fed with some first chunks, the
  last with all those that no appended text can change. The next pack copies the last one of what it shares instead of
  encoding and hashing that again, and shares the points before it. A point is never fed itself;
* the limit its chunks were split at, where that is known. Chunks read from a wire or rebuilt by a delta may be cut
  anywhere, so `from_utf8(after=...)` first splits such a pack again, once, and continues it if that gives its chunks.

Digest, resume points and limit are set after the pack was made. Two threads that ask at once each find the same, and
either result will do. They are knowledge about the pack, not part of it: they take no part in equality, repr or pickle.
"""

from __future__ import annotations

from array import array
from binascii import b2a_base64
from bisect import bisect_right
from itertools import accumulate, chain
from operator import sub
from typing import Any, ClassVar, FrozenSet, Iterable, List, Optional, Sequence, Tuple, Type, Union

from ctxpack import canonical
from ctxpack.errors import ContextPackError
from ctxpack.parse import (
    as_bytes,
    check_chunks,
    check_count,
    check_digest,
    check_string,
    check_strings,
    decode_chunks,
    read_fields,
)
from ctxpack.split import DEFAULT_LIMIT, check_limit, common_prefix, encode_text, pieces, settled, split_ends

_FIELDS: FrozenSet[str] = frozenset({"byte_count", "chunk_bytes", "digest", "schema", "total_bytes"})

_BLOCK = 128
"""Chunks encoded and hashed at a time, so that what is made of them stays in the processor's cache; a resume point, of
about 400 bytes, stands after each."""

_Points = Tuple[Tuple[int, canonical.Running], ...]

_BEGINNING: _Points = ((0, canonical.START),)

_set = object.__setattr__


class ContextPack:
    """Content in chunks, with its digest. Immutable, hashable, safe to share between threads."""

    __slots__ = ("_content", "_digest", "_ends", "_limit", "_points")

    schema: ClassVar[str] = canonical.PACK_SCHEMA
    """The field of that name."""

    _content: bytes
    _ends: array[int]
    _digest: Optional[str]
    _limit: Optional[int]
    _points: _Points

    def __init__(self, chunk_bytes: Iterable[bytes] = ()) -> None:
        """Take chunks as they are. Raises `ContextPackError` with `invalid_utf8` or `empty_chunk`."""
        chunks = [as_bytes(chunk) for chunk in chunk_bytes]
        check_chunks(chunks, "chunk_bytes")
        self._fill(b"".join(chunks), _ends_of(chunks))

    @classmethod
    def from_content(cls, text: str, max_chunk_bytes: int = DEFAULT_LIMIT) -> ContextPack:
        """Split `text` and pack it. Raises `ContextPackError` with `invalid_utf8` for lone surrogates."""
        data = encode_text(text)
        return cls._made(data, split_ends(data, max_chunk_bytes), max_chunk_bytes)

    @classmethod
    def from_utf8(
        cls, data: bytes, max_chunk_bytes: int = DEFAULT_LIMIT, *, after: Optional[ContextPack] = None
    ) -> ContextPack:
        """Pack text that is already encoded. Raises `ContextPackError` with `invalid_utf8` where it is not UTF-8.

        `after` is a pack of an earlier form of the text. The result is the same without it, bit for bit; but where
        `data` begins like it, chunks and digest are continued, so that appending costs the appended bytes and one
        comparison of the rest. Where nothing changed the result is `after` itself. A pack that was read or rebuilt helps
        as well if it was split at the same limit; one that was split otherwise is no help and no harm.
        """
        data = as_bytes(data)
        check_limit(max_chunk_bytes)
        if after is None or not after._is_split_at(max_chunk_bytes):
            _check_utf8(data, 0)
            return cls._made(data, split_ends(data, max_chunk_bytes), max_chunk_bytes)
        common = common_prefix(after._content, data)
        if common == len(after._content) == len(data):
            return after
        kept = settled(after._ends, max_chunk_bytes, common)
        start = after._ends[kept - 1] if kept else 0
        _check_utf8(data[start:] if start else data, start)
        ends = after._ends[:kept] + split_ends(data, max_chunk_bytes, start)
        return cls._made(data, ends, max_chunk_bytes, after._points_for(kept, ends))

    @classmethod
    def from_bytes(cls, data: bytes, *, strict: bool = True, max_bytes: Optional[int] = None) -> ContextPack:
        """Read a serialised pack and check all of it.

        Raises `ContextPackError` with any code but those of `apply_delta`, and nothing else, whatever the bytes.
        `strict=False` waives `not_canonical` alone; `max_bytes` limits `data` (`too_large`).
        """
        data = as_bytes(data)
        fields = read_fields(data, canonical.PACK_SCHEMA, _FIELDS, max_bytes=max_bytes)
        count = check_count(fields["byte_count"], "byte_count")
        strings = check_strings(fields["chunk_bytes"], "chunk_bytes")
        digest = check_string(fields["digest"], "digest")
        total = check_count(fields["total_bytes"], "total_bytes")
        chunks, encoded = decode_chunks(strings, "chunk_bytes")
        check_digest(digest, "digest")
        pack = cls._made(b"".join(chunks), _ends_of(chunks))
        sizes = list(map(len, chunks))
        found = pack._seal(encoded, sizes)
        if digest != found:
            raise ContextPackError("digest_mismatch", f"digest is {digest}, that of the chunks {found}")
        if total != pack.total_bytes:
            raise ContextPackError("total_bytes_mismatch", f"the chunks hold {pack.total_bytes} bytes, not what it says")
        right = canonical.byte_count(sizes, total)
        if count != right:
            raise ContextPackError("byte_count_mismatch", f"byte_count should be {right}")
        if strict and data != canonical.pack_bytes(encoded, sizes, digest, total):
            raise ContextPackError("not_canonical", "valid, but not the canonical JSON of this pack")
        return pack

    @classmethod
    def _made(
        cls: Type[ContextPack],
        content: bytes,
        ends: array[int],
        limit: Optional[int] = None,
        points: _Points = _BEGINNING,
    ) -> ContextPack:
        """Return the pack of these fields, which have been checked."""
        pack = object.__new__(cls)
        pack._fill(content, ends, limit, points)
        return pack

    def _fill(
        self,
        content: bytes,
        ends: array[int],
        limit: Optional[int] = None,
        points: _Points = _BEGINNING,
    ) -> None:
        _set(self, "_content", content)
        _set(self, "_ends", ends)
        _set(self, "_digest", None)
        _set(self, "_limit", limit)
        _set(self, "_points", points)

    def _with_chunks(self, kept: int, chunks: Sequence[bytes]) -> ContextPack:
        """Return the pack of the first `kept` chunks of this one and `chunks`, which have been checked."""
        start = self._ends[kept - 1] if kept else 0
        ends = self._ends[:kept] + _ends_of(chunks, start)
        content = b"".join((memoryview(self._content)[:start], *chunks))
        return type(self)._made(content, ends, None, self._points_for(kept, ends))

    def _points_for(self, kept: int, ends: Sequence[int]) -> _Points:
        """Return the resume points of a pack that shares the first `kept` chunks and ends at `ends`."""
        points = self._points
        most = max(0, min(kept, len(ends) - 1))
        return points if points[-1][0] <= most else tuple([point for point in points if point[0] <= most])

    def _seal(self, encoded: Optional[bytes] = None, sizes: Sequence[int] = ()) -> str:
        """Find the digest, set the resume points, and return the digest.

        `encoded` is all the chunks in Base64, if they are at hand, and `sizes` their lengths.
        """
        ends, points = self._ends, list(self._points)
        if not ends:
            _set(self, "_digest", canonical.EMPTY_DIGEST)
            return canonical.EMPTY_DIGEST
        done, running = points[-1]
        at = canonical.encoded_length(sizes[:done]) if sizes else 0

        def text_of(first: int, stop: int) -> Union[bytes, memoryview]:
            nonlocal at
            if encoded is None:
                return canonical.encode_chunks(self._pieces(first, stop))
            start, at = at, at + canonical.encoded_length(sizes[first:stop])
            return memoryview(encoded)[start:at]

        # the last chunk is left out even where the limit is unknown: finish_digest wants one
        last = max(done, min(settled(ends, self._limit or DEFAULT_LIMIT, ends[-1]), len(ends) - 1))
        for first in range(done, last, _BLOCK):
            stop = min(first + _BLOCK, last)
            running = running.copy()
            running.update(text_of(first, stop))
            if len(points) > 1 and stop - points[-2][0] < _BLOCK:
                points.pop()  # many small turns leave no more points than one large text
            points.append((stop, running))
        digest = canonical.finish_digest(running.copy(), text_of(last, len(ends)))
        _set(self, "_points", tuple(points))
        _set(self, "_digest", digest)
        return digest

    def _pieces(self, first: int = 0, stop: Optional[int] = None) -> List[bytes]:
        """Return the chunks from number `first` on, up to number `stop`."""
        return pieces(self._content, self._ends[first:stop], self._ends[first - 1] if first else 0)

    def _sizes(self) -> List[int]:
        """Return the lengths of the chunks."""
        return list(map(sub, self._ends, chain((0,), self._ends)))

    def _is_split_at(self, limit: int) -> bool:
        """Say whether the chunks are those of a split at `limit`. Answers at once where the pack knows its limit."""
        if self._limit is None and split_ends(self._content, limit) == self._ends:
            _set(self, "_limit", limit)
        return self._limit == limit

    def _common_chunks(self, other: ContextPack) -> int:
        """Return how many first chunks two packs share: those that end at the same bytes, within the content they share."""
        within = bisect_right(other._ends, common_prefix(self._content, other._content))
        mine, others = self._ends[:within], other._ends[:within]
        if mine == others:
            return within
        return common_prefix(mine.tobytes(), others.tobytes()) // others.itemsize

    @property
    def chunk_bytes(self) -> Tuple[bytes, ...]:
        """The chunks, each valid UTF-8 of its own, none empty. Made at each access."""
        return tuple(self._pieces())

    @property
    def base64_chunks(self) -> Tuple[bytes, ...]:
        """The chunks as they stand in JSON: Base64 in ASCII. Made at each access."""
        return tuple([b2a_base64(chunk, newline=False) for chunk in self._pieces()])

    @property
    def digest(self) -> str:
        """`sha256:` and 64 lower-case hex digits, over the chunks. Found when first asked for, then kept."""
        return self._digest or self._seal()

    @property
    def total_bytes(self) -> int:
        """Length of the content in bytes."""
        return len(self._content)

    @property
    def byte_count(self) -> int:
        """Length of `to_bytes()` in bytes, found without making it."""
        return canonical.byte_count(self._sizes(), len(self._content))

    @property
    def content_bytes(self) -> bytes:
        """The content in UTF-8: always the same object."""
        return self._content

    @property
    def content(self) -> str:
        """The content as text, decoded at each access."""
        return self._content.decode("utf-8")

    def to_bytes(self) -> bytes:
        """Return the canonical JSON, `byte_count` bytes of it."""
        blocks = range(0, len(self._ends), _BLOCK)
        encoded = b"".join([canonical.encode_chunks(self._pieces(first, first + _BLOCK)) for first in blocks])
        sizes = self._sizes()
        digest = self._digest or self._seal(encoded, sizes)
        return canonical.pack_bytes(encoded, sizes, digest, len(self._content))

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, ContextPack) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<ContextPack {self.digest} chunks={len(self._ends)} total_bytes={self.total_bytes}>"

    def __reduce__(self) -> Tuple[Type[ContextPack], Tuple[Sequence[bytes]]]:
        return type(self), (self.chunk_bytes,)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a ContextPack does not change; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a ContextPack does not change; {name} cannot be deleted")


def _ends_of(chunks: Sequence[bytes], start: int = 0) -> array[int]:
    """Return where chunks end that are laid one after the other from `start` on."""
    ends = list(accumulate(map(len, chunks), initial=start))
    return array("Q", ends[1:])


def _check_utf8(data: bytes, offset: int) -> None:
    """Raise `invalid_utf8` unless `data`, which begins at `offset` of the content, is UTF-8."""
    if data.isascii():
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"the content is not UTF-8 at byte {offset + error.start}"
        raise ContextPackError("invalid_utf8", reason) from error
