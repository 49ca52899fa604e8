"""How an exchange ended, told once: the five outcomes, whatever the middleware inside does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from support.channel import eventually
from support.client import Client, ask, connect, request_bytes

from middleware.body import Body
from middleware.exchange import Exchange, exchange_of
from middleware.limits import InFlight
from middleware.metrics import Ended, Metrics
from middleware.problems import CODES, Problem, problems


class Told:
    """A server with the middleware, and what it told."""

    def __init__(self) -> None:
        self.ends: list[tuple[Exchange, Ended]] = []
        self.in_flight = InFlight(10)
        self.port = 0

    def ended(self, exchange: Exchange, ended: Ended) -> None:
        self.ends.append((exchange, ended))

    async def only(self) -> Ended:
        """The one end, once it is there."""
        await eventually(lambda: self.ends)
        assert len(self.ends) == 1, "told more than once"
        assert self.in_flight.now == 0
        return self.ends[0][1]


async def told_by(aiohttp_server: Any, handler: Any, *inside: Any) -> Told:
    told = Told()
    app = web.Application(middlewares=[web.middleware(Metrics(told, told.in_flight)), *inside])
    app.router.add_route("*", "/{path:.*}", handler)
    told.port = (await aiohttp_server(app)).port
    return told


def answering(make: Any) -> Any:
    async def handler(request: web.Request) -> web.StreamResponse:
        return make()

    return handler


async def pieces(*given: bytes, error: Exception | None = None, gate: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece
    if gate is not None:
        await gate.wait()
    if error is not None:
        raise error


# Answered


@pytest.mark.parametrize(
    ("make", "status", "sent"),
    [
        (lambda: web.Response(), 200, 0),
        (lambda: web.Response(body=b"abc"), 200, 3),
        (lambda: web.Response(status=204), 204, 0),
        (lambda: web.Response(status=304), 304, 0),
        (lambda: web.Response(status=500, body=b"its own"), 500, 7),
        (lambda: web.Response(body=Body(b"abc")), 200, 3),
        (lambda: web.Response(body=Body(pieces(b"ab", b"c"))), 200, 3),
        (lambda: web.Response(body=Body(pieces())), 200, 0),
    ],
)
async def test_an_answer_that_went_out_whole_is_ok(aiohttp_server: Any, make: Any, status: int, sent: int) -> None:
    told = await told_by(aiohttp_server, answering(make))
    await ask(told.port, "GET", "/a/b?secret=1#x")
    end = await told.only()
    assert (end.outcome, end.status, end.sent, end.coding) == ("ok", status, sent, "identity")
    assert (end.method, end.target) == ("GET", "/a/b")
    assert end.first_byte is not None
    assert 0 <= end.overhead <= end.first_byte <= end.seconds < 5


async def test_head_is_told_when_its_head_is_ready(aiohttp_server: Any) -> None:
    told = await told_by(aiohttp_server, answering(lambda: web.Response(body=Body(b"abc"))))
    await ask(told.port, "HEAD", "/")
    end = await told.only()
    assert (end.outcome, end.method, end.sent) == ("ok", "HEAD", 0)


async def test_the_coding_is_the_one_that_was_sent(aiohttp_server: Any) -> None:
    make = answering(lambda: web.Response(body=Body(b"abc"), headers={"Content-Encoding": "ctxpack.delta.v1, gzip"}))
    told = await told_by(aiohttp_server, make)
    await ask(told.port, "GET", "/")
    assert (await told.only()).coding == "ctxpack.delta.v1, gzip"


async def test_a_body_is_told_of_when_it_ended_and_not_before(aiohttp_server: Any) -> None:
    gate = asyncio.Event()
    told = await told_by(aiohttp_server, answering(lambda: web.Response(body=Body(pieces(b"first", gate=gate)))))
    async with connect(told.port) as client:
        await client.send(request_bytes("GET", "/"))
        await client.arrives(b"first")
        assert (told.ends, told.in_flight.now) == ([], 1)
        gate.set()
        assert (await client.response()).complete
        assert (await told.only()).outcome == "ok"


async def test_the_wait_for_the_upstream_is_not_the_gateways_own(aiohttp_server: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        exchange = exchange_of(request)
        exchange.started -= 10.0
        exchange.upstream_seconds = 9.5
        return web.Response()

    told = await told_by(aiohttp_server, handler)
    await ask(told.port, "GET", "/")
    end = await told.only()
    assert 0.5 <= end.overhead < 1.5
    assert end.first_byte is not None
    assert end.first_byte >= 10


# Refused, failed, cut


@pytest.mark.parametrize("code", list(CODES))
async def test_every_problem_has_an_outcome(aiohttp_server: Any, code: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise Problem(code, "because")

    told = await told_by(aiohttp_server, handler, problems)
    response = await ask(told.port, "GET", "/")
    end = await told.only()
    expected = {"upstream-cut": "upstream_cut", "upstream-unreachable": "failed", "upstream-timeout": "failed"}
    assert (end.outcome, end.status) == (expected.get(code, "refused"), CODES[code][0])
    assert end.sent == len(response.body)


async def test_a_fault_of_the_gateways_own_is_failed(aiohttp_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise RuntimeError("a bug")

    told = await told_by(aiohttp_server, handler, problems)
    await ask(told.port, "GET", "/")
    assert ((await told.only()).outcome, told.ends[0][1].status) == ("failed", 500)
    bare = await told_by(aiohttp_server, handler)
    await ask(bare.port, "GET", "/")
    assert ((await bare.only()).outcome, bare.ends[0][1].status) == ("failed", 0)


@pytest.mark.parametrize("exception", [web.HTTPNotFound, web.HTTPFound])
async def test_aiohttps_own_answers_by_exception_are_answers(aiohttp_server: Any, exception: Any) -> None:
    """An ordinary application refuses by raising; the client gets a whole answer with a status of its own."""

    async def handler(request: web.Request) -> web.Response:
        raise exception("/elsewhere") if exception is web.HTTPFound else exception()

    told = await told_by(aiohttp_server, handler, problems)
    response = await ask(told.port, "GET", "/")
    end = await told.only()
    assert (end.outcome, end.status) == ("ok", response.status)


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), Problem("upstream-cut", "it closed"), Problem("upstream-timeout", "silent")]
)
async def test_a_source_that_breaks_off_is_upstream_cut(aiohttp_server: Any, error: Exception) -> None:
    told = await told_by(aiohttp_server, answering(lambda: web.Response(body=Body(pieces(b"abc", error=error)))))
    response = await ask(told.port, "GET", "/")
    assert not response.complete
    end = await told.only()
    assert (end.outcome, end.status, end.sent) == ("upstream_cut", 200, 3)


# Gone


async def gone_during(told: Told, client: Client) -> Ended:
    client.reset()
    return await told.only()


async def test_who_leaves_before_the_head_is_gone(aiohttp_server: Any) -> None:
    waiting = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    told = await told_by(aiohttp_server, handler, problems)
    async with connect(told.port) as client:
        await client.send(request_bytes("GET", "/"))
        await waiting.wait()
        end = await gone_during(told, client)
    assert (end.outcome, end.status, end.sent, end.first_byte, end.overhead) == ("client_gone", 0, 0, None, 0.0)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (b"data: a word\n\n", "client_gone"),
        (b"data: [DONE]\n\n", "ok"),
        (b'event: message_stop\ndata: {"type": "message_stop"}\n\n', "ok"),
    ],
)
async def test_who_leaves_after_the_last_event_has_all_of_it(aiohttp_server: Any, last: bytes, outcome: str) -> None:
    def make() -> web.Response:
        body = Body(pieces(b"data: first\n\n", last, gate=asyncio.Event()))
        body.tail = b""
        return web.Response(body=body, content_type="text/event-stream")

    told = await told_by(aiohttp_server, answering(make))
    async with connect(told.port) as client:
        await client.send(request_bytes("GET", "/"))
        await client.arrives(last)
        end = await gone_during(told, client)
    assert (end.outcome, end.sent) == (outcome, len(last) + 13)


async def test_who_leaves_a_body_that_is_no_stream_is_gone_whatever_its_bytes_say(aiohttp_server: Any) -> None:
    never = asyncio.Event()
    told = await told_by(aiohttp_server, answering(lambda: web.Response(body=Body(pieces(b"data: [DONE]\n\n", gate=never)))))
    async with connect(told.port) as client:
        await client.send(request_bytes("GET", "/"))
        await client.arrives(b"[DONE]")
        assert (await gone_during(told, client)).outcome == "client_gone"
