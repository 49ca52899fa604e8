"""The operator's listener (contract 7): metrics, health, reload, drain, sessions. Nothing of it is on the data port.

Health answers never ask an upstream: a provider's outage must not restart the gateway. Where a token is set everything but
the three health paths asks for it.
"""

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from aiohttp import web

from gateway.services import Services

Answer = Callable[[web.BaseRequest], Awaitable[web.Response]]
HEALTH = frozenset({"/livez", "/healthz", "/readyz"})
_LIMIT = re.compile(r"[0-9]{1,6}\Z")


class Operated(Protocol):
    """What the admin plane may do to the gateway."""

    services: Services

    @property
    def draining(self) -> bool:
        """No new exchanges are taken."""
        ...

    def degraded(self) -> list[str]:
        """What does not work."""
        ...

    def begin_drain(self) -> None:
        """Stop listening; let what is under way finish."""
        ...

    async def reload(self) -> list[str]:
        """Read the settings again and swap them as a whole; what was wrong, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Admin:
    """The handlers of the operator's listener."""

    gateway: Operated
    token: str | None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of the operator's listener."""
        path = request.path
        methods = self._paths().get(path)
        if self.token is not None and path not in HEALTH and not self._may(request):
            return _json({"error": "send Authorization: Bearer with the admin token"}, 401)
        if methods is None:
            return _json({"error": "there is nothing here", "paths": sorted(self._paths())}, 404)
        if request.method == "POST" and _from_another_page(request):
            return _json({"error": "a page of another origin may not do this"}, 403)
        method = "GET" if request.method == "HEAD" else request.method
        if method not in methods:
            response = _json({"error": f"this path takes {', '.join(methods)}"}, 405)
            response.headers["Allow"] = ", ".join(methods)
            return response
        return await methods[method](request)

    def _paths(self) -> dict[str, dict[str, Answer]]:
        return {
            "/metrics": {"GET": self.metrics},
            "/livez": {"GET": self.live},
            "/healthz": {"GET": self.live},
            "/readyz": {"GET": self.ready},
            "/-/reload": {"POST": self.reload},
            "/-/drain": {"POST": self.drain},
            "/api": {"GET": self.index},
            "/api/": {"GET": self.index},
            "/api/sessions": {"GET": self.sessions},
            "/api/savings": {"GET": self.savings},
        }

    def _may(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, (self.token or "").encode())

    async def metrics(self, request: web.BaseRequest) -> web.Response:
        """The counters, made off the event loop."""
        text, content_type = await asyncio.to_thread(self.gateway.services.counters.exposition)
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def live(self, request: web.BaseRequest) -> web.Response:
        """The process answers."""
        return _json({"status": "alive"})

    async def ready(self, request: web.BaseRequest) -> web.Response:
        """Settings loaded and not draining."""
        draining = self.gateway.draining
        status = "draining" if draining else "ready"
        return _json({"status": status, "degraded": self.gateway.degraded()}, 503 if draining else 200)

    async def reload(self, request: web.BaseRequest) -> web.Response:
        """Swap the settings, or say why not."""
        problems = await self.gateway.reload()
        return _json({"reloaded": not problems, "problems": problems}, 422 if problems else 200)

    async def drain(self, request: web.BaseRequest) -> web.Response:
        """Begin to drain."""
        self.gateway.begin_drain()
        return _json({"status": "draining"}, 202)

    async def index(self, request: web.BaseRequest) -> web.Response:
        """What is under /api/."""
        return _json({"sessions": "/api/sessions", "savings": "/api/savings"})

    async def sessions(self, request: web.BaseRequest) -> web.Response:
        """The most recently used sessions, by hash."""
        asked = request.query.get("limit", "")
        limit = min(int(asked), 1000) if _LIMIT.match(asked) else 100
        store = self.gateway.services.store
        sizes = store.sizes()
        listed = [
            {"session": s.key, "bases": s.bases, "base_bytes": s.base_bytes, "idle_seconds": round(s.idle_seconds, 1)}
            for s in store.sessions(limit)
        ]
        held = {"bases": sizes.bases, "base_bytes": sizes.base_bytes, "sessions": sizes.sessions}
        return _json({"store": store.kind, "held": held, "sessions": listed})

    async def savings(self, request: web.BaseRequest) -> web.Response:
        """The counters' own sums, as JSON."""
        return _json(await asyncio.to_thread(self.gateway.services.counters.savings))


def _from_another_page(request: web.BaseRequest) -> bool:
    """Whether a browser sends it for a page of another origin: one that an operator visits must not stop the gateway."""
    site = request.headers.get("Sec-Fetch-Site", "none").strip().lower()
    origin = request.headers.get("Origin")
    foreign = origin is not None and origin.partition("://")[2] != request.headers.get("Host", "")
    return site not in ("none", "same-origin") or foreign


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")
