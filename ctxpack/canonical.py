"""The bytes of the format: canonical JSON, Base64, digest and byte count (docs/protocol.md, "Pack" and "Delta").

Canonical JSON is UTF-8 with sorted keys, separators `,` and `:` and no white space. All our values are ASCII without
anything to escape, so the text is put together by hand; the field orders below are the sorted ones.

The digest runs over the chunks in their order. A `Running` hash fed with the first chunks can therefore be copied and
continued, which is what makes a turn that only appends cost its new bytes.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from typing import Iterable, Protocol, Sequence, Union

PACK_SCHEMA = "ctxpack.pack.v1"
DELTA_SCHEMA = "ctxpack.delta.v1"

_DIGEST_HEAD = b'{"chunk_bytes":['
_DIGEST_TAIL = b'],"schema":"ctxpack.pack.v1"}'
_DIGEST_SIZE = len("sha256:") + 64

_BETWEEN = b'","'
"""What stands between the strings of an array. Encoded chunks are passed about with one after each, the last included."""


class Running(Protocol):
    """The part of a hashlib object used here."""

    def update(self, data: Union[bytes, memoryview], /) -> None:
        """Feed bytes."""

    def copy(self) -> Running:
        """Return an independent hash in the same state."""

    def hexdigest(self) -> str:
        """Return the digest so far, in lower-case hex."""


START: Running = hashlib.sha256(_DIGEST_HEAD + b'"')
"""The hash of a pack before its first chunk. Copy it."""

EMPTY_DIGEST = "sha256:" + hashlib.sha256(_DIGEST_HEAD + _DIGEST_TAIL).hexdigest()
"""Of the pack without chunks, which has no `"` to begin with."""


def encode_chunks(chunks: Iterable[bytes]) -> bytes:
    """Return the standard padded Base64 of each chunk, each followed by `","`."""
    return b"".join(map(b2a_base64, chunks)).replace(b"\n", _BETWEEN)


def encoded_length(sizes: Iterable[int]) -> int:
    """Return the length in bytes of what `encode_chunks` makes of chunks of these sizes."""
    return sum([(size + 2) // 3 * 4 + 3 for size in sizes])


def array(encoded: bytes) -> Iterable[Union[bytes, memoryview]]:
    """Return the JSON array of chunks that are encoded, in parts."""
    return (b'["', memoryview(encoded)[: -len(_BETWEEN)], b'"]') if encoded else (b"[]",)


def array_length(sizes: Sequence[int]) -> int:
    """Return the length in bytes of the JSON array of chunks of these sizes."""
    return encoded_length(sizes) + 1 if sizes else 2


def finish_digest(running: Running, encoded: Union[bytes, memoryview]) -> str:
    """Feed the last chunks (one at least), close the JSON and return the digest. `running` is spent."""
    running.update(encoded[: -len(_BETWEEN)])
    running.update(b'"' + _DIGEST_TAIL)
    return "sha256:" + running.hexdigest()


def pack_bytes(encoded: bytes, sizes: Sequence[int], digest: str, total_bytes: int) -> bytes:
    """Return the canonical JSON of a pack whose chunks have these sizes."""
    head = b'{"byte_count":%d,"chunk_bytes":' % byte_count(sizes, total_bytes)
    return b"".join((head, *array(encoded), _pack_tail(digest, total_bytes)))


def byte_count(sizes: Sequence[int], total_bytes: int) -> int:
    """Return the length in bytes of the pack that holds this very number: the smallest fixed point.

    There always is one, and sometimes two (996 other bytes: 999 and 1000 both fit); the smaller counts.
    """
    tail = len(_pack_tail("", total_bytes)) + _DIGEST_SIZE
    others = len(b'{"byte_count":,"chunk_bytes":') + array_length(sizes) + tail
    digits = 1
    while len(str(others + digits)) != digits:
        digits += 1
    return others + digits


def _pack_tail(digest: str, total_bytes: int) -> bytes:
    return b',"digest":"%b","schema":"ctxpack.pack.v1","total_bytes":%d}' % (digest.encode("ascii"), total_bytes)


def delta_bytes(base_digest: str, kept_chunks: int, encoded: bytes, target_digest: str) -> bytes:
    """Return the canonical JSON of a delta."""
    return b"".join(
        (
            b'{"base_digest":"%b","kept_chunks":%d,"new_chunks":' % (base_digest.encode("ascii"), kept_chunks),
            *array(encoded),
            b',"schema":"ctxpack.delta.v1","target_digest":"%b"}' % target_digest.encode("ascii"),
        )
    )
