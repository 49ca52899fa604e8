"""Each middleware alone in an ordinary aiohttp application: what the package promises to anybody who mounts one.

The applications here are those of somebody who never heard of the gateway: ``web.Application(middlewares=[...])`` on
``web.AppRunner``, handlers that answer in every way aiohttp knows, a real socket.
"""

import asyncio
import contextlib
import json
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.messages import Response
from support.packs import decoded, gzipped, pack_client
from support.texts import document

from gateway.principals import Principals
from gateway.stores import Bounds, MemoryStore
from middleware.access import Access, AccessKey, Principal
from middleware.conditional import TagMemory
from middleware.cors import Cors, CrossOrigin
from middleware.deltas import DeltaCoder, Deltas
from middleware.exchange import Exchange, exchange_of
from middleware.forwarded import Forwarded, networks
from middleware.hop_by_hop import hop_by_hop
from middleware.limits import InFlight, Limiter, Limits
from middleware.link import Link, LinkClassifier
from middleware.metrics import Ended, Metrics
from middleware.problems import problems
from middleware.request_id import request_id
from middleware.session import SessionFinder, SessionNames
from middleware.uploads import UploadReader

TEXT = document(1).decode()


class Recorded:
    """What the metrics middleware told."""

    def __init__(self) -> None:
        self.ends: list[Ended] = []

    def ended(self, exchange: Exchange, ended: Ended) -> None:
        self.ends.append(ended)


def hasher() -> Principals:
    return Principals(bytes(32))


def uploads(idle: float = 5.0, server_decodes: bool = False) -> UploadReader:
    return UploadReader(Limits(), idle, server_decodes=server_decodes)


def deltas(store: MemoryStore | None = None, **settings: Any) -> DeltaCoder:
    reader = uploads(server_decodes=settings.pop("server_decodes", False))
    return DeltaCoder(Deltas(**settings), Limits(), 6, store or MemoryStore(Bounds()), reader, TagMemory())


MADE: dict[str, Callable[[], Any]] = {
    "request_id": lambda: request_id,
    "metrics": lambda: Metrics(Recorded(), InFlight(8)),
    "problems": lambda: problems,
    "cors": lambda: CrossOrigin(Cors(origins=("https://page.example",))),
    "limits": lambda: Limiter(Limits(), InFlight(8)),
    "hop_by_hop": lambda: hop_by_hop,
    "forwarded": lambda: Forwarded("off", ()),
    "access": lambda: Principal(Access(), hasher()),
    "link": lambda: LinkClassifier(Link(), None),
    "session": lambda: SessionFinder(SessionNames(), hasher(), uploads(), "here"),
    "deltas": deltas,
}
"""All of them, as gateway/pipeline.py mounts them."""


async def as_json(request: web.Request) -> web.StreamResponse:
    return web.json_response({"text": TEXT})


async def as_text(request: web.Request) -> web.StreamResponse:
    return web.Response(text=TEXT)


async def as_generator(request: web.Request) -> web.StreamResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for line in TEXT.splitlines(keepends=True):
            yield line.encode()

    return web.Response(body=pieces(), content_type="text/plain")


async def as_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    for line in TEXT.splitlines(keepends=True):
        await response.write(line.encode())
    await response.write_eof()
    return response


