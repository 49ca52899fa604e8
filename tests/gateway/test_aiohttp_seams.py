"""Each seam twice: what aiohttp does without it, so that a new version which needs it no longer is noticed, and that it works.

All of it also with aiohttp's pure Python parsers and writers, in a process of its own: the last test.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientPayloadError, ClientSession, ClientTimeout, ServerDisconnectedError, TCPConnector, web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from support.client import ask, connect, request_bytes
from support.gateways import ROOT, gateway_for
from support.messages import Request, head_bytes
from support.upstream import Peer, Reply, Upstream, each, upstream
from support.websockets import AGREE, ASK, frame
from yarl import URL

from gateway import aiohttp_seams
from gateway.aiohttp_seams import FRESH, OutgoingRequest, Tcp, Unix, exact_url, install, raw_ends, send, wait_between_reads

PURE = bool(os.environ.get("AIOHTTP_NO_EXTENSIONS"))
OPAQUE = "caf\udce9 \udcff\udc80"
"""How aiohttp reads header bytes that are not UTF-8."""
KEPT = b"caf\xe9 \xff\x80"
REASON_NEEDED = "stock aiohttp no longer does this: perhaps the seam can go"


PATIENT = ClientTimeout(total=None)


async def sent(
    connector: Any,
    target: URL | str,
    method: str = "GET",
    data: Any = None,
    headers: Any = (),
    timeout: ClientTimeout = PATIENT,
) -> aiohttp.ClientResponse:
    """One request by our own way of sending; the body still to be read."""
    url = target if isinstance(target, URL) else exact_url(target, "/")
    fields = CIMultiDict([("Host", url.raw_authority), *headers])
    request = OutgoingRequest(method, url, fields, data, asyncio.get_running_loop(), True, None)
    return await send(connector, request, timeout, 32768)


@contextlib.asynccontextmanager
async def ours(up: Upstream, connector: Callable[..., Any] = Tcp) -> AsyncIterator[Any]:
    """A connector of ours; unix upstreams get their path."""
    made = connector(up.url.removeprefix("unix:")) if up.url.startswith("unix:") else connector()
    try:
        yield made
    finally:
        await made.close()


def url_of(up: Upstream) -> str:
    return "http://localhost" if up.url.startswith("unix:") else up.url


@contextlib.asynccontextmanager
async def session_to(up: Upstream, connector: Callable[..., Any] = Tcp, **settings: Any) -> AsyncIterator[ClientSession]:
    """A client session with a connector of ours or of aiohttp's; unix upstreams get their path."""
    made = connector(up.url.removeprefix("unix:")) if up.url.startswith("unix:") else connector()
    async with ClientSession(connector=made, auto_decompress=False, **settings) as session:
        yield session


