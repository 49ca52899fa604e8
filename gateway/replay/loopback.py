"""A gateway and an upstream of the replay's own, for texts that no upstream has: both on loopback sockets, memory only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from config.loader import load
from gateway.replay.measuring import Turn
from gateway.replay.turns import Turns
from gateway.sample.serving import serving
from gateway.service import running

_SETTINGS = {
    "listen": "127.0.0.1:0",
    "admin.listen": "off",
    "store.kind": "memory",
    "gzip_comparison.cpu_share": 0,  # the replay asks for gzip itself
    "log.access": "off",
}


@asynccontextmanager
async def loopback(turns: Turns) -> AsyncIterator[tuple[str, list[Turn]]]:
    """Serve the texts and put a gateway with default settings before them; yields its URL and what to ask it for."""

    async def text(request: web.Request) -> web.Response:
        body = turns.texts[int(request.match_info["turn"]) - 1]
        return web.Response(body=body, headers={"Content-Type": turns.content_type})

    upstream = web.Application()
    upstream.add_routes([web.get(r"/turns/{turn:\d+}", text)])
    asked = [Turn(f"/turns/{number}", body) for number, body in enumerate(turns.texts, 1)]
    async with serving(upstream) as url:
        configuration = load(None, environ={}, overrides={"upstream": url, **_SETTINGS})
        async with running(configuration) as gateway:
            yield gateway.url, asked
