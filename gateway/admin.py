"""The operator's listener (contract 7): metrics, health, reload, drain, sessions. Nothing of it is on the data port.

Health answers never ask an upstream: a provider's outage must not restart the gateway. Where a token is set everything but
the three health paths asks for it.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from aiohttp import web

from gateway.services import Services


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
    """The admin application's handlers."""

    gateway: Operated
    token: str | None

    def application(self) -> web.Application:
        """An aiohttp application of its own, on a listener of its own."""
        app = web.Application(middlewares=[self._authorise])
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/livez", self.live)
        app.router.add_get("/healthz", self.live)
        app.router.add_get("/readyz", self.ready)
        app.router.add_post("/-/reload", self.reload)
        app.router.add_post("/-/drain", self.drain)
        app.router.add_get("/api/sessions", self.sessions)
        app.router.add_get("/api/savings", self.savings)
        return app

    @web.middleware
    async def _authorise(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self.token is not None and request.path not in ("/livez", "/healthz", "/readyz"):
            given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, self.token.encode()):
                return _json({"error": "send Authorization: Bearer with the admin token"}, 401)
        return await handler(request)

    async def metrics(self, request: web.Request) -> web.Response:
        """The counters, made off the event loop."""
        text, content_type = await asyncio.to_thread(self.gateway.services.counters.exposition)
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def live(self, request: web.Request) -> web.Response:
        """The process answers."""
        return _json({"status": "alive"})

    async def ready(self, request: web.Request) -> web.Response:
        """Settings loaded and not draining."""
        draining = self.gateway.draining
        status = "draining" if draining else "ready"
        return _json({"status": status, "degraded": self.gateway.degraded()}, 503 if draining else 200)

    async def reload(self, request: web.Request) -> web.Response:
        """Swap the settings, or say why not."""
        problems = await self.gateway.reload()
        return _json({"reloaded": not problems, "problems": problems}, 422 if problems else 200)

    async def drain(self, request: web.Request) -> web.Response:
        """Begin to drain."""
        self.gateway.begin_drain()
        return _json({"status": "draining"}, 202)

    async def sessions(self, request: web.Request) -> web.Response:
        """The most recently used sessions, by hash."""
        limit = min(int(request.query.get("limit", "100")), 1000) if request.query.get("limit", "100").isdigit() else 100
        store = self.gateway.services.store
        sizes = store.sizes()
        listed = [
            {"session": s.key, "bases": s.bases, "base_bytes": s.base_bytes, "idle_seconds": round(s.idle_seconds, 1)}
            for s in store.sessions(limit)
        ]
        held = {"bases": sizes.bases, "base_bytes": sizes.base_bytes, "sessions": sizes.sessions}
        return _json({"store": store.kind, "held": held, "sessions": listed})

    async def savings(self, request: web.Request) -> web.Response:
        """The counters' own sums, as JSON."""
        return _json(await asyncio.to_thread(self.gateway.services.counters.savings))


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")