def test_the_version_is_the_one_the_seams_were_tested_with() -> None:
    pinned = re.search(r'"aiohttp>=([0-9.]+),<([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None, "pyproject pins aiohttp for the seams' sake"
    low, high, now = (tuple(map(int, part.split(".")[:3])) for part in (*pinned.groups(), version("aiohttp")))
    assert low <= now < high
    assert high[0] == low[0]
    assert high[1] == low[1] + 1, "one minor version at a time"


# Opaque bytes


def test_stock_loses_or_refuses_bytes_that_are_not_utf8() -> None:
    native = aiohttp_seams._native
    if native is aiohttp_seams._serialize_opaque:
        pytest.fail("the seam was put over itself")
    try:
        head = native("HTTP/1.1 200 OK", CIMultiDict({"X": OPAQUE}))
    except UnicodeEncodeError:
        return
    assert KEPT not in head, REASON_NEEDED


def test_opaque_bytes_are_written_as_they_came() -> None:
    head = aiohttp_seams._serialize_opaque("HTTP/1.1 200 OK", CIMultiDict([("X", OPAQUE), ("Y", "1"), ("X", "é")]))
    assert head == b"HTTP/1.1 200 OK\r\nX: " + KEPT + b"\r\nY: 1\r\nX: \xc3\xa9\r\n\r\n"
    assert aiohttp_seams._serialize_opaque("HTTP/1.1 200 OK", CIMultiDict({"A": "b"})) == b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("byte", ["\r", "\n", "\0", "\x1f", "\x7f"])
@pytest.mark.parametrize("opaque", ["", OPAQUE])
def test_control_characters_split_no_head(byte: str, opaque: str) -> None:
    headers = CIMultiDict({"X": f"a{byte}b{opaque}"})
    if not opaque and byte in "\x1f\x7f":
        return  # harmless, and aiohttp's to judge
    with pytest.raises(ValueError):
        aiohttp_seams._serialize_opaque("HTTP/1.1 200 OK", headers)
    with pytest.raises(ValueError):
        aiohttp_seams._serialize_opaque(f"HTTP/1.1 200 {opaque}{byte}", CIMultiDict())


def test_install_may_be_called_again() -> None:
    install()
    install()
    assert aiohttp.http_writer._serialize_headers is aiohttp_seams._serialize_opaque
    assert aiohttp_seams._native is not aiohttp_seams._serialize_opaque


async def test_opaque_bytes_pass_both_ways_and_in_the_target() -> None:
    reply = Reply(200, [("X-Down", KEPT), ("X-Name", "naïve".encode())], b"ok")
    async with upstream(reply) as up, gateway_for(up, kind="plain") as gateway:
        response = await ask(gateway, "GET", b"/a", [(b"X-Up", KEPT)])
        assert response.value("x-down") == KEPT
        assert response.value("x-name") == "naïve".encode()
        assert up.last.value("x-up") == KEPT


# No replay


async def second_is_dropped(peer: Peer) -> None:
    """Answers one request of a connection; drops the next one unanswered."""
    if await peer.request() is not None:
        await peer.respond(200, [], b"one")
        if await peer.request() is not None:
            peer.close()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_stock_repeats_requests_whose_bytes_were_sent(method: str) -> None:
    async with upstream(second_is_dropped) as up, session_to(up) as session:
        for _ in range(2):
            async with session.request(method, up.url, data=b"x" if method == "PUT" else None) as answer:
                assert await answer.read() == b"one"
        assert len(up.requests) == 3, REASON_NEEDED


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_our_sending_leaves_the_failure_to_us(method: str) -> None:
    data = b"x" if method == "PUT" else None
    async with upstream(second_is_dropped) as up, ours(up) as connector:
        assert await (await sent(connector, up.url, method, data)).read() == b"one"
        with pytest.raises(ServerDisconnectedError):
            await sent(connector, up.url, method, data)
        assert len(up.requests) == 2


# A request that is exactly what it is given


async def test_stock_makes_fields_up() -> None:
    async with upstream(Reply(200)) as up, session_to(up) as session, session.post(up.url, data=b"x") as answer:
        assert answer.status == 200
        assert set(up.last.names()) - {"host", "content-length"}, REASON_NEEDED


@pytest.mark.parametrize("method", ["GET", "POST", "get", "PROPFIND", "X-Y"])
@pytest.mark.parametrize("data", [None, b"", b"abc"])
async def test_our_sending_adds_only_the_framing(method: str, data: bytes | None) -> None:
    given = [("X-B", "1"), ("x-a", "2"), ("X-B", "3"), ("Cookie", "a=b")]
    async with upstream(Reply(200, [("Set-Cookie", "c=d")])) as up, ours(up) as connector:
        for _ in range(2):
            await (await sent(connector, up.url, method, data, given)).read()
            assert up.last.method == method.encode()
            assert up.last.body == (data or b"")
            own = [pair for pair in up.last.fields if pair[0].lower() not in (b"content-length", b"host")]
            assert own == [(name.encode(), value.encode()) for name, value in given]
        assert len(up.peers) == 1


async def test_an_upload_of_pieces_is_chunked() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"cd"

    async with upstream(Reply(200)) as up, ours(up) as connector:
        await (await sent(connector, up.url, "POST", pieces())).read()
        assert up.last.value("transfer-encoding") == b"chunked"
        assert (up.last.body, up.last.value("content-length")) == (b"abcd", None)


async def test_nothing_is_followed_or_decoded() -> None:
    fields = [("Location", "/elsewhere"), ("Content-Encoding", "gzip")]
    async with upstream(Reply(302, fields, b"\x1f\x8b no gzip")) as up, ours(up) as connector:
        answer = await sent(connector, up.url)
        assert (answer.status, await answer.read()) == (302, b"\x1f\x8b no gzip")
        assert len(up.requests) == 1


async def test_a_failed_or_cancelled_sending_leaves_no_connection() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.gone()
        peer.close()

    async with upstream(silent) as up, ours(up) as connector:
        with pytest.raises(aiohttp.SocketTimeoutError):
            await sent(connector, up.url, timeout=ClientTimeout(total=None, sock_read=0.1))
        await up.all_gone(1)
        waiting = asyncio.create_task(sent(connector, up.url))
        await up.seen(2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await up.all_gone(1)


async def test_the_head_limit_is_kept() -> None:
    async with upstream(Reply(200, [("X", "a" * 40_000)])) as up, ours(up) as connector:
        with pytest.raises(aiohttp.ClientResponseError):
            await sent(connector, up.url)
        await up.all_gone(1)


# FRESH


@pytest.mark.parametrize(("host", "connector"), [("127.0.0.1", Tcp), ("unix", Unix)])
async def test_fresh_tells_a_new_connection_from_a_pooled_one(host: str, connector: Any) -> None:
    async with upstream(Reply(200, [], b"x"), host=host) as up, ours(up, connector) as pool:
        seen = []
        for _ in range(3):
            FRESH.set(False)
            await (await sent(pool, url_of(up))).read()
            seen.append(FRESH.get())
        assert seen == [True, False, False]
        assert len(up.peers) == 1


async def test_fresh_of_one_task_says_nothing_to_another() -> None:
    async with upstream(Reply(200, [], b"x")) as up, ours(up) as connector:

        async def fresh() -> bool:
            FRESH.set(False)
            await (await sent(connector, up.url)).read()
            return FRESH.get()

        assert await asyncio.create_task(fresh())
        assert FRESH.get() is False
        assert sorted(await asyncio.gather(fresh(), fresh())) == [False, True]


# The exact target

TARGETS = ["/a?", "/?", "/%zz", "/a%2Fb", "/a%2fb/%41?q=%", "/a/../b", "//a", "/a;b?c?d", "/a+b%20c?d+e%20f", "/'()*!~"]


def test_stock_drops_the_question_mark_of_an_empty_query() -> None:
    assert URL("http://h/a?", encoded=True).raw_path_qs == "/a", REASON_NEEDED


@pytest.mark.parametrize("base", ["", "/base", "/b%2Fc"])
@pytest.mark.parametrize("target", TARGETS)
async def test_the_target_on_the_wire_is_exact(base: str, target: str) -> None:
    async with upstream(Reply(200, [], b"x")) as up, ours(up) as connector:
        assert (await sent(connector, exact_url(up.url + base, target))).status == 200
        assert up.targets() == [(base + target).encode()]
        assert up.last.value("host") == up.authority.encode()


async def test_exact_urls_do_not_leak_into_others() -> None:
    exact_url("http://127.0.0.1:1", "/a?")
    assert URL("http://127.0.0.1:1/a", encoded=True).raw_path_qs == "/a"
    assert exact_url("http://127.0.0.1:1", "/a").raw_path_qs == "/a"
    assert exact_url("http://127.0.0.1:1", "/a?").raw_path_qs == "/a?"


# The switch from the first byte's patience to that between bytes


async def pausing(peer: Peer, request: Request) -> None:
    await peer.begin([])
    await peer.chunk(b"one")
    await asyncio.sleep(0.4)  # the silence that is measured
    await peer.chunk(b"two")
    await peer.end()


@pytest.mark.parametrize("switched", [False, True])
async def test_the_patience_for_the_first_byte_is_not_that_of_the_stream(switched: bool) -> None:
    async with upstream(each(pausing)) as up, ours(up) as connector:
        answer = await sent(connector, up.url, timeout=ClientTimeout(total=None, sock_read=0.15))
        if switched:
            wait_between_reads(answer, 5)
            assert await answer.read() == b"onetwo"
        else:  # stock has one limit for both
            with pytest.raises(aiohttp.SocketTimeoutError):
                await answer.read()
        answer.close()


async def test_a_shorter_silence_is_in_force_at_once_and_zero_is_none() -> None:
    go = asyncio.Event()

    async def silent(peer: Peer, request: Request) -> None:
        await peer.begin([])
        await go.wait()
        await peer.end()

    async with upstream(each(silent)) as up, ours(up) as connector:
        answer = await sent(connector, up.url, timeout=ClientTimeout(total=None, sock_read=30))
        wait_between_reads(answer, 0.1)
        async with asyncio.timeout(2):
            with pytest.raises(aiohttp.SocketTimeoutError):
                await answer.read()
        answer.close()
        answer = await sent(connector, up.url, timeout=ClientTimeout(total=None, sock_read=0.1))
        wait_between_reads(answer, 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading := asyncio.ensure_future(answer.read())), 0.3)
        go.set()
        assert await reading == b""


# UNTYPED


@contextlib.asynccontextmanager
async def served(handler: Any) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_stock_makes_up_a_type_and_names_itself() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x")

    async with served(handler) as url:
        response = await ask(url, "GET", "/")
        assert response.value("content-type") is not None, REASON_NEEDED


@pytest.mark.parametrize("fields", [[], [("Content-Type", "x/y"), ("Server", "theirs")], [("Server", "theirs")]])
@pytest.mark.parametrize("kind", ["plain", "prepare"])
async def test_the_gateway_adds_neither_type_nor_name(fields: list[tuple[str, str]], kind: str) -> None:
    async with upstream(Reply(200, fields, b"\x00\x01")) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/")
        given = dict(fields)
        assert response.text("content-type") == given.get("Content-Type")
        assert response.text("server") == given.get("Server")
        assert response.body == b"\x00\x01"


# What follows a bodiless answer, and a body that cannot be framed

JUNK = b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n0\r\n\r\n"


async def junk_once(peer: Peer) -> None:
    """The first connection's first answer runs on; everything else is in order."""
    while (await peer.request()) is not None:
        if len(peer.upstream.requests) == 1:
            await peer.send(JUNK)
        else:
            await peer.respond(200, [], b"fine")


async def test_stock_loses_an_answer_that_something_follows() -> None:
    async with upstream(junk_once) as up, session_to(up, TCPConnector) as session:
        with pytest.raises(aiohttp.ClientError):
            await (await session.get(up.url)).read()


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("connector", [Tcp, Unix])
async def test_what_follows_a_bodiless_answer_is_nobodys(status: int, connector: Any) -> None:
    async def script(peer: Peer) -> None:
        while (await peer.request()) is not None:
            if len(up.requests) == 1:
                await peer.send(JUNK.replace(b"204", str(status).encode()))
            else:
                await peer.respond(200, [], b"fine")

    async with upstream(script, host="unix" if connector is Unix else "127.0.0.1") as up, ours(up, connector) as pool:
        answer = await sent(pool, url_of(up))
        assert (answer.status, await answer.read(), answer.headers["X"]) == (status, b"", "1")
        answer = await sent(pool, url_of(up))
        assert (answer.status, await answer.read()) == (200, b"fine")
        assert len(up.peers) == 2, "a connection that said too much is not used again"


async def test_a_bodiless_answer_in_order_keeps_its_connection() -> None:
    async with upstream(Reply(204)) as up, ours(up) as connector:
        for _ in range(3):
            assert (await sent(connector, up.url)).status == 204
        assert len(up.peers) == 1


MALFORMED = [b"zz\r\nabc\r\n", b"-5\r\nabcde\r\n", b"3\r\nabcd\r\n", b"\r\n\r\n"]


async def read_broken(bad: bytes, connector: Any) -> None:
    """Read a body of a good chunk, then one that is none, on a connection that stays open."""

    async def answer_with(peer: Peer, request: Request) -> None:
        await peer.begin([])
        await peer.chunk(b"good")
        await go.wait()
        await peer.send(bad)
        await peer.gone()
        peer.close()

    go = asyncio.Event()
    async with upstream(each(answer_with)) as up, session_to(up, connector) as session:
        answer = await session.get(up.url)
        assert await answer.content.readany() == b"good"
        go.set()
        try:
            async with asyncio.timeout(0.4):
                while await answer.content.readany():
                    pass
        finally:
            answer.close()


async def test_stock_leaves_the_reader_of_a_malformed_body_waiting() -> None:
    with pytest.raises(HttpProcessingError if PURE else TimeoutError):
        await read_broken(MALFORMED[0], TCPConnector)


@pytest.mark.parametrize("bad", MALFORMED)
async def test_a_malformed_chunk_breaks_the_body_at_once(bad: bytes) -> None:
    with pytest.raises((ClientPayloadError, HttpProcessingError) if PURE else ClientPayloadError):
        await read_broken(bad, Tcp)


async def test_a_document_with_a_malformed_chunk_is_a_502() -> None:
    async def answer_with(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/plain")])
        await peer.chunk(b"good")
        await asyncio.sleep(0.05)  # so that it comes apart from the head
        await peer.send(b"zz\r\n")
        await peer.gone()
        peer.close()

    async with upstream(each(answer_with)) as up, gateway_for(up, deltas={"wait": "5s"}) as gateway:
        response = await ask(gateway, "POST", "/", [("Packhorse-Session", "s"), ("Accept-Encoding", "ctxpack.delta.v1, gzip")])
        assert response.status == 502
        assert b"urn:packhorse:upstream-cut" in response.body


async def test_a_client_of_the_gateway_sees_a_malformed_chunk_as_a_cut() -> None:
    async def answer_with(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"data: 1\n\n")
        await go.wait()
        await peer.send(b"zz\r\n")
        await peer.gone()
        peer.close()

    go = asyncio.Event()
    async with upstream(each(answer_with)) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/"))
        response = await client.response_head()
        await client.arrives(b"data: 1")
        go.set()
        response = await client.body_of(response)
        assert (response.body, response.complete) == (b"data: 1\n\n", False)


# Raw ends


async def test_raw_ends_are_the_connection_under_an_upgrade() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
        assert await peer.exactly(3) == b"abc"
        await peer.gone()
        peer.close()

    async with upstream(script) as up, ours(up) as connector:
        answer = await sent(connector, up.url, headers=ASK)
        assert answer.status == 101
        protocol, transport = raw_ends(answer)
        transport.write(b"abc")
        assert protocol.transport is transport
        answer.close()
        await up.all_gone()
        assert up.peers[0].received > 3


async def test_bytes_that_come_with_the_101_are_not_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE) + frame(b"early"))
        await peer.gone()
        peer.close()

    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        assert (await client.response_head()).status == 101
        assert await client.exactly(len(frame(b"early"))) == frame(b"early")


# Without extensions


def test_all_of_this_holds_for_aiohttps_pure_python_parts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not pure_python", __file__],
        cwd=ROOT, env={**os.environ, "AIOHTTP_NO_EXTENSIONS": "1"}, capture_output=True, timeout=120, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
