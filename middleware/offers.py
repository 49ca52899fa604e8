"""What a client says it takes and holds, read once an exchange."""

from dataclasses import dataclass

from aiohttp import web

from middleware.exchange import exchange_of
from middleware.negotiation import NO_BASE, AcceptEncoding, parse_ctxpack_base

PACK = "ctxpack.pack.v1"
DELTA = "ctxpack.delta.v1"
OUTER = ("gzip", "zstd")
"""Codings that may follow a ``ctxpack.*`` one."""


@dataclass(frozen=True, slots=True)
class Offers:
    """The client's side of the negotiation."""

    accept: AcceptEncoding
    """``Accept-Encoding`` with ``Ctxpack-Accept`` appended."""
    takes_pack: bool
    takes_delta: bool
    takes_dictionary: bool
    outer: tuple[str, ...]
    """Outer codings a ``ctxpack.*`` body may have."""
    bases: tuple[str, ...]
    """Digests the client named, newest first."""
    asks_pack: bool
    """``Ctxpack-Base: none``: the seed's first turn."""
    asks_why: bool

    @property
    def ctxpack(self) -> bool:
        """Whether it speaks Context Pack."""
        return self.takes_pack or self.takes_delta

    @property
    def takes_part(self) -> bool:
        """Whether bodies it gets may become bases."""
        return self.takes_pack or self.takes_delta or self.takes_dictionary


def offers_of(request: web.Request) -> Offers:
    """The offers of a request."""
    exchange = exchange_of(request)
    if exchange.offers is None:
        exchange.offers = _read(request)
    return exchange.offers


def _read(request: web.Request) -> Offers:
    headers = request.headers
    lines = headers.getall("Accept-Encoding", [])
    by_script = headers.getall("Ctxpack-Accept", [])
    accept = AcceptEncoding.parse([*lines, *by_script] if by_script else lines)
    named = parse_ctxpack_base(headers.getall("Ctxpack-Base", ()))
    return Offers(
        accept=accept,
        takes_pack=accept.accepts(PACK),
        takes_delta=accept.accepts(DELTA),
        takes_dictionary=accept.accepts("dcz"),
        outer=_outer(accept, by_script),
        bases=() if named == NO_BASE else named,
        asks_pack=named == NO_BASE,
        asks_why=headers.get("Packhorse-Debug", "").strip() == "1",
    )


def _outer(accept: AcceptEncoding, by_script: list[str]) -> tuple[str, ...]:
    """What may go around a pack or delta.

    A script undoes the outer coding itself, and browsers give it gzip but no zstd: their own ``zstd`` in Accept-Encoding
    does not count for it, unless the script said so too.
    """
    if accept.absent:
        return ()
    if not by_script:
        return tuple(coding for coding in OUTER if accept.accepts(coding))
    said = AcceptEncoding.parse(by_script)
    return tuple(
        coding for coding in OUTER if accept.accepts(coding) and (coding == "gzip" or said.weights.get(coding, 0.0) > 0)
    )
