"""The least an aiohttp proxy can be: what any gateway on aiohttp starts from. ``python -m benchmarks.bare_proxy PORT UPSTREAM_PORT``

It passes method, target, fields and bodies on, drops the hop-by-hop fields, streams both ways, and does nothing else.
"""

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

_HOP_BY_HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "TE", "Trailer", "Upgrade", "Proxy-Authorization")


def _passed_on(headers: "CIMultiDict[str]") -> "CIMultiDict[str]":
    for name in _HOP_BY_HOP:
        headers.popall(name, None)
    return headers


class Proxy:
    """Passes everything to one upstream."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream

    async def run(self, port: int) -> None:
        """Serve until the process is ended."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=2**18
        ) as self._session:
            runner = web.ServerRunner(web.Server(self.handle, access_log=None, auto_decompress=False))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        headers = _passed_on(CIMultiDict(request.headers))
        headers.pop("Host", None)
        async with self._session.request(
            request.method, URL(self._upstream + request.raw_path, encoded=True), headers=headers, allow_redirects=False,
            data=request.content if request.body_exists else None,
        ) as answer:  # fmt: skip
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.extend(_passed_on(CIMultiDict(answer.headers)))
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response


if __name__ == "__main__":
    uvloop.run(Proxy(f"http://127.0.0.1:{sys.argv[2]}").run(int(sys.argv[1])))
