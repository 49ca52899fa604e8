"""Who the client is behind trusted proxies, and what the upstream is told of it (RFC 9110 7.6.3, RFC 7239).

Only peers in ``trusted_proxies`` are believed. What an untrusted client wrote in proxy fields never goes upstream; by default
(``off``) the upstream learns no client address at all.
"""

import secrets
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from aiohttp import web

from middleware.exchange import Exchange, exchange_of
from middleware.fields import FORWARDING, drop
from middleware.problems import Handler, Problem

Mode = Literal["off", "forwarded", "x-forwarded"]
Networks = Sequence[IPv4Network | IPv6Network]

PSEUDONYM = f"packhorse-{secrets.token_hex(3)}"
"""Our name in Via: random, so that a chain of gateways is told from a gateway that was made its own upstream."""


def networks(cidrs: Sequence[str]) -> Networks:
    """Parsed networks, once at load."""
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


def inside(address: str | None, nets: Networks) -> bool:
    """Whether an address is in one of the networks. An IPv4 address mapped into IPv6 counts as the former."""
    parsed = _address(address)
    return parsed is not None and any(parsed in net for net in nets if net.version == parsed.version)


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address((text or "").strip().strip("[]").split("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


@web.middleware
class Forwarded:
    """Finds the client, rewrites the proxy fields, and stops a request that has been here before."""

    def __init__(self, mode: Mode, trusted: Networks, via: str = PSEUDONYM) -> None:
        self._mode = mode
        self._trusted = trusted
        self._via = via

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        sender = request.remote
        exchange.peer, exchange.secure = sender, _tls(request)
        believed = bool(self._trusted) and (sender in (None, "") or inside(sender, self._trusted))
        chain, proto = _claims(request) if believed else ([], None)
        if believed:
            exchange.peer = self._client(chain, sender)
            exchange.secure = exchange.secure or proto == "https"
        self._rewrite(request, exchange, chain, sender)
        return await handler(request)

    def _client(self, chain: list[str], sender: str | None) -> str | None:
        """The first address, from the nearest on, that is not one of our own proxies."""
        for address in reversed(chain):
            if not inside(address, self._trusted):
                return address
        return chain[0] if chain else sender

    def _rewrite(self, request: web.Request, exchange: Exchange, chain: list[str], sender: str | None) -> None:
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
        proto = "https" if exchange.secure else "http"
        host = request.headers.get("Host", "")
        addresses = [*chain, *([sender] if sender else [])]
        if self._mode == "x-forwarded":
            outgoing["X-Forwarded-For"] = ", ".join(addresses)
            outgoing["X-Forwarded-Proto"] = proto
            if host:
                outgoing["X-Forwarded-Host"] = host
        else:
            hops = [f"for={_node(address)}" for address in addresses] or ["for=unknown"]
            hops[-1] += f";proto={proto}" + (f';host="{_quoted(host)}"' if host else "")
            outgoing["Forwarded"] = ", ".join(hops)


def _tls(request: web.Request) -> bool:
    return request.transport is not None and request.transport.get_extra_info("ssl_object") is not None


def _claims(request: web.Request) -> tuple[list[str], str | None]:
    """Addresses, farthest first, and the scheme, as a trusted proxy gave them."""
    lines = request.headers.getall("Forwarded", ())
    if lines:
        return _parse_forwarded(",".join(lines))
    chain = [part.strip() for part in ",".join(request.headers.getall("X-Forwarded-For", ())).split(",") if part.strip()]
    proto = request.headers.get("X-Forwarded-Proto", "").split(",")[-1].strip().lower()
    return [address for address in chain if _address(_host(address)) is not None], proto or None


def _parse_forwarded(text: str) -> tuple[list[str], str | None]:
    chain: list[str] = []
    proto: str | None = None
    for element in text.split(","):
        for pair in element.split(";"):
            name, _, value = pair.strip().partition("=")
            value = value.strip().strip('"')
            if name.lower() == "for" and _address(_host(value)) is not None:
                chain.append(_host(value))
            elif name.lower() == "proto":
                proto = value.lower()
    return chain, proto


def _host(node: str) -> str:
    """A node without its port."""
    node = node.strip().strip('"')
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


def _node(address: str) -> str:
    return f'"[{address}]"' if ":" in address else address


def _quoted(host: str) -> str:
    return host.replace("\\", "\\\\").replace('"', '\\"')
