"""Who the client is behind trusted proxies, and what the upstream is told of it (RFC 9110 7.6.3, RFC 7239).

Only peers in ``trusted_proxies`` are believed. What an untrusted client wrote in proxy fields never goes upstream; by default
(``off``) the upstream learns no client address at all.
"""

import secrets
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Literal

from aiohttp import web

from middleware.exchange import Exchange, exchange_of
from middleware.fields import FORWARDING, drop
from middleware.problems import Handler, Problem
from middleware.proxy_claims import Claims, forwarded_claims, parse_address, x_forwarded_claims

Mode = Literal["off", "forwarded", "x-forwarded"]
Networks = Sequence[IPv4Network | IPv6Network]

PSEUDONYM = f"packhorse-{secrets.token_hex(3)}"
"""Our name in Via: random, so that a chain of gateways is told from a gateway that was made its own upstream."""


def networks(cidrs: Sequence[str]) -> Networks:
    """Parsed networks, once at load."""
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


def inside(address: str | None, nets: Networks) -> bool:
    """Whether an address is in one of the networks. An IPv4 address mapped into IPv6 counts as the former."""
    if not nets:
        return False
    parsed = parse_address((address or "").strip().strip("[]").partition("%")[0])
    return parsed is not None and any(parsed in net for net in nets if net.version == parsed.version)


@web.middleware
class Forwarded:
    """Finds the client, rewrites the proxy fields, and stops a request that has been here before."""

    def __init__(self, mode: Mode, trusted: Networks, via: str = PSEUDONYM) -> None:
        self._mode = mode
        self._trusted = trusted
        self._via = via

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        sender = request.remote or None
        exchange.secure = _tls(request)
        # A peer on a unix socket has no address; only the operator's own proxy can be there.
        believed = bool(self._trusted) and (sender is None or inside(sender, self._trusted))
        claims = _claims(request) if believed else Claims()
        exchange.peer = self._client(claims.addresses, sender)
        exchange.secure = exchange.secure or claims.scheme == "https"
        self._rewrite(request, exchange, claims.addresses, sender)
        return await handler(request)

    def _client(self, hops: Sequence[str | None], sender: str | None) -> str | None:
        """The first address, from the nearest on, that is not one of our own proxies; a hop that is not told ends the search."""
        nearest = sender
        for address in reversed(hops):
            if address is None:
                break
            nearest = address
            if not inside(address, self._trusted):
                break
        return nearest

    def _rewrite(self, request: web.Request, exchange: Exchange, hops: Sequence[str | None], sender: str | None) -> None:
        outgoing = exchange.outgoing
        drop(outgoing, FORWARDING)
        vias = outgoing.getall("Via", [])
        if any(self._via in via for via in vias):
            raise Problem("upstream-unreachable", "the request has passed this gateway before: an upstream is set to itself")
        version = f"{request.version.major}.{request.version.minor}"
        outgoing.popall("Via", None)
        outgoing["Via"] = ", ".join([*vias, f"{version} {self._via}"])
        if self._mode == "off":
            return
        scheme = "https" if exchange.secure else "http"
        host = request.headers.get("Host", "")
        nearest = parse_address(sender)
        addresses = [*hops, *([str(nearest)] if nearest else [])]
        if self._mode == "x-forwarded":
            outgoing["X-Forwarded-For"] = ", ".join(address for address in addresses if address is not None)
            outgoing["X-Forwarded-Proto"] = scheme
            if host:
                outgoing["X-Forwarded-Host"] = host
        else:
            told = [f"for={_node(address)}" for address in addresses] or ["for=unknown"]
            told[-1] += f";proto={scheme}" + (f';host="{_quoted(host)}"' if host else "")
            outgoing["Forwarded"] = ", ".join(told)


def _tls(request: web.Request) -> bool:
    return request.transport is not None and request.transport.get_extra_info("ssl_object") is not None


def _claims(request: web.Request) -> Claims:
    """What a trusted proxy said."""
    headers = request.headers
    lines = headers.getall("Forwarded", ())
    if lines:
        return forwarded_claims(lines)
    return x_forwarded_claims(headers.getall("X-Forwarded-For", ()), headers.getall("X-Forwarded-Proto", ()))


def _node(address: str | None) -> str:
    if address is None:
        return "unknown"
    return f'"[{address}]"' if ":" in address else address


def _quoted(host: str) -> str:
    return host.replace("\\", "\\\\").replace('"', '\\"')
