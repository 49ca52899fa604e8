"""What a client says it takes and holds, read once an exchange."""

from dataclasses import dataclass
from functools import lru_cache

from aiohttp import web

from middleware.exchange import exchange_of
from middleware.negotiation import NO_BASE, AcceptEncoding, parse_ctxpack_base

PACK = "ctxpack.pack.v1"
DELTA = "ctxpack.delta.v1"
MADE = ("gzip", "zstd")
"""Plain codings the gateway makes; they may follow a ``ctxpack.*`` one."""
_CACHED_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Taken:
    """What a client takes: the same for all its requests, so it is worked out once."""

    accept: AcceptEncoding
    """``Accept-Encoding`` with ``Ctxpack-Accept`` appended."""
    pack: bool
    delta: bool
    dictionary: bool
    identity: bool
    made: tuple[str, ...]
    """Plain codings the gateway makes that the client said it takes."""
    outer: tuple[str, ...]
    """Codings a ``ctxpack.*`` body may have around it."""

    @property
    def ctxpack(self) -> bool:
        """Whether it speaks Context Pack."""
        return self.pack or self.delta

    @property
    def takes_part(self) -> bool:
        """Whether bodies it gets may become bases."""
        return self.pack or self.delta or self.dictionary


@dataclass(frozen=True, slots=True)
class Offers:
    """The client's side of the negotiation."""

    taken: Taken
    bases: tuple[str, ...]
    """Digests the client named, newest first."""
    asks_pack: bool
    """``Ctxpack-Base: none``: the seed's first turn."""
    asks_why: bool

    @property
    def takes_part(self) -> bool:
        """Whether bodies it gets may become bases."""
        return self.taken.takes_part


def offers_of(request: web.Request) -> Offers:
    """The offers of a request."""
    exchange = exchange_of(request)
    if exchange.offers is None:
        exchange.offers = _read(request)
    return exchange.offers


def _read(request: web.Request) -> Offers:
    headers = request.headers
    named = parse_ctxpack_base(headers.getall("Ctxpack-Base")) if "Ctxpack-Base" in headers else ()
    return Offers(
        taken=taken(tuple(headers.getall("Accept-Encoding", ())), tuple(headers.getall("Ctxpack-Accept", ()))),
        bases=() if named == NO_BASE else named,
        asks_pack=named == NO_BASE,
        asks_why=headers.get("Packhorse-Debug", "").strip() == "1",
    )


def taken(lines: tuple[str, ...], by_script: tuple[str, ...]) -> Taken:
    """What a client takes, from its Accept-Encoding and Ctxpack-Accept lines."""
    short = sum(map(len, lines)) + sum(map(len, by_script)) <= _CACHED_LENGTH
    return _cached(lines, by_script) if short else _taken(lines, by_script)


def _taken(lines: tuple[str, ...], by_script: tuple[str, ...]) -> Taken:
    accept = AcceptEncoding.parse((*lines, *by_script))
    made = () if accept.absent else tuple(coding for coding in MADE if accept.accepts(coding))
    outer = made
    if by_script:
        # A script undoes the outer coding itself, and browsers give it gzip but no zstd: their own zstd in Accept-Encoding
        # does not count for it, unless the script said so too.
        said = AcceptEncoding.parse(by_script)
        outer = tuple(coding for coding in made if coding == "gzip" or said.weights.get(coding, 0.0) > 0)
    return Taken(
        accept, accept.accepts(PACK), accept.accepts(DELTA), accept.accepts("dcz"), accept.accepts("identity"), made, outer
    )


_cached = lru_cache(maxsize=1024)(_taken)
