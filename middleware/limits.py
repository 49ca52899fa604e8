"""What is refused before a body byte is read: too much at one time, heads and bodies over their size."""

import asyncio
from typing import Annotated

from aiohttp import web
from pydantic import Field

from middleware.problems import Handler, Problem
from middleware.settings import Seconds, Settings, Size


class Limits(Settings):
    """What is refused."""

    request: Size = 64 * 2**20
    """Largest request body, as sent and decoded; further bytes are answered 413."""
    ratio: Annotated[int, Field(ge=1)] = 200
    """Largest ratio of decoded to coded bytes; bodies of up to 1 MiB decoded are always let through."""
    layers: Annotated[int, Field(ge=1, le=8)] = 4
    """Most content codings on one body."""
    headers: Size = 32 * 2**10
    """Most bytes of a message's head, from clients (431) and from upstreams (502)."""
    in_flight: Annotated[int, Field(ge=1)] = 4096
    """Most exchanges at one time; further ones are answered 429."""
    keep_alive: Seconds = 75.0
    """A client connection on which no whole message head came for this long is closed."""


class InFlight:
    """How many exchanges there are now; shared by all routes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.now = 0
        self._waiting: list[asyncio.Future[None]] = []

    def enter(self) -> None:
        """One more."""
        self.now += 1

    def leave(self) -> None:
        """One less."""
        self.now -= 1
        if not self.now and self._waiting:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiting.clear()

    async def emptied(self) -> None:
        """Return when there is none."""
        if self.now:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter


@web.middleware
class Limiter:
    """Refuses what is over a limit. ``metrics``, outside it, counts the exchanges in flight."""

    def __init__(self, limits: Limits, in_flight: InFlight) -> None:
        self._limits = limits
        self._in_flight = in_flight

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._in_flight.now > self._in_flight.most:
            raise Problem("rate-limited", "more exchanges at one time than limits.in_flight", fields={"Retry-After": "1"})
        length = request.content_length
        if length is not None and length > self._limits.request:
            raise Problem("too-large", f"the request body is over {self._limits.request} bytes (limits.request)")
        return await handler(request)
