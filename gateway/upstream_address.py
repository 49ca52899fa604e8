"""What a route's ``upstream`` says: where to connect, and what comes before each request's path."""

from dataclasses import dataclass

from yarl import URL

from config.schema import Route


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """``base`` is the URL without a closing slash, ``host`` the Host to send, ``socket`` the path of a unix socket if it is one."""

    base: str
    host: str
    socket: str | None


def upstream_address(route: Route) -> UpstreamAddress:
    """The address of a route's upstream."""
    if route.upstream.startswith("unix:"):
        return UpstreamAddress("http://localhost", route.host or "localhost", route.upstream.removeprefix("unix:"))
    url = URL(route.upstream, encoded=True)
    return UpstreamAddress(route.upstream.rstrip("/"), route.host or url.raw_authority, None)
