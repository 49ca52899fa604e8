"""Request bodies that must be read: whole, decoded, or refused before anything was forwarded."""

import gzip
import json
import random
import struct
import zlib
from typing import Any

import brotli
import pytest
from aiohttp import web
from backports import zstd
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.messages import FieldsLike, Response, chunked
from support.packs import gzipped
from support.upstream import Reply, upstream

from middleware.codings import DECODABLE
from middleware.exchange import exchange_of
from middleware.limits import Limits
from middleware.problems import problems
from middleware.uploads import ACCEPTED, UploadReader

TEXT = b"what the client wrote, twice over; " * 40
LIMITS = Limits(request=2 * 2**20, ratio=50, layers=3)


class Reader:
    """A server that reads its uploads; what it saw of each."""

    def __init__(self, port: int, seen: list[tuple[bytes | None, bytes | None]]) -> None:
        self.port = port
        self.seen = seen

    async def __call__(self, fields: FieldsLike, body: bytes, **more: Any) -> Response:
        return await ask(self.port, "POST", "/", fields, body, **more)


async def reader_of(aiohttp_server: Any, limits: Limits = LIMITS, idle: float = 5.0) -> Reader:
    seen: list[tuple[bytes | None, bytes | None]] = []
    uploads = UploadReader(limits, idle)

    async def handler(request: web.Request) -> web.Response:
        exchange = exchange_of(request)
        decoded = await uploads.read(request, exchange)
        assert await uploads.read(request, exchange) is decoded  # once an exchange
        seen.append((exchange.request_body, decoded))
        return web.Response()

    app = web.Application(middlewares=[problems])
    app.router.add_route("*", "/", handler)
    server = await aiohttp_server(app, auto_decompress=False)
    return Reader(server.port, seen)


def refusal(response: Response) -> tuple[int, str]:
    return response.status, json.loads(response.body)["type"].removeprefix("urn:packhorse:")


def test_what_a_415_offers_is_what_is_decoded() -> None:
    assert set(ACCEPTED.split(", ")) == DECODABLE


CODED: dict[str, bytes] = {
    "": TEXT,
    "identity": TEXT,
    "gzip": gzipped(TEXT),
    "x-gzip": gzipped(TEXT),
    "GZIP": gzipped(TEXT),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstd.compress(TEXT),
    "gzip, identity, zstd": zstd.compress(gzipped(TEXT)),
    "br, gzip, zstd": zstd.compress(gzipped(brotli.compress(TEXT))),
}


@pytest.mark.parametrize("coding", list(CODED))
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_it_is_read_decoded_and_kept_as_it_came(aiohttp_server: Any, coding: str, framing: str) -> None:
    reader = await reader_of(aiohttp_server)
    fields = [("Content-Encoding", coding)] if coding else []
    assert (await reader(fields, CODED[coding], framing=framing)).status == 200
    assert reader.seen == [(CODED[coding], TEXT)]


async def test_several_lines_are_one_list_in_order(aiohttp_server: Any) -> None:
    reader = await reader_of(aiohttp_server)
    fields = [("Content-Encoding", "gzip"), ("Content-Encoding", "zstd")]
    assert (await reader(fields, zstd.compress(gzipped(TEXT)))).status == 200
    assert reader.seen[0][1] == TEXT


async def test_there_may_be_none(aiohttp_server: Any) -> None:
    reader = await reader_of(aiohttp_server)
    assert (await ask(reader.port, "GET", "/")).status == 200
    assert (await ask(reader.port, "GET", "/", [("Content-Encoding", "gzip")])).status == 200  # of nothing
    assert reader.seen == [(None, None), (None, None)]
    assert (await ask(reader.port, "POST", "/", [], b"")).status == 200
    assert (await ask(reader.port, "POST", "/", [], b"", framing="chunked")).status == 200
    assert reader.seen[2:] in ([(None, None), (b"", b"")], [(b"", b""), (b"", b"")])


def zip_bomb(coding: str, size: int) -> bytes:
    return {"gzip": gzip.compress, "zstd": zstd.compress, "br": brotli.compress, "deflate": zlib.compress}[coding](bytes(size))


