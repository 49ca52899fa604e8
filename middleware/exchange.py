"""What the middlewares know of the exchange in hand: one value a request, filled in as it passes.

Facts only. Each field has one writer (named beside it) and any number of readers; counters and log lines are made from it
when the exchange ends, so nothing on the way has to wait for them.
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

from middleware.stores import Owner

if TYPE_CHECKING:
    from middleware.keeping import RequestBase
    from middleware.offers import Offers


@dataclass(slots=True)
class Exchange:
    """The facts of one exchange. Times are seconds of :func:`time.perf_counter`; sizes are bytes."""

    outgoing: CIMultiDict[str]
    """Request fields as they will go upstream. hop_by_hop cleans them, later middlewares take out and add."""
    started: float = field(default_factory=time.perf_counter)
    id: str = ""
    """request_id"""
    route: str = "none"
    """The server's router."""
    kind: str = "plain"
    """The server's router."""
    expects: bool = False
    """The server: the client waits for 100 before it sends its body."""
    peer: str | None = None
    """forwarded: the client's address, seen through trusted proxies."""
    secure: bool = False
    """forwarded: the client speaks https to us or to a trusted proxy."""
    principal: str | None = None
    """access: keyed hash of the caller's credentials, or the name of its key."""
    owner: Owner | None = None
    """session: whose bases these are; None where the exchange has no session."""
    made_session: str | None = None
    """session: the id the gateway made for this client."""
    opted_in: bool = False
    """session: the client named its session by our own field or cookie."""
    offers: "Offers | None" = None
    """offers: what the client takes and holds."""
    link: str = "metered"
    """link: class of the client's link."""
    link_evidence: str = "assumed"
    """link: what decided."""
    cors_allowed: bool = False
    """cors: the operator allows this page's origin."""
    request_body: bytes | None = None
    """deltas: the request body as the client sent it, where it was read whole; goes upstream as it is."""
    request_decoded: bytes | None = None
    """deltas: the same, decoded. upstream: a copy of one that was sent on as it came, where that was asked for."""
    copy_upload: int = 0
    """deltas: the most bytes of such a copy; 0 for none."""
    request_base: "RequestBase | None" = None
    """deltas: the request as a base."""
    sent_upstream_at: float = 0.0
    """upstream"""
    upstream_seconds: float = 0.0
    """upstream: from the request sent to the head of the answer."""
    upstream_error: str | None = None
    """upstream: why it failed, one of a fixed set of words."""
    refused: Exception | None = None
    """The server: why no route takes the request."""
    refusal: str | None = None
    """problems: code of the problem the gateway answered with."""
    upstream_done_at: float = 0.0
    """deltas: when the whole answer was here, where it was waited for."""
    head_ready_at: float = 0.0
    """metrics"""
    why: str = "streamed"
    """deltas: one word for what was done."""
    coding: str = "identity"
    """deltas: the coding sent."""
    original: int | None = None
    """deltas: size of the response body uncoded, where it is known."""
    gzip_size: int | None = None
    """deltas: what gzip made of it, where it was computed."""
    decoded: bytes | None = None
    """deltas: the response body uncoded, for the comparison; None where it was not read."""
    lookups: list[str] = field(default_factory=list)
    """deltas: what became of each base named: hit, unknown, foreign."""


EXCHANGE = web.RequestKey("packhorse", Exchange)


def exchange_of(request: web.Request) -> Exchange:
    """The exchange of a request; begun here if this is the first middleware to ask."""
    try:
        return request[EXCHANGE]
    except KeyError:
        begun = request[EXCHANGE] = Exchange(outgoing=CIMultiDict(request.headers))
        return begun


async def send_continue(request: web.Request) -> None:
    """Say ``100 Continue`` if the client still waits for it. Called when the first byte of the body is wanted."""
    exchange = exchange_of(request)
    if exchange.expects:
        exchange.expects = False
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
