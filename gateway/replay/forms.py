"""The five forms a turn is asked for in, and how a client that knows nothing but the wire gets its text back. No sockets.

The client here is a stranger on purpose: it holds what it received, makes its own packs of it, and shares neither
memory nor objects with the gateway.
"""

import zlib
from dataclasses import dataclass
from typing import Literal

from ctxpack import ContextPack, ContextPackDelta, ContextPackError, apply_delta


class Broken(Exception):
    """A body that does not lead back to its text; the message says where it failed."""


@dataclass(frozen=True)
class Form:
    """One way of asking."""

    name: str
    """As tables show it."""
    key: str
    """As JSON and session names have it."""
    accept: str
    """``Accept-Encoding``."""
    bases: Literal["unsaid", "none", "last"]
    """``Ctxpack-Base``: not sent, ``none``, or the digest of the turn before."""


FORMS = (
    Form("raw", "raw", "identity", "unsaid"),
    # identity;q=0, because a full pack is always larger than its text: a gateway sends one only to whom insists
    Form("full packs", "packs", "ctxpack.pack.v1, identity;q=0", "none"),
    Form("deltas", "deltas", "ctxpack.delta.v1", "last"),
    Form("deltas + gzip", "deltas-gzip", "ctxpack.delta.v1, gzip", "last"),
    Form("gzip", "gzip", "gzip", "unsaid"),
)
"""In the order of the seed's table. The first gives the text that the others are checked against."""


def undo(body: bytes, codings: list[str], base: ContextPack | None) -> bytes:
    """The text of a body in these content codings, in the order they were applied. Raises `Broken`."""
    for coding in reversed(codings):
        try:
            body = _undo_one(body, coding, base)
        except ContextPackError as error:
            raise Broken(f"{coding} was refused: {error}") from error
        except zlib.error as error:
            raise Broken(f"{coding} is damaged: {error}") from error
    return body


def _undo_one(body: bytes, coding: str, base: ContextPack | None) -> bytes:
    match coding:
        case "identity":
            return body
        case "gzip":
            unzip = zlib.decompressobj(wbits=31)
            text = unzip.decompress(body)
            if not unzip.eof or unzip.unused_data:
                raise Broken("gzip does not end where the body ends")
            return text
        case "ctxpack.pack.v1":
            return ContextPack.from_bytes(body).content_bytes
        case "ctxpack.delta.v1":
            if base is None:
                raise Broken("a delta came, but no base was named")
            return apply_delta(base, ContextPackDelta.from_bytes(body)).content_bytes
        case _:
            raise Broken(f"the answer is in {coding!r}, which was not asked for")
