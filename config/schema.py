"""The one schema: each part's own frozen Settings, composed. docs/configuration.md is made from what is documented here.

Nothing is read here; :mod:`config.loader` reads files, environment and command line and turns errors into sentences.
"""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from middleware.access import Access
from middleware.cors import Cors
from middleware.deltas import Deltas
from middleware.limits import Limits
from middleware.link import Link, LinkClass, Network
from middleware.session import SessionNames, Sessions
from middleware.settings import Seconds, Settings, Size, switch_words

Kind = Literal["prepare", "openai", "anthropic", "plain"]
ForwardedMode = Annotated[Literal["off", "forwarded", "x-forwarded"], switch_words]


def _upstream(value: str) -> str:
    if value.startswith("unix:"):
        if not value.removeprefix("unix:").startswith("/"):
            raise ValueError("a unix upstream is unix:/path/to/socket")
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://host[:port][/path], https://... or unix:/path/to/socket")
    if parts.username or parts.password:
        raise ValueError("credentials in an upstream URL would end up in logs; send them as a field")
    if parts.query or parts.fragment:
        raise ValueError("an upstream URL has no query and no fragment")
    _ = parts.port
    return value


class Timeouts(Settings):
    """How long the gateway waits for an upstream. A healthy stream has no total limit."""

    connect: Seconds = 10.0
    """Time to a connection (name, TCP and TLS)."""
    first_byte: Seconds = 300.0
    """Time from the whole request sent to the first byte of the answer."""
    idle: Seconds = 600.0
    """Longest silence within an answer."""


class RouteTimeouts(Settings):
    """A route's own patience; what is not set here is as at the top level."""

    connect: Seconds | None = None
    """Time to a connection (name, TCP and TLS)."""
    first_byte: Seconds | None = None
    """Time from the whole request sent to the first byte of the answer."""
    idle: Seconds | None = None
    """Longest silence within an answer."""

    def over(self, general: Timeouts) -> Timeouts:
        """The timeouts in force on the route."""
        return general.model_copy(update=self.model_dump(exclude_none=True))


class UpstreamTls(Settings):
    """How an https upstream is verified. Verification cannot be switched off; name a CA instead."""

    ca: Path | None = None
    """PEM file of the certificate authorities to trust instead of the system's."""
    server_name: str | None = None
    """Name to ask for (SNI) and to verify, where the URL holds an address."""


class Route(Settings):
    """One path prefix and what is behind it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
    """Label of the route in metrics and logs."""
    match: Annotated[str, Field(pattern=r"^/")] = "/"
    """Path prefix, whole segments of the raw path; the longest match wins."""
    upstream: Annotated[str, AfterValidator(_upstream)]
    """``http://host:port/path``, ``https://...`` or ``unix:/path/to/socket``. Its path comes before the request's."""
    kind: Kind = "prepare"
    """``prepare``: documents. ``openai``, ``anthropic``: the same, and chat bodies are understood. ``plain``: proxied only."""
    strip_prefix: bool = False
    """Take ``match`` off the path before it goes upstream."""
    host: str | None = None
    """``Host`` to send, where it is not the URL's authority."""
    forwarded: ForwardedMode | None = None
    """Overrides the top-level ``forwarded``."""
    link: LinkClass | None = None
    """Class of this route's client links, unless the client says otherwise."""
    timeouts: RouteTimeouts = RouteTimeouts()
    """Overrides the top-level ``timeouts``, one by one."""
    tls: UpstreamTls = UpstreamTls()
    """Verification of an https upstream."""


class Tls(Settings):
    """Certificate of a listener."""

    certificate: Path
    """PEM file with the chain."""
    key: Path
    """PEM file with the private key."""


class Admin(Settings):
    """The operator's listener: metrics, health, sessions."""

    listen: str = "127.0.0.1:8081"
    """``host:port``, ``[v6]:port`` or ``unix:/path``; ``off`` for none. Anything but loopback needs ``token``."""
    token: str | None = None
    """``Authorization: Bearer`` that everything but the health paths asks for."""


class Store(Settings):
    """Where bases live."""

    kind: Literal["memory", "sqlite"] = "memory"
    """``memory`` forgets at a restart; ``sqlite`` does not."""
    path: Path = Path("var/packhorse.sqlite3")
    """File of the sqlite store, mode 0600. The key that hashes principals lies beside it."""
    memory: Size = 64 * 2**20
    """How much of the sqlite store is also held in memory."""


class Bases(Settings):
    """Bounds on what is kept."""

    keep: Annotated[int, Field(ge=1, le=64)] = 4
    """Exchanges of each session and route that stay."""
    max_bytes: Size = 64 * 2**20
    """Content bytes a session may hold."""
    total_bytes: Size = 256 * 2**20
    """Content bytes of all sessions together."""
    ttl: Seconds = 2 * 3600.0
    """A session unused for this long is forgotten."""


class GzipComparison(Settings):
    """What gzip would have sent, counted after the response."""

    level: Annotated[int, Field(ge=1, le=9)] = 6
    """Level compared with, and used where the gateway makes gzip itself."""
    cpu_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of one core the comparison may use; what it skips is counted."""


class Log(Settings):
    """What is written to standard error. Never a body, a key or a query string."""

    format: Literal["console", "json"] = "console"
    """Lines for people or for machines."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level written."""
    access: Annotated[Literal["on", "off"], switch_words] = "on"
    """A line an exchange."""


class Configuration(Settings):
    """Everything."""

    listen: str = "127.0.0.1:8080"
    """``host:port``, ``[v6]:port`` or ``unix:/path``."""
    tls: Tls | None = None
    """Certificate of the listener; without it, plain HTTP."""
    admin: Admin = Admin()
    """The operator's listener."""
    store: Store = Store()
    """Where bases live."""
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]
    """What is behind the gateway."""
    explain: Annotated[Literal["asked", "always"], switch_words] = "asked"
    """When ``Packhorse-Why`` and ``Server-Timing`` are sent: to clients that ask (``Packhorse-Debug: 1``), or to all."""
    deltas: Deltas = Deltas()
    """The client's link."""
    bases: Bases = Bases()
    """Bounds on what is kept."""
    link: Link = Link()
    """Classes of link."""
    gzip_comparison: GzipComparison = GzipComparison()
    """The comparison with gzip."""
    limits: Limits = Limits()
    """What is refused."""
    timeouts: Timeouts = Timeouts()
    """Patience with upstreams."""
    drain: Seconds = 30.0
    """Grace after SIGTERM."""
    session: SessionNames = SessionNames()
    """How a client may name its session."""
    sessions: Sessions = Sessions()
    """Conversations."""
    forwarded: ForwardedMode = "off"
    """Which proxy fields tell the upstream of the client."""
    trusted_proxies: tuple[Network, ...] = ()
    """Peers whose ``Forwarded`` and ``X-Forwarded-*`` are believed."""
    cors: Cors = Cors()
    """Pages of other origins."""
    access: Access = Access()
    """Who may call."""
    log: Log = Log()
    """Standard error."""

    @model_validator(mode="after")
    def _distinct(self) -> "Configuration":
        for what in ("name", "match"):
            seen: dict[str, int] = {}
            for index, route in enumerate(self.routes):
                value = getattr(route, what)
                key = value.rstrip("/") if what == "match" else value
                if key in seen:
                    raise ValueError(f"routes.{index}.{what}: {value!r} is already that of routes.{seen[key]}")
                seen[key] = index
        return self
