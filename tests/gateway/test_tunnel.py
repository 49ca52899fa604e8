"""WebSockets through the gateway, with aiohttp's own client and server at the ends: what one says is what the other hears."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError, web
from support.channel import eventually
from support.client import connect, request_bytes
from support.gateways import gateway_for
from support.messages import head_bytes
from support.scrapes import counted
from support.upstream import Peer, Reply, upstream
from support.websockets import AGREE, ASK, closing, frame

from gateway.aiohttp_seams import UpstreamProtocol

Serving = Callable[[web.WebSocketResponse], Awaitable[None]]


class Ends:
    """A gateway between a websocket server that runs ``serve`` and a client session."""

    def __init__(self, gateway: Any, session: ClientSession) -> None:
        self.gateway = gateway
        self.session = session
        self.server: web.WebSocketResponse | None = None
        self.server_done = asyncio.Event()

    def dial(self, **settings: Any) -> Any:
        return self.session.ws_connect(f"{self.gateway.url}/chat?a=%20", **settings)


@contextlib.asynccontextmanager
async def ends(serve: Serving, *, kind: str = "plain", **server: Any) -> AsyncIterator[Ends]:
    made: list[Ends] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        socket = made[0].server = web.WebSocketResponse(**server)
        await socket.prepare(request)
        try:
            await serve(socket)
        finally:
            made[0].server_done.set()
        return socket

    application = web.Application()
    application.router.add_get("/chat", handler)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with gateway_for(url, kind=kind, drain="1s") as gateway, ClientSession() as session:
            made.append(Ends(gateway, session))
            async with asyncio.timeout(20):
                yield made[0]
    finally:
        await runner.cleanup()


async def echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)


@pytest.mark.parametrize("kind", ["plain", "openai"])
@pytest.mark.parametrize("compress", [0, 15, 9])
async def test_text_and_binary_with_and_without_deflate(kind: str, compress: int) -> None:
    async with ends(echo, kind=kind, compress=bool(compress)) as both, both.dial(compress=compress) as client:
        assert bool(client.compress) is bool(compress), "what the ends agree on is theirs"
        for text in ("", "hello", "naïve \U0001f40e", "x" * 200_000):
            await client.send_str(text)
            assert await client.receive_str() == text
        for data in (b"", bytes(range(256)), b"\x00" * 65_536, bytes(range(256)) * 1000):
            await client.send_bytes(data)
            assert await client.receive_bytes() == data
        await client.close(code=1000)
        assert client.close_code == 1000


async def test_deflate_that_one_end_does_not_want_is_not_used() -> None:
    async with ends(echo, compress=False) as both, both.dial(compress=15) as client:
        assert not client.compress
        await client.send_str("plain")
        assert await client.receive_str() == "plain"


@pytest.mark.parametrize("code", [1000, 1001, 1008, 3000, 4001, 4999])
async def test_close_codes_go_up(code: int) -> None:
    async with ends(echo) as both, both.dial() as client:
        await client.send_str("x")
        await client.receive_str()
        await client.close(code=code, message=b"because")
        await both.server_done.wait()
        assert both.server is not None
        assert both.server.close_code == code


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4002])
async def test_close_codes_and_their_words_come_down(code: int) -> None:
    async def goodbye(socket: web.WebSocketResponse) -> None:
        await socket.receive_str()
        await socket.close(code=code, message=b"because")

    async with ends(goodbye) as both, both.dial() as client:
        await client.send_str("x")
        message = await client.receive()
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, code, "because")
        assert client.close_code == code


async def test_pings_are_answered_by_the_other_end() -> None:
    async with ends(echo, autoping=True) as both, both.dial(autoping=False) as client:
        await client.ping(b"are you there")
        message = await client.receive()
        assert (message.type, message.data) == (WSMsgType.PONG, b"are you there")


async def test_subprotocols_are_the_ends_own() -> None:
    async with ends(echo, protocols=("b", "a")) as both, both.dial(protocols=("a", "b")) as client:
        assert client.protocol in ("a", "b")
        assert both.server is not None
        assert both.server.ws_protocol == client.protocol


async def test_both_ends_may_talk_at_once() -> None:
    async def chatter(socket: web.WebSocketResponse) -> None:
        async def talk() -> None:
            for number in range(500):
                await socket.send_str(f"down {number}")

        async def hear() -> None:
            for number in range(500):
                assert await socket.receive_str() == f"up {number}"

        await asyncio.gather(talk(), hear())

    async with ends(chatter) as both, both.dial() as client:

        async def talk() -> None:
            for number in range(500):
                await client.send_str(f"up {number}")

        async def hear() -> None:
            for number in range(500):
                assert await client.receive_str() == f"down {number}"

        await asyncio.gather(talk(), hear())
        await both.server_done.wait()


# Big messages


@pytest.mark.parametrize("way", ["up", "down"])
async def test_big_messages_arrive_whole_at_a_slow_reader(way: str) -> None:
    """16 MB to an end that reads only when the other has been made to wait."""
    data = bytes(range(256)) * 2**16
    digest = hashlib.sha256(data).hexdigest()
    go = asyncio.Event()
    heard: list[str] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        if way == "down":
            await socket.send_bytes(data)
        else:
            await go.wait()
            heard.append(hashlib.sha256(await socket.receive_bytes()).hexdigest())
        await socket.close()

    async with ends(serve, max_msg_size=0) as both, both.dial(max_msg_size=0) as client:
        if way == "up":
            sending = asyncio.create_task(client.send_bytes(data))
            go.set()
            await sending
            await client.receive()
            assert heard == [digest]
        else:
            assert hashlib.sha256(await client.receive_bytes()).hexdigest() == digest


@pytest.mark.parametrize("way", ["up", "down"])
async def test_who_does_not_read_makes_the_other_wait(way: str) -> None:
    """Back-pressure: of 128 MB only what buffers on the way hold is taken."""
    piece = b"x" * 65_536
    written = 0

    async def pour(end: Any) -> None:
        nonlocal written
        for _ in range(2000):
            await end.send(piece)
            written += len(piece)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
        if way == "down":
            await pour(peer)
        else:
            peer.pause()
            await peer.lost.wait()

    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        assert (await client.response_head()).status == 101
        pouring = None
        if way == "down":
            client.pause()
        else:
            pouring = asyncio.create_task(pour(client))
        before = -1
        while before != written or not written:  # until it stands still
            before = written
            await asyncio.sleep(0.25)
        assert written < 40 * 2**20
        client.reset()
        if pouring is not None:
            with contextlib.suppress(ConnectionError):
                await pouring
        up.peers[0].resume()
        await up.all_gone(2)


# Ends that leave


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_lost_client_closes_the_upstream_within_a_second(how: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
        await peer.gone(10)
        peer.close()

    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        await client.response_head()
        getattr(client, how)()
        await up.all_gone(1)
        found = await counted(gateway, "packhorse_requests_total", route="r")
        assert found.total("packhorse_requests_total") == 1
        await eventually(lambda: gateway.services.in_flight.now == 0)


async def test_a_client_that_is_lost_while_the_upstream_pours_frees_everything() -> None:
    async def pour(socket: web.WebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while True:
                await socket.send_bytes(b"x" * 100_000)

    async with ends(pour) as both:
        client: ClientWebSocketResponse = await both.dial()
        await client.receive_bytes()
        client._response.close()  # no close frame: lost
        await asyncio.wait_for(both.server_done.wait(), 1)
        await eventually(lambda: both.gateway.services.in_flight.now == 0)


@pytest.mark.parametrize("answer", ["tunnel", "document", "stream", "no body"])
async def test_a_client_that_is_lost_in_the_moment_the_answer_arrives(
    answer: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its transport is closing and nobody was told yet: that is a client gone, not a fault of the gateway's own."""

    async def script(peer: Peer) -> None:
        await peer.request()
        match answer:
            case "tunnel":
                await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
            case "document":
                await peer.respond(200, [("Content-Type", "text/plain")], b"x" * 1000)
            case "stream":
                await peer.begin([("Content-Type", "text/event-stream")])
            case _:
                await peer.respond(204)
        await peer.gone(10)
        peer.close()

    arrived = UpstreamProtocol.data_received

    def lost_amid(self: UpstreamProtocol, data: bytes) -> None:
        arrived(self, data)
        for connection in gateway._runner.server.connections:
            connection.transport.abort()

    monkeypatch.setattr(UpstreamProtocol, "data_received", lost_amid)
    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK if answer == "tunnel" else ()))
        await client.gone()
        await eventually(lambda: gateway.services.in_flight.now == 0)
        found = await counted(gateway, "packhorse_requests_total", route="r")
        assert not [line for line in caplog.messages if "fault" in line]
        if answer != "no body":
            assert found.by("packhorse_requests_total", "outcome") == {"client_gone": 1}
        if answer in ("tunnel", "stream"):
            await up.all_gone(1)