@pytest.mark.parametrize(
    ("coding", "body", "refused"),
    [
        # 400: not what Content-Encoding says
        ("gzip", TEXT, (400, "bad-coding")),
        ("gzip", gzipped(TEXT)[:-1], (400, "bad-coding")),
        ("gzip", gzipped(TEXT)[:-9], (400, "bad-coding")),
        ("gzip", gzipped(TEXT)[:10], (400, "bad-coding")),
        ("gzip", gzipped(TEXT) + b"rest", (400, "bad-coding")),
        ("gzip", gzipped(TEXT)[:-8] + struct.pack("<II", 1, len(TEXT)), (400, "bad-coding")),  # another checksum
        ("deflate", zlib.compress(TEXT)[:-3], (400, "bad-coding")),
        ("br", brotli.compress(TEXT)[:-1], (400, "bad-coding")),
        ("zstd", zstd.compress(TEXT)[:-2], (400, "bad-coding")),
        ("zstd", b"nothing of the kind", (400, "bad-coding")),
        ("gzip, zstd", zstd.compress(TEXT), (400, "bad-coding")),  # the inner one
        ("gzip, zstd", gzipped(TEXT), (400, "bad-coding")),  # the outer one
        ("br", b"", (400, "bad-coding")),
        # 415: nothing this route decodes
        ("compress", TEXT, (415, "unsupported-coding")),
        ("x-compress", TEXT, (415, "unsupported-coding")),
        ("aes128gcm", TEXT, (415, "unsupported-coding")),
        ("gzip, foo", TEXT, (415, "unsupported-coding")),
        ("foo, gzip", gzipped(TEXT), (415, "unsupported-coding")),
        ("*", TEXT, (415, "unsupported-coding")),
        ("gzip;q=1", gzipped(TEXT), (415, "unsupported-coding")),
        ("g zip", TEXT, (415, "unsupported-coding")),
        ("\xff", TEXT, (415, "unsupported-coding")),
        # 413: too large, too dense, too deep
        ("gzip", zip_bomb("gzip", 4 * 2**20), (413, "too-large")),
        ("zstd", zip_bomb("zstd", 4 * 2**20), (413, "too-large")),
        ("br", zip_bomb("br", 4 * 2**20), (413, "too-large")),
        ("deflate", zip_bomb("deflate", 4 * 2**20), (413, "too-large")),
        ("gzip", zip_bomb("gzip", 3 * 2**19), (413, "too-large")),  # within limits.request, over limits.ratio
        ("gzip, gzip, gzip, gzip", TEXT, (413, "too-large")),
        ("", bytes(2 * 2**20 + 1), (413, "too-large")),
    ],
)
async def test_what_is_refused(aiohttp_server: Any, coding: str, body: bytes, refused: tuple[int, str]) -> None:
    reader = await reader_of(aiohttp_server)
    response = await reader([("Content-Encoding", coding)] if coding else [], body, framing="chunked")
    assert refusal(response) == refused
    assert reader.seen == []
    if refused[0] == 415:
        assert response.text("accept-encoding") == ACCEPTED  # RFC 9110 15.5.16
    else:
        assert "accept-encoding" not in response.names()


@pytest.mark.parametrize("size", [2 * 2**20, 2**20])
async def test_what_is_just_within_the_limits_passes(aiohttp_server: Any, size: int) -> None:
    """Up to 1 MiB decoded the ratio does not count."""
    reader = await reader_of(aiohttp_server)
    body = bytes(range(256)) * (size // 256)
    assert (await reader([], body)).status == 200
    dense = zip_bomb("zstd", 2**20)
    assert len(dense) * LIMITS.ratio < 2**20
    assert (await reader([("Content-Encoding", "zstd")], dense)).status == 200


async def test_an_unknown_coding_is_refused_before_its_body_is_asked_for(aiohttp_server: Any) -> None:
    reader = await reader_of(aiohttp_server)
    async with connect(reader.port) as client:
        await client.send(request_bytes("POST", "/", [("Content-Encoding", "foo"), ("Content-Length", "99")], framing="none"))
        assert refusal(await client.response()) == (415, "unsupported-coding")


async def test_a_refusal_tells_nothing_of_the_body(aiohttp_server: Any) -> None:
    reader = await reader_of(aiohttp_server)
    for coding in ("gzip", "secret-coding"):
        response = await reader([("Content-Encoding", coding)], b"secret-body " * 9)
        assert b"secret" not in response.body


async def test_a_client_that_falls_silent_is_a_408(aiohttp_server: Any) -> None:
    reader = await reader_of(aiohttp_server, idle=0.05)
    async with connect(reader.port) as client:
        await client.send(request_bytes("POST", "/", [("Content-Length", "10")], framing="none") + b"half")
        assert refusal(await client.response()) == (408, "bad-request")


async def test_a_body_that_turns_out_not_to_be_framed_as_it_should_be_goes_nowhere() -> None:
    """Only the gateway's own server tells a middleware of it; aiohttp's answers for itself."""
    async with upstream(Reply()) as up, gateway_for(up) as gateway, connect(gateway) as client:
        fields = [("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip")]
        await client.send(request_bytes("POST", "/", fields, framing="none") + chunked(b"good", end=False))
        await client.send(b"zz\r\n")
        assert refusal(await client.response()) == (400, "bad-request")
        assert up.requests == []


async def test_who_leaves_half_way_through_a_body_is_forgotten() -> None:
    async with upstream(Reply()) as up, gateway_for(up) as gateway:
        async with connect(gateway) as client:
            fields = [("Content-Length", "10"), ("Content-Encoding", "gzip")]
            await client.send(request_bytes("POST", "/", fields, framing="none") + b"half")
            await eventually(lambda: gateway.services.in_flight.now)
            await client.leave()
        await eventually(lambda: not gateway.services.in_flight.now)
        assert up.requests == []


async def test_a_large_body_is_decoded_all_the_same(aiohttp_server: Any) -> None:
    """Off the event loop, that is; the answer is no other."""
    reader = await reader_of(aiohttp_server)
    body = random.Random(1).randbytes(2**20)
    assert (await reader([("Content-Encoding", "gzip")], gzipped(body))).status == 200
    assert reader.seen[0][1] == body
    broken = await reader([("Content-Encoding", "gzip")], gzipped(body)[:-4])
    assert refusal(broken) == (400, "bad-coding")
