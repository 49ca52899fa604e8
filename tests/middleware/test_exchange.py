"""The facts of one exchange, and the one 100 Continue of it."""

from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.upstream import Peer, Reply, closed_port, upstream

from middleware.exchange import Exchange, exchange_of, send_continue

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WAITING = [("Expect", "100-continue"), ("Content-Length", "4")]


async def test_an_exchange_is_begun_by_whoever_asks_first(aiohttp_server: Any) -> None:
    seen: list[Exchange] = []

    @web.middleware
    async def outside(request: web.Request, handler: Any) -> web.StreamResponse:
        seen.append(exchange_of(request))
        return await handler(request)

    async def handler(request: web.Request) -> web.Response:
        assert exchange_of(request) is seen[-1]
        seen[-1].outgoing["X-A"] = "changed"
        assert request.headers["X-A"] == "1"  # the request itself stays as it came
        return web.Response()

    app = web.Application(middlewares=[outside])
    app.router.add_get("/", handler)
    port = (await aiohttp_server(app)).port
    async with connect(port) as client:
        for _ in range(2):
            assert (await client.ask("GET", "/", [("X-A", "1"), ("x-a", "2")])).status == 200
    assert seen[0] is not seen[1]


def test_fields_of_an_exchange_are_fixed() -> None:
    exchange = Exchange(CIMultiDict())
    with pytest.raises(AttributeError):
        exchange.unheard_of = 1  # type: ignore[attr-defined]
    assert exchange.lookups is not Exchange(CIMultiDict()).lookups


async def test_continue_is_said_once_and_only_to_who_waits(aiohttp_server: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        exchange_of(request).expects = "X-Waits" in request.headers
        for _ in range(3):
            await send_continue(request)
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_post("/", handler)
    port = (await aiohttp_server(app)).port
    waits = await ask(port, "POST", "/", [("X-Waits", "1")], b"body")
    assert ([one.status for one in waits.interim], waits.body) == ([100], b"body")
    assert (await ask(port, "POST", "/", [], b"body")).interim == []


# Through the gateway


@pytest.mark.parametrize("coded", [False, True], ids=["passed on", "read here"])
@pytest.mark.parametrize("kind", ["plain", "prepare"])
async def test_a_client_is_told_to_go_on_once_and_before_it_sends(kind: str, coded: bool) -> None:
    fields = [*WAITING, *([("Content-Encoding", "identity")] if coded else [])]
    async with upstream(Reply(body=b"got it")) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        for _ in range(2):
            await client.send(request_bytes("POST", "/", fields, framing="none"))
            await client.arrives(CONTINUE)
            await client.send(b"body")
            response = await client.response()
            assert ([one.status for one in response.interim], response.body) == ([100], b"got it")
            assert up.last.body == b"body"


async def test_a_client_that_does_not_wait_is_not_asked_twice() -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up) as gateway:
        response = await ask(gateway, "POST", "/", [("Expect", "100-continue")], b"sent at once")
        assert len(response.interim) <= 1
        assert (response.status, up.last.body) == (200, b"sent at once")


@pytest.mark.parametrize("fields", [[("Expect", "100-continue")], []])
async def test_who_sends_no_body_or_does_not_ask_is_told_nothing(fields: list[tuple[str, str]]) -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up) as gateway:
        assert (await ask(gateway, "GET", "/", fields)).interim == []
        assert (await ask(gateway, "POST", "/", [], b"body")).interim == []


async def test_a_refusal_comes_instead_of_a_100() -> None:
    async with upstream(Reply()) as up, gateway_for(up, limits={"request": 3}) as gateway, connect(gateway) as client:
        await client.send(request_bytes("POST", "/", WAITING, framing="none"))
        response = await client.response()
        assert (response.status, response.interim, up.requests) == (413, [], [])


async def test_a_client_is_not_told_to_go_on_while_no_upstream_is_there_to_take_it() -> None:
    """Its body can still be sent elsewhere, whole."""
    async with gateway_for(f"http://127.0.0.1:{closed_port()}") as gateway, connect(gateway) as client:
        await client.send(request_bytes("POST", "/", WAITING, framing="none"))
        response = await client.response()
        assert (response.status, response.interim) == (502, [])


async def test_an_http_1_0_client_is_never_told_to_go_on() -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up) as gateway, connect(gateway) as client:
        head = request_bytes("POST", "/", WAITING, framing="none").replace(b"HTTP/1.1", b"HTTP/1.0")
        await client.send(head + b"body")
        response = await client.response()
        assert (response.status, response.interim, up.last.body) == (200, [], b"body")


async def test_the_upstream_may_answer_before_it_has_all_of_the_body() -> None:
    """The final answer is one and whole, and the client need not send the rest."""

    async def script(peer: Peer) -> None:
        request = await peer.head()
        assert request is not None
        await peer.respond(403, [("Connection", "close")], b"no")
        await peer.gone()

    async with upstream(script) as up, gateway_for(up, kind="plain") as gateway, connect(gateway) as client:
        await client.send(request_bytes("POST", "/", WAITING, framing="none"))
        await client.arrives(CONTINUE)
        await client.send(b"bo")
        response = await client.response()
        assert ([one.status for one in response.interim], response.status, response.body) == ([100], 403, b"no")