async def test_what_the_upstream_said_last_arrives_before_its_close() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
        await peer.send(frame(b"a" * 60_000), closing(4000, b"done"))
        peer.close()

    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        await client.response_head()
        assert await client.to_end() == frame(b"a" * 60_000) + closing(4000, b"done")


async def test_a_silent_tunnel_is_not_cut_by_the_idle_time() -> None:
    """Timeouts are for answers; a socket may be silent for hours."""

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive_str()
        await asyncio.sleep(0.6)  # longer than both limits
        await socket.send_str("late")

    async with ends(serve) as both:
        url = both.gateway.configuration.routes[0].upstream
        patience = {"first_byte": "200ms", "idle": "200ms"}
        async with gateway_for(url, timeouts=patience) as gateway, both.session.ws_connect(f"{gateway.url}/chat") as client:
            await client.send_str("x")
            assert await client.receive_str() == "late"


async def test_a_tunnel_works_on_while_the_gateway_drains_and_is_cut_at_the_end_of_the_grace() -> None:
    async with ends(echo) as both:
        client = await both.dial()
        await client.send_str("before")
        assert await client.receive_str() == "before"
        stopping = asyncio.create_task(both.gateway.stop())
        await eventually(lambda: both.gateway.draining)
        await client.send_str("during")
        try:
            assert (await asyncio.wait_for(client.receive(), 0.6)).data == "during"
        finally:
            await asyncio.wait_for(stopping, 3)
        assert (await asyncio.wait_for(client.receive(), 1)).type in (WSMsgType.CLOSED, WSMsgType.CLOSE, WSMsgType.ERROR)


