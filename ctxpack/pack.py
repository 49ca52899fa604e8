"""A pack: content as chunks that can be checked and shared (docs/protocol.md, "Pack").

Theory of operation. A pack never changes. What it holds:

* its chunks and their Base64, as two tuples. Packs made one after the other share the objects of their common prefix,
  so four turns of a growing document take little more memory than the last one;
* its digest, and a *resume point*: a running hash fed with the first chunks, all those that no appended text can
  change. The next pack copies it instead of hashing the prefix again;
* the content as one `bytes`, if it was given so, else joined when first asked for (two threads that ask at once each
  join the same bytes; either result will do);
* the limit its chunks were split at, if this process split them. Chunks read from a wire may be cut anywhere, so only
  packs that know their limit are continued by `from_utf8(after=...)`.

Resume point, limit and content are knowledge about the pack, not part of it: they take no part in equality, hash, repr
or pickle. `to_bytes` and `content` are made anew at each call: a gateway keeps packs, and caching would double them.
"""

from __future__ import annotations

from typing import Any, ClassVar, FrozenSet, Iterable, Optional, Sequence, Tuple, Type

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
from ctxpack.split import DEFAULT_LIMIT, common_prefix, encode_text, settled, split_utf8

_FIELDS: FrozenSet[str] = frozenset({"byte_count", "chunk_bytes", "digest", "schema", "total_bytes"})

_set = object.__setattr__


