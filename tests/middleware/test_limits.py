"""What is refused before a body byte is read."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.messages import Request
from support.upstream import Peer, Reply, each, upstream

from middleware.limits import InFlight, Limiter, Limits
from middleware.problems import problems


async def ok(request: web.Request) -> web.Response:
    return web.Response(body=str(len(await request.read())).encode())


async def server_with(aiohttp_server: Any, limits: Limits, in_flight: InFlight, handler: Any = ok) -> int:
    app = web.Application(middlewares=[problems, web.middleware(Limiter(limits, in_flight))], client_max_size=0)
    app.router.add_route("*", "/", handler)
    return int((await aiohttp_server(app)).port)


@pytest.mark.parametrize(
    ("size", "limit", "status"),
    [(0, 0, 200), (1, 0, 413), (10, 10, 200), (11, 10, 413), (10**15, 10, 413), (10**18, 2**20, 413)],
)
async def test_a_declared_length_over_the_limit_is_refused_unread(
    aiohttp_server: Any, size: int, limit: int, status: int
) -> None:
    port = await server_with(aiohttp_server, Limits(request=limit), InFlight(10))
    async with connect(port) as client:
        body = b"x" * size if size <= limit else b""
        await client.send(request_bytes("POST", "/", [("Content-Length", str(size))], framing="none") + body)
        response = await client.response()
    assert response.status == status
    if status == 413:
        problem = json.loads(response.body)
        assert problem["type"] == "urn:packhorse:too-large"
        assert f"{limit} bytes (limits.request)" in problem["detail"]


async def test_a_body_without_a_declared_length_is_left_to_its_reader(aiohttp_server: Any) -> None:
    port = await server_with(aiohttp_server, Limits(request=10), InFlight(10))
    response = await ask(port, "POST", "/", [], b"x" * 50, framing="chunked")
    assert (response.status, response.body) == (200, b"50")


@pytest.mark.parametrize(("now", "status"), [(0, 200), (2, 200), (3, 429), (100, 429)])
async def test_too_many_at_one_time_is_a_429_that_says_when_to_come_again(aiohttp_server: Any, now: int, status: int) -> None:
    """The exchange itself is counted before it is judged: two are the most here, and it is the second."""
    in_flight = InFlight(2)
    for _ in range(now):
        in_flight.enter()
    response = await ask(await server_with(aiohttp_server, Limits(), in_flight), "GET", "/")
    assert response.status == status
    if status == 429:
        assert response.text("retry-after") == "1"
        assert json.loads(response.body)["type"] == "urn:packhorse:rate-limited"


async def test_no_more_than_the_limit_are_served_at_one_time_and_all_are_afterwards() -> None:
    go = asyncio.Event()

    async def answer(peer: Peer, request: Request) -> None:
        await go.wait()
        await peer.respond(200, [], b"x")

    async with upstream(each(answer)) as up, gateway_for(up, limits={"in_flight": 3}) as gateway:
        first = [asyncio.ensure_future(ask(gateway, "GET", "/")) for _ in range(3)]
        await eventually(lambda: len(up.requests) == 3)
        assert (await ask(gateway, "GET", "/")).status == 429
        assert len(up.requests) == 3
        go.set()
        assert [(await one).status for one in first] == [200] * 3
        assert (await ask(gateway, "GET", "/")).status == 200


async def test_who_left_is_counted_out() -> None:
    async def answer(peer: Peer, request: Request) -> None:
        await peer.gone()

    async with upstream(each(answer)) as up, gateway_for(up, limits={"in_flight": 1}) as gateway:
        for count in range(1, 4):
            async with connect(gateway) as client:
                await client.send(request_bytes("GET", "/"))
                await eventually(lambda count=count: len(up.requests) == count)
                await client.leave()
            await up.all_gone()


async def test_a_refused_exchange_is_counted_out_too() -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up, limits={"in_flight": 1, "request": 5}) as gateway:
        for _ in range(5):
            assert (await ask(gateway, "POST", "/", [], b"too much")).status == 413
        assert (await ask(gateway, "GET", "/")).status == 200


# The count itself


async def test_emptied_returns_at_once_where_there_is_none() -> None:
    await asyncio.wait_for(InFlight(1).emptied(), 1)


async def test_emptied_wakes_everybody_when_the_last_leaves() -> None:
    in_flight = InFlight(1)
    in_flight.enter()
    in_flight.enter()
    waiting = [asyncio.ensure_future(in_flight.emptied()) for _ in range(3)]
    waiting[0].cancel()  # one who waits no longer keeps nobody from being told
    in_flight.leave()
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiting[1:])
    in_flight.leave()
    await asyncio.wait_for(asyncio.gather(*waiting[1:]), 1)
    in_flight.enter()
    again = asyncio.ensure_future(in_flight.emptied())
    await asyncio.sleep(0)
    assert not again.done()
    in_flight.leave()
    await asyncio.wait_for(again, 1)


@pytest.mark.parametrize(
    "wrong", [{"request": -1}, {"ratio": 0}, {"layers": 0}, {"layers": 9}, {"in_flight": 0}, {"bodies": 1}]
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate(wrong)
