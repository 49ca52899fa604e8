"""Client sessions towards upstreams: one a way of connecting (TCP trust, unix socket), shared by the routes that use it.

Sessions outlive a reload: routes built anew find the pool of warm connections they had.
"""

import ssl
from pathlib import Path

import aiohttp
from multidict import istr

from config.schema import Route
from gateway.aiohttp_seams import Tcp, Unix, never_replay
from gateway.upstream import upstream_address

_AUTO = frozenset(istr(name) for name in ("Accept", "Accept-Encoding", "User-Agent", "Content-Type"))
_MOST_FIELDS = 4096
_READ_BUFFER = 2**18


class Clients:
    """Opens what routes ask for; closes all at the end. ``head_limit`` bounds the heads of upstream answers, in bytes."""

    def __init__(self, head_limit: int) -> None:
        self._head_limit = head_limit
        self._sessions: dict[tuple[str | None, str | None], aiohttp.ClientSession] = {}

    def for_route(self, route: Route) -> aiohttp.ClientSession:
        """The session a route's upstream needs."""
        unix = upstream_address(route)[2]
        authority = str(route.tls.ca) if route.tls.ca else None
        key = (unix, authority)
        if key not in self._sessions:
            self._sessions[key] = self._open(unix, route.tls.ca)
        return self._sessions[key]

    def _open(self, unix: str | None, authority: Path | None) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if unix is not None:
            connector = Unix(unix, limit=0)
        else:
            trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=str(authority)) if authority else True
            connector = Tcp(limit=0, ssl=trust, ttl_dns_cache=60)
        session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, skip_auto_headers=_AUTO,
            trust_env=False, max_line_size=self._head_limit, max_field_size=self._head_limit, max_headers=_MOST_FIELDS,
            read_bufsize=_READ_BUFFER, requote_redirect_url=False,
        )  # fmt: skip
        return never_replay(session)

    async def close(self) -> None:
        """Close every session and connection."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
