"""Validators on their way through a gateway that codes bodies (contract 2): tags weakened here and mapped back, tags of our own."""

from aiohttp import web

from middleware.conditional import TagMemory, if_match, if_none_match, if_range_is_ours
from middleware.conditional import weaken as weak_form
from middleware.exchange import Exchange
from middleware.passing import cache_control


def to_upstream(exchange: Exchange, tags: TagMemory) -> tuple[str, ...]:
    """Map the request's validators to those the upstream knows; the tags of our own making that it asked with."""
    outgoing = exchange.outgoing
    known = tags.known(exchange.route)
    own: tuple[str, ...] = ()
    if "If-None-Match" in outgoing:
        condition = if_none_match(outgoing.getall("If-None-Match"), known)
        own = condition.own
        _replace(exchange, "If-None-Match", condition.values)
    if "If-Match" in outgoing:
        _replace(exchange, "If-Match", if_match(outgoing.getall("If-Match"), known).values)
    if "If-Range" in outgoing and if_range_is_ours(outgoing["If-Range"], known):
        outgoing.popall("If-Range", None)
        outgoing.popall("Range", None)
    return own


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


def weaken_known(exchange: Exchange, response: web.Response, tags: TagMemory) -> None:
    """A 304 carries the tag that the 200 had."""
    tag = response.headers.get("ETag")
    if tag is not None and tags.known(exchange.route)(tag.strip()):
        response.headers["ETag"] = weak_form(tag)


def wants_tag(request: web.Request, response: web.Response) -> bool:
    """Whether a tag of our own making stands in for the one the upstream does not send."""
    return (
        request.method == "GET"
        and response.status == 200
        and "ETag" not in response.headers
        and not cache_control(response.headers).no_store
    )
