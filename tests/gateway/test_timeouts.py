"""Patience, each kind by itself: connecting, the first byte, silence, stalled clients, and ends that do not read."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.certificates import authority
from support.channel import Ended
from support.client import Client, ask, connect, request_bytes
from support.gateways import gateway_for, gateway_process
from support.messages import Request, chunked, head_bytes
from support.scrapes import counted
from support.upstream import Peer, Reply, each, upstream

KINDS = ["plain", "prepare", "openai"]
SHORT = {"connect": "300ms", "first_byte": "300ms", "idle": "300ms"}
CHUNK = b"x" * 65_536


@contextlib.contextmanager
def blackhole() -> Any:
    """A port whose listener takes no more connections: SYNs are dropped, as by a firewall, and all of it on loopback."""
    waiting: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        try:
            while True:
                made = socket.socket()
                waiting.append(made)
                made.settimeout(0.1)
                made.connect(listener.getsockname())
        except TimeoutError:
            pass
        try:
            yield listener.getsockname()[1]
        finally:
            for made in waiting:
                made.close()


def routes(bad: str, good: str, kind: str, **bad_route: Any) -> list[dict[str, Any]]:
    """``/bad`` to one upstream, everything else to another."""
    return [
        {"name": "bad", "match": "/bad", "upstream": bad, "kind": kind, **bad_route},
        {"name": "good", "match": "/", "upstream": good, "kind": kind},
    ]


@contextlib.asynccontextmanager
async def beside(bad: str, kind: str, timeouts: dict[str, str], **bad_route: Any) -> AsyncIterator[Any]:
    """A gateway in front of a bad upstream and of a good one; at the end the good one has been served at once throughout."""
    async with (
        upstream(Reply(200, [], b"good")) as up,
        gateway_for(None, routes=routes(bad, up.url, kind, **bad_route), timeouts=timeouts) as gateway,
    ):
        slowest, stop = 0.0, asyncio.Event()

        async def others() -> None:
            nonlocal slowest
            async with connect(gateway) as client:
                while not stop.is_set():
                    began = time.monotonic()
                    assert (await client.ask("GET", "/")).body == b"good"
                    slowest = max(slowest, time.monotonic() - began)
                    await asyncio.sleep(0.02)

        serving = asyncio.create_task(others())
        try:
            yield gateway
        finally:
            stop.set()
            await serving
        assert slowest < 1, "others are not affected"


async def timed(gateway: Any, method: str = "GET", target: str = "/bad", body: bytes = b"") -> tuple[Any, float]:
    began = time.monotonic()
    response = await ask(gateway, method, target, (), body)
    return response, time.monotonic() - began


async def expect_504(gateway: Any, reason: str, named: str, method: str = "GET") -> None:
    response, seconds = await timed(gateway, method, body=b"{}" if method == "POST" else b"")
    assert response.status == 504
    assert response.text("content-type") == "application/problem+json"
    assert b"urn:packhorse:upstream-timeout" in response.body
    assert f"timeouts.{named}".encode() in response.body
    assert 0.25 < seconds < 3
    found = await counted(gateway, "packhorse_upstream_errors_total", route="bad")
    assert found.by("packhorse_upstream_errors_total", "reason", route="bad") == {reason: 1}
    assert found.total("packhorse_requests_total", route="bad", status="5xx", outcome="failed") == 1


# Connecting


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_upstream_that_does_not_take_the_connection(kind: str, method: str) -> None:
    with blackhole() as port:
        async with beside(f"http://127.0.0.1:{port}", kind, {"connect": "300ms", "first_byte": "9s", "idle": "9s"}) as gateway:
            await expect_504(gateway, "connect-timeout", "connect", method)


async def test_an_upstream_that_takes_the_connection_and_speaks_no_tls(tmp_path: Path) -> None:
    ca = authority(tmp_path)

    async def mute(peer: Peer) -> None:
        await peer.gone(20)
        peer.close()

    async with upstream(mute) as up:
        bad = up.url.replace("http:", "https:")
        timeouts = {"connect": "300ms", "first_byte": "9s", "idle": "9s"}
        async with beside(bad, "plain", timeouts, tls={"ca": str(ca.ca)}) as gateway:
            await expect_504(gateway, "connect-timeout", "connect")
            await up.all_gone(1)


# The first byte


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.gone(20)
    peer.close()


async def half_a_head(peer: Peer) -> None:
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nX-Half: 1\r\n")
    await peer.gone(20)
    peer.close()


@pytest.mark.parametrize("script", [silent, half_a_head])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_upstream_that_never_answers(kind: str, script: Any, method: str) -> None:
    async with upstream(script) as up, beside(up.url, kind, {"connect": "9s", "first_byte": "300ms", "idle": "9s"}) as gateway:
        await expect_504(gateway, "first-byte-timeout", "first_byte", method)
        await up.all_gone(1)
        assert len(up.requests) == 1, "a timeout is not retried"


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_the_time_to_the_first_byte_begins_when_the_whole_request_was_sent(framing: str) -> None:
    """A client on a slow link may take longer for its upload than the upstream for its answer."""
    async with upstream(Reply(200, [], b"ok")) as up:
        timeouts = {"first_byte": "300ms", "idle": "9s"}
        async with gateway_for(up, kind="plain", timeouts=timeouts) as gateway, connect(gateway) as client:
            field = ("Content-Length", "60") if framing == "length" else ("Transfer-Encoding", "chunked")
            await client.send(request_bytes("POST", "/", [field], framing="none"))
            for _ in range(6):
                await asyncio.sleep(0.15)
                await client.send(b"y" * 10 if framing == "length" else chunked(b"y" * 10, end=False))
            if framing == "chunked":
                await client.send(b"0\r\n\r\n")
            response = await client.response()
            assert (response.status, response.body) == (200, b"ok")


# Silence


async def falls_silent(peer: Peer, request: Request) -> None:
    await peer.begin([("Content-Type", "text/event-stream")])
    await peer.chunk(b"data: 1\n\n")
    await peer.gone(20)
    peer.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_falls_silent_is_cut(kind: str) -> None:
    async with (
        upstream(each(falls_silent)) as up,
        beside(up.url, kind, {"connect": "9s", "first_byte": "9s", "idle": "300ms"}) as gateway,
        connect(gateway) as client,
    ):
        await client.send(request_bytes("GET", "/bad"))
        response = await client.response_head()
        began = time.monotonic()
        response = await client.body_of(response)
        assert (response.body, response.complete) == (b"data: 1\n\n", False)
        assert 0.25 < time.monotonic() - began < 3
        await up.all_gone(1)
        found = await counted(gateway, "packhorse_upstream_errors_total", route="bad")
        assert found.by("packhorse_upstream_errors_total", "reason", route="bad") == {"idle-timeout": 1}
        assert found.total("packhorse_requests_total", route="bad", outcome="upstream_cut") == 1


async def test_a_document_that_falls_silent_before_its_head_went_out_is_a_504() -> None:
    async def half(peer: Peer, request: Request) -> None:
        await peer.send(head_bytes("HTTP/1.1 200 OK", [("Content-Type", "text/plain"), ("Content-Length", "100")]) + b"half")
        await peer.gone(20)
        peer.close()

    async with upstream(each(half)) as up, gateway_for(up, deltas={"wait": "5s"}, timeouts={"idle": "300ms"}) as gateway:
        response = await ask(gateway, "POST", "/", [("Packhorse-Session", "s"), ("Accept-Encoding", "ctxpack.delta.v1, gzip")])
        assert response.status == 504
        assert b"timeouts.idle" in response.body
        await up.all_gone(1)


async def test_drops_of_bytes_are_no_silence() -> None:
    async def dripping(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        for _ in range(8):
            await peer.chunk(b": \n\n")
            await asyncio.sleep(0.15)
        await peer.end()

    async with upstream(each(dripping)) as up, gateway_for(up, timeouts=SHORT) as gateway:
        response = await ask(gateway, "GET", "/")
        assert response.complete
        assert response.body == b": \n\n" * 8


async def test_zero_is_no_limit() -> None:
    async def late(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.5)
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"1")
        await asyncio.sleep(0.5)
        await peer.end()

    async with upstream(each(late)) as up, gateway_for(up, timeouts={"connect": 0, "first_byte": 0, "idle": 0}) as gateway:
        response = await ask(gateway, "GET", "/")
        assert (response.status, response.complete) == (200, True)


# A route's own patience


async def test_a_routes_patience_goes_over_the_general_one_by_one() -> None:
    async def slow(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.6)
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"data: 1\n\n")
        await peer.gone(20)
        peer.close()

    async with upstream(each(slow)) as up:
        table = [
            {"name": "own", "match": "/own", "upstream": up.url, "timeouts": {"first_byte": "9s"}},
            {"name": "general", "match": "/", "upstream": up.url},
            {"name": "short", "match": "/short", "upstream": up.url, "timeouts": {"first_byte": "100ms"}},
        ]
        async with gateway_for(None, routes=table, timeouts=SHORT) as gateway:
            response, seconds = await timed(gateway, target="/own")
            assert (response.status, response.complete) == (200, False), "first_byte is its own, idle the general one"
            assert 0.8 < seconds < 4
            response, seconds = await timed(gateway, target="/x")
            assert (response.status, seconds > 0.25) == (504, True)
            response, seconds = await timed(gateway, target="/short")
            assert (response.status, seconds < 0.6) == (504, True)


# Clients that stall


async def closed_early(client: Client) -> bytes:
    with contextlib.suppress(Ended):
        return await client.until(b"\r\n\r\n")
    return b""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_upload_that_stalls_is_a_408_and_the_upstream_let_go(kind: str, framing: str) -> None:
    async def reading(peer: Peer) -> None:
        with contextlib.suppress(Ended, TimeoutError):
            await peer.request()
        peer.close()

    async with upstream(reading) as up, beside(up.url, kind, {"first_byte": "9s", "idle": "300ms"}) as gateway:
        async with connect(gateway) as client:
            field = ("Content-Length", "100") if framing == "length" else ("Transfer-Encoding", "chunked")
            start = b"ten bytes." if framing == "length" else chunked(b"ten bytes.", end=False)
            await client.send(request_bytes("POST", "/bad", [field], framing="none") + start)
            began = time.monotonic()
            response = await client.response()
            assert response.status == 408
            assert b"urn:packhorse:bad-request" in response.body
            assert 0.25 < time.monotonic() - began < 3
        for peer in up.peers:
            await peer.gone(1)
        found = await counted(gateway, "packhorse_requests_total", route="bad")
        assert found.total("packhorse_requests_total", route="bad", outcome="refused", status="4xx") == 1


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /", b"\r\n"]
)
async def test_a_connection_without_a_whole_head_is_closed_after_keep_alive(sent: bytes) -> None:
    """limits.keep_alive: slow heads, and connections that never say anything, do not hold a descriptor for ever."""
    limits = {"keep_alive": "400ms"}
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up, limits=limits) as gateway, connect(gateway) as client:
        if sent:
            await client.send(sent)
        await client.gone(2)


async def test_a_connection_in_use_is_not_closed_by_keep_alive() -> None:
    limits = {"keep_alive": "400ms"}
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up, limits=limits) as gateway, connect(gateway) as client:
        for _ in range(4):
            assert (await client.ask("GET", "/")).status == 200
            await asyncio.sleep(0.2)
        assert not client.closed.is_set()


# Ends that do not read


async def test_h_a_client_that_does_not_read_makes_the_upstream_wait_and_takes_no_memory() -> None:
    """200 MB towards clients that read nothing: measured on a process of its own."""
    written = 0

    async def pouring(peer: Peer, request: Request) -> None:
        nonlocal written
        kind = "text/event-stream" if b"stream" in request.target else "text/plain"
        await peer.begin([("Content-Type", kind)])
        for _ in range(200 * 2**20 // len(CHUNK)):
            await peer.chunk(CHUNK)
            written += len(CHUNK)
        await peer.end()

    async with upstream(each(pouring)) as up:
        table = [{"name": kind, "match": f"/{kind}", "upstream": up.url, "kind": kind} for kind in ("plain", "prepare")]
        async with (
            gateway_process(None, routes=table, deltas={"max_bytes": "1MiB"}) as gateway,
            contextlib.AsyncExitStack() as stack,
        ):
            before = gateway.rss()
            clients = []
            for target in ("/plain", "/plain/stream", "/prepare", "/prepare/stream"):
                client = await stack.enter_async_context(connect(gateway))
                await client.send(request_bytes("GET", target))
                await client.response_head()
                client.pause()
                clients.append(client)
            seen = -1
            while seen != written:  # until it stands still
                seen = written
                await asyncio.sleep(0.3)
            assert written < 4 * 30 * 2**20, "the rest waits with the upstream"
            assert gateway.peak_rss() - before < 60 * 2**20
            assert (await ask(gateway.admin_url, "GET", "/livez")).status == 200
            for client in clients:
                client.reset()
            await up.all_gone(2)


async def test_an_upstream_that_does_not_read_makes_the_client_wait_and_takes_no_memory() -> None:
    async def deaf(peer: Peer) -> None:
        await peer.head()
        peer.pause()
        await peer.lost.wait()

    async with (
        upstream(deaf) as up,
        gateway_process(up, kind="plain", limits={"request": "1GiB"}) as gateway,
        connect(gateway) as client,
    ):
        before, sent = gateway.rss(), 0

        async def pour() -> None:
            nonlocal sent
            await client.send(request_bytes("POST", "/", [("Content-Length", str(200 * 2**20))], framing="none"))
            for _ in range(200 * 2**20 // len(CHUNK)):
                await client.send(CHUNK)
                sent += len(CHUNK)

        pouring = asyncio.create_task(pour())
        seen = -1
        while seen != sent or not sent:
            seen = sent
            await asyncio.sleep(0.3)
        assert sent < 30 * 2**20
        assert gateway.peak_rss() - before < 30 * 2**20
        client.reset()
        with contextlib.suppress(ConnectionError):
            await pouring
        up.peers[0].resume()
        await up.all_gone(2)