async def as_nothing(request: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


async def not_found(request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound(text=TEXT)


HANDLERS: dict[str, tuple[Any, int, bytes]] = {
    "json": (as_json, 200, json.dumps({"text": TEXT}).encode()),
    "text": (as_text, 200, TEXT.encode()),
    "generator": (as_generator, 200, TEXT.encode()),
    "stream": (as_stream, 200, TEXT.encode()),
    "nothing": (as_nothing, 204, b""),
    "not found": (not_found, 404, TEXT.encode()),
}


@contextlib.asynccontextmanager
async def service(*middlewares: Any, handler: Any = as_text, **runner: Any) -> AsyncIterator[int]:
    """The port of an application with these middlewares and one handler for every path."""
    app = web.Application(middlewares=middlewares)
    app.router.add_route("*", "/{path:.*}", handler)
    running = web.AppRunner(app, access_log=None, handler_cancellation=True, **runner)
    await running.setup()
    try:
        site = web.TCPSite(running, "127.0.0.1", 0)
        await site.start()
        yield running.addresses[0][1]
    finally:
        await running.cleanup()


# Mounted


@pytest.mark.parametrize("name", list(MADE))
def test_aiohttp_takes_it_for_a_new_style_middleware(name: str) -> None:
    """One that is not marked so gets a DeprecationWarning, and is called with the application instead of a request."""
    app = web.Application(middlewares=[MADE[name]()])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        app.freeze()
    assert [str(warning.message) for warning in said] == []


@pytest.mark.parametrize("name", list(MADE))
@pytest.mark.parametrize("kind", list(HANDLERS))
async def test_alone_it_leaves_an_ordinary_answer_as_it_is(name: str, kind: str) -> None:
    handler, status, body = HANDLERS[kind]
    async with service(MADE[name](), handler=handler) as port, connect(port) as client:
        for _ in range(2):  # the second on the same connection: the first was framed as it should be
            response = await client.ask("GET", "/any?a=b", [("Accept-Encoding", "identity")])
            assert (response.status, response.body, response.complete) == (status, body, True)


@pytest.mark.parametrize("kind", list(HANDLERS))
async def test_all_of_them_together_leave_an_ordinary_answer_as_it_is(kind: str) -> None:
    handler, status, body = HANDLERS[kind]
    async with service(*(make() for make in MADE.values()), handler=handler) as port, connect(port) as client:
        for _ in range(2):
            response = await client.ask("GET", "/any?a=b", [("Accept-Encoding", "identity")])
            assert (response.status, response.body, response.complete) == (status, body, True)


@pytest.mark.parametrize("name", list(MADE))
async def test_alone_it_leaves_a_request_body_to_the_handler(name: str) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response(await request.json())

    asked = {"query": "what was said", "turn": 3}
    async with service(MADE[name](), handler=echo) as port:
        response = await ask(port, "POST", "/", [("Content-Type", "application/json")], json.dumps(asked).encode())
        assert (response.status, json.loads(response.body)) == (200, asked)


@pytest.mark.parametrize("name", list(MADE))
async def test_alone_it_lets_a_fault_of_the_handler_be_a_500(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: web.Request) -> web.Response:
        raise RuntimeError("the handler's own fault")

    async with service(MADE[name](), handler=broken) as port:
        response = await ask(port, "GET", "/")
        assert (response.status, response.complete) == (500, True)
        assert b"own fault" not in response.body


# One by one


async def seen_by(middleware: Any, fields: Any = (), **runner: Any) -> tuple[Exchange, Response]:
    """What the exchange holds once the middleware has passed it on."""
    seen: list[Exchange] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(exchange_of(request))
        return web.Response(text=TEXT)

    async with service(middleware, handler=handler, **runner) as port:
        response = await ask(port, "GET", "/", fields)
    return seen[0], response


async def test_request_id_names_every_exchange_once() -> None:
    names: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        names.append(exchange_of(request).id)
        return web.Response()

    async with service(request_id, handler=handler) as port, connect(port) as client:
        for _ in range(20):
            await client.ask("GET", "/")
    assert len(set(names)) == 20
    assert all(name.isascii() and name.replace("-", "").isalnum() for name in names)


@pytest.mark.parametrize("kind", ["json", "text", "nothing"])
async def test_metrics_tells_how_an_exchange_ended(kind: str) -> None:
    handler, status, body = HANDLERS[kind]
    recorded, in_flight = Recorded(), InFlight(8)
    async with service(Metrics(recorded, in_flight), handler=handler) as port:
        await ask(port, "GET", "/some/path?secret=1")
    (end,) = recorded.ends
    assert (end.method, end.target, end.status, end.outcome, end.sent) == ("GET", "/some/path", status, "ok", len(body))
    assert in_flight.now == 0


async def test_problems_answers_what_a_handler_refuses() -> None:
    from middleware.problems import Problem

    async def handler(request: web.Request) -> web.Response:
        raise Problem("too-large", "less, please")

    async with service(problems, handler=handler) as port:
        response = await ask(port, "GET", "/")
    assert (response.status, response.text("content-type")) == (413, "application/problem+json")
    assert json.loads(response.body)["type"] == "urn:packhorse:too-large"


async def test_limits_and_problems_refuse_a_body_before_it_is_read() -> None:
    async with service(problems, Limiter(Limits(request=10), InFlight(8))) as port, connect(port) as client:
        await client.send(request_bytes("POST", "/", [("Content-Length", "11")], framing="none"))
        assert (await client.response()).status == 413


async def test_hop_by_hop_takes_out_what_ends_here() -> None:
    exchange, response = await seen_by(hop_by_hop, [("Connection", "X-Mine"), ("X-Mine", "1"), ("X-Kept", "2"), ("TE", "gzip")])
    assert response.status == 200
    assert {name.lower() for name in exchange.outgoing} == {"host", "x-kept"}


async def test_forwarded_finds_the_client_behind_a_proxy() -> None:
    exchange, _ = await seen_by(Forwarded("off", networks(["127.0.0.0/8"])), [("X-Forwarded-For", "203.0.113.7")])
    assert exchange.peer == "203.0.113.7"


async def test_access_and_problems_let_in_who_has_a_key() -> None:
    access = Access(keys=(AccessKey(name="alice", key="0123456789abcdef"),))
    exchange, response = await seen_by(Principal(access, hasher()), [("Packhorse-Key", "0123456789abcdef")])
    assert (exchange.principal, response.status) == ("key:alice", 200)
    async with service(problems, Principal(access, hasher())) as port:
        assert (await ask(port, "GET", "/")).status == 401


async def test_link_classifies() -> None:
    exchange, _ = await seen_by(LinkClassifier(Link(), None), [("Packhorse-Link", "weak")])
    assert (exchange.link, exchange.link_evidence) == ("weak", "said")


async def test_session_opens_one_for_who_takes_part() -> None:
    finder = SessionFinder(SessionNames(), hasher(), uploads(), "here")
    exchange, response = await seen_by(finder, [("Accept-Encoding", "ctxpack.delta.v1")])
    assert exchange.owner is not None
    assert response.text("packhorse-session") == exchange.made_session


async def test_cors_answers_a_preflight_for_a_page() -> None:
    asked = [
        ("Origin", "https://page.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "ctxpack-base"),
    ]
    async with service(CrossOrigin(Cors(origins=("https://page.example",)))) as port:
        response = await ask(port, "OPTIONS", "/", asked)
    assert (response.status, response.body) == (204, b"")
    assert response.text("access-control-allow-origin") == "https://page.example"
    assert response.members("access-control-allow-headers") == ["ctxpack-base"]


# A prepare service that spares its clients' links itself


def prepare(turns: "list[int] | None" = None) -> Any:
    """A handler that answers with the document of the turn asked for, in the query or a JSON body."""

    async def handler(request: web.Request) -> web.Response:
        turn = (await request.json())["turn"] if request.method == "POST" else int(request.query["turn"])
        if turns is not None:
            turns.append(turn)
        return web.Response(text=document(turn).decode(), content_type="text/markdown")

    return handler


def spared(store: MemoryStore | None = None, **settings: Any) -> tuple[Any, ...]:
    """What such a service mounts: refusals, whose bases these are, and the coder."""
    return problems, SessionFinder(SessionNames(), hasher(), uploads(), "here"), deltas(store, **settings)


async def test_a_prepare_service_sends_deltas_of_a_growing_text() -> None:
    async with service(*spared(), handler=prepare()) as port, pack_client(port) as client:
        for turn in range(1, 6):
            came = await client.ask("GET", f"/prepare?turn={turn}")
            assert came.content == document(turn)  # rebuilt from what the client holds, its digest checked
            assert came.delta == (turn > 1), came.why
            if turn > 1:
                assert len(came.response.body) < len(came.content) / 5


async def test_a_prepare_service_that_is_asked_by_post_reads_its_requests() -> None:
    """What the coder reads to keep as a base is still there for the handler."""
    turns: list[int] = []
    async with service(*spared(), handler=prepare(turns)) as port, pack_client(port) as client:
        for turn in (1, 2):
            came = await client.ask("POST", "/prepare", json.dumps({"turn": turn}).encode())
            assert (came.status, came.content == document(turn)) == (200, True)
            assert came.delta == (turn > 1), came.why
    assert turns == [1, 2]


@pytest.mark.parametrize("decompress", [True, False], ids=["aiohttp decodes uploads", "aiohttp leaves uploads coded"])
async def test_a_prepare_service_takes_coded_requests(decompress: bool) -> None:
    """aiohttp's own server decodes a gzip request body, yet leaves Content-Encoding in place."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=exchange_of(request).request_decoded or await request.read())

    body = gzipped(document(1))
    async with service(*spared(server_decodes=decompress), handler=handler, auto_decompress=decompress) as port:
        response = await ask(port, "POST", "/", [("Content-Encoding", "gzip"), ("Packhorse-Session", "s")], body)
        assert (response.status, response.body) == (200, document(1))


async def test_a_streaming_answer_of_a_service_is_passed_as_it_comes() -> None:
    go = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            await go.wait()
            yield b"last"

        return web.Response(body=pieces(), content_type="text/plain")

    async with service(*spared(wait=0.02), handler=handler) as port, connect(port) as client:
        await client.send(
            request_bytes("GET", "/", [("Packhorse-Session", "s"), ("Accept-Encoding", "ctxpack.delta.v1, gzip")])
        )
        await client.arrives(b"first")
        go.set()
        response = await client.response()
        assert (response.complete, response.body) == (True, b"firstlast")


async def test_a_base_is_kept_only_when_the_answer_was_written_out() -> None:
    store = MemoryStore(Bounds())
    async with service(*spared(store), handler=prepare()) as port, pack_client(port) as client:
        await client.ask("GET", "/prepare?turn=1")
        await eventually(lambda: store.sizes().bases == 1)
    refused = MemoryStore(Bounds())
    async with service(*spared(refused), handler=not_found) as port, pack_client(port) as client:
        assert (await client.ask("GET", "/")).status == 404
        assert refused.sizes().bases == 0


async def test_sessions_do_not_see_each_others_bases() -> None:
    async with service(*spared(), handler=prepare()) as port:
        async with pack_client(port, "one") as first:
            await first.ask("GET", "/prepare?turn=1")
        async with pack_client(port, "two") as second:
            second.held = first.held
            came = await second.ask("GET", "/prepare?turn=2")
            assert (came.delta, came.why, came.content) == (False, "unknown-base", document(2))


async def test_a_service_that_compresses_for_itself_is_not_coded_twice() -> None:
    """``enable_compression`` makes aiohttp code the body when it is written, after every middleware."""

    async def handler(request: web.Request) -> web.Response:
        response = await prepare()(request)
        response.enable_compression()
        return response

    async with service(*spared(), handler=handler) as port, pack_client(port) as client:
        for turn in (1, 2):
            assert (await client.ask("GET", f"/prepare?turn={turn}")).content == document(turn)
        plain = await ask(port, "GET", "/prepare?turn=1", [("Accept-Encoding", "gzip"), ("Packhorse-Session", "other")])
        assert decoded(plain) == document(1)


@pytest.mark.parametrize("name", list(MADE))
async def test_a_generator_is_closed_when_its_client_leaves(name: str) -> None:
    closed = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                await asyncio.Event().wait()
            finally:
                closed.set()

        return web.Response(body=pieces(), content_type="text/plain")

    made = deltas(wait=0.02) if name == "deltas" else MADE[name]()
    fields = [("Packhorse-Session", "s"), ("Accept-Encoding", "ctxpack.delta.v1")]
    async with service(made, handler=handler) as port, connect(port) as client:
        await client.send(request_bytes("GET", "/", fields))
        await client.arrives(b"first")
        client.reset()
        await asyncio.wait_for(closed.wait(), 4)
