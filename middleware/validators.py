"""Validators on their way through a gateway that codes bodies (contract 2): tags weakened here and mapped back, tags of our own."""

from aiohttp import web

from middleware.conditional import TagMemory, if_match, if_none_match, if_range_is_ours, matches
from middleware.conditional import weaken as weak_form
from middleware.exchange import Exchange
from middleware.passing import cache_control


def to_upstream(exchange: Exchange, tags: TagMemory) -> None:
    """Map the request's validators to those the upstream knows; tags of our own making it is not asked with."""
    outgoing = exchange.outgoing
    known = tags.known(exchange.route)
    if "If-None-Match" in outgoing:
        _replace(exchange, "If-None-Match", if_none_match(outgoing.getall("If-None-Match"), known).values)
    if "If-Match" in outgoing:
        _replace(exchange, "If-Match", if_match(outgoing.getall("If-Match"), known).values)
    if "If-Range" in outgoing and if_range_is_ours(outgoing["If-Range"], known):
        outgoing.popall("If-Range", None)
        outgoing.popall("Range", None)


def _replace(exchange: Exchange, name: str, values: tuple[str, ...]) -> None:
    if list(values) != exchange.outgoing.getall(name):
        exchange.outgoing.popall(name, None)
        for value in values:
            exchange.outgoing.add(name, value)


def weaken(exchange: Exchange, response: web.Response, tags: TagMemory) -> None:
    """A body coded here is not byte for byte what a strong tag promises (RFC 9110 8.8.1)."""
    tag = response.headers.get("ETag")
    if tag is not None:
        response.headers["ETag"] = tags.weaken(exchange.route, tag)


def weaken_as_asked(request: web.Request, response: web.Response) -> None:
    """A 304 carries the tag of the 200 that the client has: the weak form where it asked with that."""
    tag = response.headers.get("ETag")
    if tag is not None and any(weak_form(tag) in line for line in request.headers.getall("If-None-Match", ())):
        response.headers["ETag"] = weak_form(tag)


def asked_with(request: web.Request, tag: str) -> bool:
    """Whether If-None-Match names a tag of our own making."""
    return matches(request.headers.getall("If-None-Match", ()), tag)


def wants_tag(request: web.Request, response: web.Response) -> bool:
    """Whether a tag of our own making stands in for the one the upstream does not send."""
    return (
        request.method == "GET"
        and response.status == 200
        and "ETag" not in response.headers
        and not cache_control(response.headers).no_store
    )
