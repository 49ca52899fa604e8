"""Undoing an upstream's codings piece by piece, for a client that cannot: an event stream stays one event at a time."""

from collections.abc import AsyncIterator

from middleware.body import Body, close_source
from middleware.codings import CodingError, Decoder
from middleware.limits import Limits
from middleware.problems import Problem

_ANY_SIZE = 2**62
"""Bytes: nothing is held here, so a bound on the ratio is enough."""


def upstream_lied(error: CodingError) -> Problem:
    """The upstream's body is not what it says."""
    return Problem("upstream-cut", f"the upstream's body is not what its Content-Encoding says: {error.kind}")


def undone(body: Body, codings: tuple[str, ...], limits: Limits) -> Body:
    """A body that sends the same content uncoded; within limits, and cut where the coding is broken."""
    replacement = Body(_undo(body, codings, limits))
    replacement.on_end, replacement.tail = body.on_end, body.tail
    return replacement


async def _undo(body: Body, codings: tuple[str, ...], limits: Limits) -> AsyncIterator[bytes]:
    source = body.take()
    decoder = Decoder(codings, limit=_ANY_SIZE, ratio=limits.ratio, layers=limits.layers)
    try:
        async for piece in source:
            for decoded in decoder.pieces(piece):
                yield decoded
        rest = decoder.finish()
        if rest:
            yield rest
    except CodingError as error:
        raise upstream_lied(error) from error
    finally:
        await close_source(source)