class ContextPack:
    """Content in chunks, with its digest. Immutable, hashable, safe to share between threads."""

    __slots__ = ("_chunks", "_content", "_digest", "_encoded", "_limit", "_resume", "_total")

    schema: ClassVar[str] = canonical.PACK_SCHEMA
    """The field of that name."""

    _chunks: Tuple[bytes, ...]
    _encoded: Tuple[bytes, ...]
    _digest: str
    _total: int
    _content: Optional[bytes]
    _limit: Optional[int]
    _resume: Tuple[int, canonical.Running]

    def __init__(self, chunk_bytes: Iterable[bytes] = ()) -> None:
        """Take chunks as they are. Raises `ContextPackError` with `invalid_utf8` or `empty_chunk`."""
        chunks = [as_bytes(chunk) for chunk in chunk_bytes]
        check_chunks(chunks, "chunk_bytes")
        self._fill(None, 0, tuple(chunks), canonical.encode_chunks(chunks))

    @classmethod
    def from_content(cls, text: str, max_chunk_bytes: int = DEFAULT_LIMIT) -> ContextPack:
        """Split `text` and pack it. Raises `ContextPackError` with `invalid_utf8` for lone surrogates."""
        return cls._from_valid(encode_text(text), max_chunk_bytes)

    @classmethod
    def from_utf8(
        cls, data: bytes, max_chunk_bytes: int = DEFAULT_LIMIT, *, after: Optional[ContextPack] = None
    ) -> ContextPack:
        """Pack text that is already encoded. Raises `ContextPackError` with `invalid_utf8` where it is not UTF-8.

        `after` is a pack of an earlier form of the text. The result is the same without it, bit for bit; but where
        `data` begins like it, chunks, Base64 and digest are continued, so that appending costs the appended bytes and
        one comparison of the rest. A pack that was read or rebuilt, or split at another limit, is no help and no harm.
        """
        data = as_bytes(data)
        if after is None or after._limit != max_chunk_bytes:
            _check_utf8(data, 0)
            return cls._from_valid(data, max_chunk_bytes)
        common = common_prefix(after.content_bytes, data)
        if common == after._total == len(data):
            return after
        kept, start = settled(after._chunks, after._total, max_chunk_bytes, common)
        _check_utf8(data[start:] if start else data, start)
        chunks = split_utf8(data, max_chunk_bytes, start)
        pack = cls._joined(after, kept, tuple(chunks), canonical.encode_chunks(chunks), max_chunk_bytes)
        _set(pack, "_content", data)
        return pack

    @classmethod
    def _from_valid(cls, data: bytes, limit: int) -> ContextPack:
        chunks = split_utf8(data, limit)
        pack = cls._joined(None, 0, tuple(chunks), canonical.encode_chunks(chunks), limit)
        _set(pack, "_content", data)
        return pack

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
        pack = cls._joined(None, 0, chunks, encoded)
        if digest != pack._digest:
            raise ContextPackError("digest_mismatch", f"digest is {digest}, that of the chunks {pack._digest}")
        if total != pack._total:
            raise ContextPackError("total_bytes_mismatch", f"the chunks hold {pack._total} bytes, not what it says")
        if count != pack.byte_count:
            raise ContextPackError("byte_count_mismatch", f"byte_count should be {pack.byte_count}")
        if strict and data != pack.to_bytes():
            raise ContextPackError("not_canonical", "valid, but not the canonical JSON of this pack")
        return pack

    @classmethod
    def _joined(
        cls: Type[ContextPack],
        base: Optional[ContextPack],
        kept: int,
        chunks: Tuple[bytes, ...],
        encoded: Tuple[bytes, ...],
        limit: Optional[int] = None,
    ) -> ContextPack:
        """Return the pack of `base`'s first `kept` chunks and `chunks`. Everything given has been checked."""
        pack = object.__new__(cls)
        pack._fill(base, kept, chunks, encoded, limit)
        return pack

    def _fill(
        self,
        base: Optional[ContextPack],
        kept: int,
        chunks: Tuple[bytes, ...],
        encoded: Tuple[bytes, ...],
        limit: Optional[int] = None,
    ) -> None:
        done, total, running = 0, 0, None
        if base is not None and kept:
            total = base._total - sum(map(len, base._chunks[kept:]))
            chunks_here, encoded_here = base._chunks[:kept] + chunks, base._encoded[:kept] + encoded
            if kept >= base._resume[0]:
                done, running = base._resume[0], base._resume[1].copy()
        else:
            chunks_here, encoded_here = chunks, encoded
        total += sum(map(len, chunks))
        resume, _ = settled(chunks_here, total, limit or DEFAULT_LIMIT, total)
        resume = max(resume, done)
        running = running or canonical.start_digest()
        canonical.feed(running, encoded_here[done:resume], first=done == 0)
        rest = running.copy()
        canonical.feed(rest, encoded_here[resume:], first=resume == 0)
        _set(self, "_chunks", chunks_here)
        _set(self, "_encoded", encoded_here)
        _set(self, "_digest", canonical.finish_digest(rest))
        _set(self, "_total", total)
        _set(self, "_content", None)
        _set(self, "_limit", limit)
        _set(self, "_resume", (resume, running))

    @property
    def chunk_bytes(self) -> Tuple[bytes, ...]:
        """The chunks, each valid UTF-8 of its own, none empty."""
        return self._chunks

    @property
    def base64_chunks(self) -> Tuple[bytes, ...]:
        """The chunks as they stand in JSON: Base64 in ASCII."""
        return self._encoded

    @property
    def digest(self) -> str:
        """`sha256:` and 64 lower-case hex digits, over the chunks."""
        return self._digest

    @property
    def total_bytes(self) -> int:
        """Length of the content in bytes."""
        return self._total

    @property
    def byte_count(self) -> int:
        """Length of `to_bytes()` in bytes, found without making it."""
        return canonical.byte_count(self._encoded, self._digest, self._total)

    @property
    def content_bytes(self) -> bytes:
        """The content in UTF-8."""
        content = self._content
        if content is None:
            content = b"".join(self._chunks)
            _set(self, "_content", content)
        return content

    @property
    def content(self) -> str:
        """The content as text, decoded at each access."""
        return self.content_bytes.decode("utf-8")

    def to_bytes(self) -> bytes:
        """Return the canonical JSON, `byte_count` bytes of it."""
        return canonical.pack_bytes(self._encoded, self._digest, self._total)

    def __eq__(self, other: object) -> bool:
        return self._digest == other._digest if isinstance(other, ContextPack) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"<ContextPack {self._digest} chunks={len(self._chunks)} total_bytes={self._total}>"

    def __reduce__(self) -> Tuple[Type[ContextPack], Tuple[Sequence[bytes]]]:
        return type(self), (self._chunks,)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a ContextPack does not change; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a ContextPack does not change; {name} cannot be deleted")


def _check_utf8(data: bytes, offset: int) -> None:
    """Raise `invalid_utf8` unless `data`, which begins at `offset` of the content, is UTF-8."""
    if data.isascii():
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"the content is not UTF-8 at byte {offset + error.start}"
        raise ContextPackError("invalid_utf8", reason) from error
