"""Fields that end here (RFC 9110 7.6.1), both ways, before the gateway adds any of its own."""

from aiohttp import web
from multidict import CIMultiDict

from middleware.exchange import exchange_of
from middleware.fields import OWN_REQUEST, drop_cookie, drop_hop_by_hop
from middleware.negotiation import AcceptEncoding
from middleware.problems import Handler, Problem


@web.middleware
async def hop_by_hop(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Take them out of what goes upstream and of what comes back; refuse expectations nobody can meet."""
    expectation = request.headers.get("Expect")
    if expectation is not None and expectation.strip().lower() != "100-continue":
        raise Problem("bad-request", "the only expectation that can be met is 100-continue", status=417)
    exchange = exchange_of(request)
    drop_hop_by_hop(exchange.outgoing, also=OWN_REQUEST)
    drop_cookie(exchange.outgoing)
    _keep_own_codings(exchange.outgoing)
    response = await handler(request)
    if not response.prepared:
        drop_hop_by_hop(response.headers)
    return response


def _keep_own_codings(outgoing: "CIMultiDict[str]") -> None:
    """``dcz`` and ``ctxpack.*`` are between the client and the gateway: the upstream is not offered them."""
    lines = outgoing.getall("Accept-Encoding", ())
    if lines:
        accept = AcceptEncoding.parse(lines)
        forwarded = accept.forwarded()
        if forwarded is not None and forwarded != accept.text:
            outgoing["Accept-Encoding"] = forwarded
