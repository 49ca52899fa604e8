"""The bytes of the format: canonical JSON, Base64, digest and byte count (docs/protocol.md, "Pack" and "Delta").

Canonical JSON is UTF-8 with sorted keys, separators `,` and `:` and no white space. All our values are ASCII without
anything to escape, so the text is put together by hand; the field orders below are the sorted ones.

The digest runs over the chunks in their order. A `Running` hash fed with the first chunks can therefore be copied and
continued, which is what makes a turn that only appends cost its new bytes.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from typing import Iterable, Optional, Protocol, Sequence, Tuple

PACK_SCHEMA = "ctxpack.pack.v1"
DELTA_SCHEMA = "ctxpack.delta.v1"

_DIGEST_HEAD = b'{"chunk_bytes":['
_DIGEST_TAIL = b'],"schema":"ctxpack.pack.v1"}'


class Running(Protocol):
    """The part of a hashlib object used here."""

    def update(self, data: bytes, /) -> None:
        """Feed bytes."""

    def copy(self) -> Running:
        """Return an independent hash in the same state."""

    def hexdigest(self) -> str:
        """Return the digest so far, in lower-case hex."""


def encode_chunks(chunks: Iterable[bytes]) -> Tuple[bytes, ...]:
    """Return standard padded Base64 of each chunk, as ASCII bytes."""
    return tuple([b2a_base64(chunk, newline=False) for chunk in chunks])


def encoded_length(encoded: Sequence[bytes]) -> int:
    """Return the length in bytes of the JSON array `array` would write."""
    return sum(map(len, encoded)) + 3 * len(encoded) + 1 if encoded else 2


def array(encoded: Sequence[bytes]) -> bytes:
    """Return the JSON array of Base64 strings."""
    return b'["' + b'","'.join(encoded) + b'"]' if encoded else b"[]"


def start_digest() -> Running:
    """Return the hash of a pack before its first chunk."""
    return hashlib.sha256(_DIGEST_HEAD)


def feed(running: Running, encoded: Sequence[bytes], first: bool) -> None:
    """Feed chunks in Base64; `first` says that none was fed before."""
    if encoded:
        running.update(b'"' if first else b',"')
        running.update(b'","'.join(encoded))
        running.update(b'"')


def finish_digest(running: Running) -> str:
    """Close the JSON and return the digest as `sha256:<hex>`. `running` is spent."""
    running.update(_DIGEST_TAIL)
    return "sha256:" + running.hexdigest()


def pack_bytes(encoded: Sequence[bytes], digest: str, total_bytes: int) -> bytes:
    """Return the canonical JSON of a pack."""
    head = b'{"byte_count":%d,"chunk_bytes":' % byte_count(encoded, digest, total_bytes)
    return b"".join((head, array(encoded), _pack_tail(digest, total_bytes)))


def byte_count(encoded: Sequence[bytes], digest: str, total_bytes: int) -> int:
    """Return the length in bytes of the pack that holds this very number: the smallest fixed point.

    There always is one, and sometimes two (996 other bytes: 999 and 1000 both fit); the smaller counts.
    """
    others = len(b'{"byte_count":,"chunk_bytes":') + encoded_length(encoded) + len(_pack_tail(digest, total_bytes))
    digits = 1
    while len(str(others + digits)) != digits:
        digits += 1
    return others + digits


def _pack_tail(digest: str, total_bytes: int) -> bytes:
    return b',"digest":"%b","schema":"ctxpack.pack.v1","total_bytes":%d}' % (digest.encode("ascii"), total_bytes)


def delta_bytes(base_digest: str, kept_chunks: int, encoded: Optional[Sequence[bytes]], target_digest: str) -> bytes:
    """Return the canonical JSON of a delta; with `encoded` None its two parts without the array, to be counted."""
    return b"".join(
        (
            b'{"base_digest":"%b","kept_chunks":%d,"new_chunks":' % (base_digest.encode("ascii"), kept_chunks),
            b"" if encoded is None else array(encoded),
            b',"schema":"ctxpack.delta.v1","target_digest":"%b"}' % target_digest.encode("ascii"),
        )
    )