# Upgrades that are none


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 426, 503])
async def test_a_refused_upgrade_is_relayed_as_it_is(status: int) -> None:
    fields = [("X-Why", "because"), ("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")]
    async with upstream(Reply(status, fields, b"no")) as up, gateway_for(up) as gateway, ClientSession() as session:
        with pytest.raises(WSServerHandshakeError) as refused:
            await session.ws_connect(gateway.url)
        assert refused.value.status == status
        assert refused.value.headers is not None
        assert refused.value.headers["X-Why"] == "because"
        async with connect(gateway) as client:
            for _ in range(2):
                response = await client.ask("GET", "/", ASK)
                assert (response.status, response.body) == (status, b"no")


async def test_an_upstream_that_cannot_be_reached_is_a_502() -> None:
    async with gateway_for("http://127.0.0.1:1") as gateway, ClientSession() as session:
        with pytest.raises(WSServerHandshakeError) as refused:
            await session.ws_connect(gateway.url)
        assert refused.value.status == 502


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("POST", ASK),
        ("GET", [("Connection", "Upgrade"), ("Upgrade", "h2c")]),
        ("GET", [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]),
        ("GET", [("Upgrade", "websocket")]),
        ("GET", [("Connection", "close"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]),
    ],
)
async def test_other_upgrades_are_not_taken_up(method: str, fields: list[tuple[str, str]]) -> None:
    """RFC 9110 7.8: Upgrade counts only where Connection names it; h2c would smuggle requests past every rule."""
    async with upstream(Reply(200, [], b"plain")) as up, gateway_for(up) as gateway, connect(gateway) as client:
        response = await client.ask(method, "/", fields)
        assert (response.status, response.body) == (200, b"plain")
        assert not up.last.values("upgrade")
        assert not up.last.values("http2-settings")


async def test_a_101_that_nobody_asked_for_is_no_tunnel() -> None:
    async def script(peer: Peer) -> None:
        while await peer.request() is not None:
            await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", [("Connection", "Upgrade"), ("Upgrade", "x")]))

    over: dict[str, Any] = {"timeouts": {"first_byte": "500ms"}, "drain": "500ms"}
    async with upstream(script) as up, gateway_for(up, **over) as gateway, connect(gateway) as client:
        response = await client.ask("GET", "/")
        await eventually(lambda: gateway.services.in_flight.now == 0, 1)
        assert response.status in (502, 504)
