"""The way of a request, as one visible list. A middleware's two halves are one function: the way back is the same list upwards."""

import functools
from collections.abc import Awaitable, Sequence
from typing import Protocol

from aiohttp import web

from config.schema import Configuration, Route
from gateway.router import Built, Router, refuse
from gateway.services import Services
from gateway.upstream import Forwarder
from middleware.access import Principal
from middleware.cors import CrossOrigin
from middleware.deltas import DeltaCoder
from middleware.forwarded import Forwarded, networks
from middleware.hop_by_hop import hop_by_hop
from middleware.limits import Limiter
from middleware.link import LinkClassifier
from middleware.metrics import Metrics
from middleware.problems import Handler, problems
from middleware.request_id import request_id
from middleware.session import SessionFinder
from middleware.uploads import UploadReader


class Middleware(Protocol):
    """aiohttp's own shape: a function, or an object that is called like one."""

    def __call__(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        """Serve the request, with ``handler`` for the rest of the way."""
        ...


def build(configuration: Configuration, services: Services) -> Router:
    """Every route's chain from one configuration; built anew, as a whole, at each reload."""
    for route in configuration.routes:
        services.counters.route(route.name)  # at zero from the start, so that rate() sees the first increment
    routes = [
        Built(
            route.name,
            route.match,
            route.kind,
            compose(middlewares(configuration, route, services), _forwarder(route, configuration, services)),
        )
        for route in configuration.routes
    ]
    return Router(routes, compose(outside(configuration, services), refuse))


def middlewares(configuration: Configuration, route: Route, services: Services) -> list[Middleware]:
    """The list, outermost first."""
    trusted = networks(configuration.trusted_proxies)
    mode = route.forwarded or configuration.forwarded
    return [
        *outside(configuration, services),
        Limiter(configuration.limits, services.in_flight),  # size and number, before a body byte is read
        hop_by_hop,  # RFC 9110 7.6.1, before we add any field of our own
        Forwarded(mode, trusted),  # who the client is behind trusted proxies
        Principal(configuration.access, services.principals),  # who is calling
        LinkClassifier(configuration.link, route.link),  # weak, metered or normal
        *(link_side(configuration, route, services) if route.kind != "plain" else []),
    ]


def link_side(configuration: Configuration, route: Route, services: Services) -> list[Middleware]:
    """What a plain route has none of."""
    uploads = UploadReader(configuration.limits, route.timeouts.over(configuration.timeouts).idle)
    level = configuration.gzip_comparison.level
    return [
        SessionFinder(configuration.session, services.principals, uploads, route.upstream),  # which conversation this is
        DeltaCoder(  # request: read and check.  response: smallest form, then keep as base
            configuration.deltas,
            configuration.limits,
            level,
            services.store,
            uploads,
            services.tags,
            explain_always=configuration.explain == "always",
        ),
        # the place of coded event streams and of dcz is in deltas; the place of chat context is here, inside it, so that the
        # client's bases are the client's own bytes and the upstream sees the rewritten ones
    ]


def outside(configuration: Configuration, services: Services) -> list[Middleware]:
    """What even a request without a route passes."""
    return [
        request_id,  # every later line can name the exchange
        Metrics(services.recorder, services.in_flight),  # outside everything that can refuse, so refusals are counted
        CrossOrigin(configuration.cors),  # around what refuses, so that a page can read the refusal
        problems,  # exception -> RFC 9457 problem, once
    ]


def compose(chain: Sequence[Middleware], handler: Handler) -> Handler:
    """One handler of a list of middlewares, as aiohttp itself would build it."""
    for middleware in reversed(chain):
        handler = functools.partial(middleware, handler=handler)
    return handler


def _forwarder(route: Route, configuration: Configuration, services: Services) -> Forwarder:
    timeouts = route.timeouts.over(configuration.timeouts)
    return Forwarder(route, timeouts, services.clients.for_route(route), configuration.limits.request)
