"""A stranger's gateway of thirty lines: packs and deltas as contract 1 to 3 have them, and lies on request.

The real gateway cannot be made to lie, so what replay must catch is played by this one.
"""

import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiohttp import web

from ctxpack import ContextPack, ContextPackDelta
from gateway.sample.serving import serving

Spoil = Callable[[web.Request, web.Response], None]
Stub = Callable[..., AbstractAsyncContextManager[str]]


class Stranger:
    """Serves texts by turn, and echoes."""

    def __init__(self, texts: list[bytes], spoil: Spoil) -> None:
        self.texts, self.spoil, self.seen = texts, spoil, {}

    async def text(self, request: web.Request) -> web.Response:
        return self.coded(request, self.texts[int(request.match_info["turn"]) - 1])

    async def echo(self, request: web.Request) -> web.Response:
        return self.coded(request, await request.read())

    def coded(self, request: web.Request, body: bytes) -> web.Response:
        takes = request.headers["Accept-Encoding"]
        pack = ContextPack.from_utf8(body)
        self.seen[pack.digest] = pack
        base = self.seen.get(request.headers.get("Ctxpack-Base", ""))
        codings = []
        if "ctxpack.pack.v1" in takes:
            body, codings = pack.to_bytes(), ["ctxpack.pack.v1"]
        elif "ctxpack.delta.v1" in takes and base is not None:
            body, codings = ContextPackDelta.between(base, pack).to_bytes(), ["ctxpack.delta.v1"]
        if "gzip" in takes:
            body, codings = gzip.compress(body, mtime=0), [*codings, "gzip"]
        answer = web.Response(body=body)
        if codings:
            answer.headers["Content-Encoding"] = ", ".join(codings)
        if "ctxpack" in takes:
            answer.headers["Ctxpack-Digest"] = pack.digest
        self.spoil(request, answer)
        return answer


@pytest.fixture
def stranger() -> Stub:
    @asynccontextmanager
    async def serve(texts: list[bytes], spoil: Spoil = lambda _request, _answer: None) -> AsyncIterator[str]:
        one = Stranger(texts, spoil)
        application = web.Application()
        application.add_routes([web.get(r"/turns/{turn:\d+}", one.text), web.post("/echo", one.echo)])
        async with serving(application) as url:
            yield url

    return serve
