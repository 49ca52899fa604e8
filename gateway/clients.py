"""Connections towards upstreams: one pool a way of connecting (TCP trust, unix socket), shared by the routes that use it.

Pools outlive a reload: routes built anew find the warm connections they had.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from config.schema import Route
from gateway.aiohttp_seams import Tcp, Unix
from gateway.upstream_address import upstream_address

_NAMES_KEPT = 60
"""Seconds a looked-up name is kept."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Where connections come from, and whom they trust."""

    connector: aiohttp.BaseConnector
    trust: ssl.SSLContext | bool
    head_limit: int
    """Most bytes of an answer's head."""


class Clients:
    """Opens the pools that routes ask for; closes all at the end. ``head_limit`` bounds the heads of upstream answers, in bytes."""

    def __init__(self, head_limit: int) -> None:
        self._head_limit = head_limit
        self._pools: dict[tuple[str | None, str | None], Pool] = {}

    def for_route(self, route: Route) -> Pool:
        """The pool a route's upstream needs. Raises OSError for a CA file that cannot be read."""
        unix = upstream_address(route).socket
        authority = str(route.tls.ca) if route.tls.ca else None
        key = (unix, authority)
        if key not in self._pools:
            self._pools[key] = self._open(unix, route.tls.ca)
        return self._pools[key]

    def _open(self, unix: str | None, authority: Path | None) -> Pool:
        trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=str(authority)) if authority else True
        connector = Unix(unix, limit=0) if unix is not None else Tcp(limit=0, ttl_dns_cache=_NAMES_KEPT)
        return Pool(connector, trust, self._head_limit)

    async def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            await pool.connector.close()
        self._pools.clear()
