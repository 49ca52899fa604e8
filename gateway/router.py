"""From a request to its route: whole segments of the raw path, longest prefix first (contract 10)."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from gateway.target import climbs_out, split_target, under
from middleware.exchange import exchange_of
from middleware.problems import Handler, Problem

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE"


@dataclass(frozen=True, slots=True)
class Built:
    """A route ready to serve: its prefix, its label and kind, and the whole chain behind it."""

    name: str
    match: str
    kind: str
    handler: Handler


class Router:
    """Chooses. What no route can take goes down ``unrouted``, a chain that counts and refuses, as a Problem."""

    def __init__(self, routes: Sequence[Built], unrouted: Handler) -> None:
        self._routes = sorted(routes, key=lambda route: len(route.match.rstrip("/")), reverse=True)
        self._unrouted = unrouted

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        exchange = exchange_of(request)
        if exchange.refused is not None:
            return await self._unrouted(request)
        try:
            route = self.choose(request.method, request.raw_path)
        except Problem as problem:
            exchange.refused = problem
            return await self._unrouted(request)
        exchange.route, exchange.kind = route.name, route.kind
        return await route.handler(request)

    def choose(self, method: str, raw_target: str) -> Built:
        """The route of a target. Raises Problem where there is none to have."""
        if method == "CONNECT":
            raise Problem("bad-request", "CONNECT is not served", status=405, fields={"Allow": METHODS})
        path = split_target(raw_target).path
        for route in self._routes:
            if under(path, route.match):
                if climbs_out(path, route.match):
                    raise Problem("bad-request", "dot segments in the path lead out of its route")
                return route
        raise Problem("no-route", "no route's match is a prefix of this path")


async def refuse(request: web.Request) -> web.StreamResponse:
    """The end of the unrouted chain: answer ``OPTIONS *``, raise whatever the router found for the rest."""
    if request.method == "OPTIONS" and request.raw_path == "*":
        return web.Response(status=204, headers={"Allow": METHODS})
    problem = exchange_of(request).refused
    raise problem or Problem("no-route", "no route's match is a prefix of this path")
