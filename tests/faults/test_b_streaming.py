"""Faults (b): what streams passes as it comes, and who leaves or dies is noticed. ``deltas.wait`` is long here: a wait would show."""

import asyncio
import time
from typing import Any

import pytest
from support.channel import eventually
from support.client import Client, connect, request_bytes
from support.gateways import gateway_for
from support.messages import Request, Response, chunked, head_bytes
from support.packs import SPOKEN, pack_client
from support.scrapes import counted, scrape
from support.texts import KINDS, PATHS, UNDERSTOOD, answer, chat_request, document, events
from support.twins import growing, turn_of, uses_delta
from support.upstream import Peer, Reply, each, upstream

from ctxpack import ContextPack

PATIENT = {"wait": "20s"}
SOON = 1.5
"""Seconds in which something that is promised at once must have come, on a busy machine."""
STREAMS = ["text/event-stream", "text/event-stream; charset=utf-8", "application/x-ndjson"]
WORDS = [f"word{number}" for number in range(20)]


def stream_request(kind: str, fields: Any = ()) -> bytes:
    return request_bytes("POST", PATHS[kind], fields, chat_request(kind, stream=True))


async def next_chunk(client: Client) -> bytes:
    size = int((await client.until(b"\r\n")).split(b";")[0], 16)
    data = await client.exactly(size + 2)
    return data[:-2]


async def body_until(client: Client, response: Response, mark: bytes) -> bytes:
    """Body bytes until ``mark`` has come."""
    read = bytearray()
    while mark not in read:
        read += await next_chunk(client) if response.framing == "chunked" else await client.some()
    return bytes(read)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("content_type", STREAMS)
@pytest.mark.parametrize("accept", [None, SPOKEN])
async def test_b01_the_head_comes_before_the_first_event(kind, host, content_type, accept):
    """caddyserver/caddy#4247: the head was flushed with the first byte of the body."""
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", content_type), ("X-A", "1")])
        await go.wait()
        await peer.chunk(b"data: 1\n\n")
        await peer.end()

    async with (
        upstream(each(answers), host=host) as up,
        gateway_for(up, kind=kind, deltas=PATIENT) as gateway,
        connect(gateway) as client,
    ):
        fields = [] if accept is None else [("Accept-Encoding", accept), ("Packhorse-Session", "s")]
        await client.send(stream_request(kind, fields))
        await up.seen(1)
        async with asyncio.timeout(SOON):
            response = await client.response_head()
        assert (response.status, response.text("content-type"), response.text("x-a")) == (200, content_type, "1")
        go.set()
        assert (await client.body_of(response)).body == b"data: 1\n\n"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content_type", STREAMS)
@pytest.mark.parametrize("accept", ["gzip, br, zstd", SPOKEN, "identity"])
@pytest.mark.parametrize("feed", ["one write", "bytes"])
async def test_b02_each_event_comes_when_it_is_sent(kind, content_type, accept, feed):
    """caddyserver/caddy#6293, traefik#7882: a compressor, or a smallest size, held small events back."""
    turns: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", content_type)])
        while (event := await turns.get()) is not None:
            data = chunked(event, end=False)
            await (peer.send(data) if feed == "one write" else peer.trickle(data))
        await peer.end()

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind, deltas=PATIENT) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind, [("Accept-Encoding", accept)]))
        response = await client.response_head()
        assert response.values("content-encoding") == []  # coded event streams are a later issue
        for number in range(10):
            event = b"data: tick %04d ....\n\n" % number
            turns.put_nowait(event)
            async with asyncio.timeout(SOON):
                got = b""
                while len(got) < len(event):
                    got += await next_chunk(client)
            assert got == event
        turns.put_nowait(None)
        assert (await client.body_of(response)).complete


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before the head", "after the head", "amid the stream", "amid a document", "uploading"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b03_a_client_that_leaves_stops_the_upstream_within_a_second(kind, moment, method, how):
    """BerriAI/litellm#30244: the client was gone and the upstream worked on; fixed on one route only."""
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        request = await peer.head()
        assert request is not None
        if moment in ("before the head", "uploading"):
            await peer.gone()
            return
        content_type = "text/plain" if moment == "amid a document" else "text/event-stream"
        await peer.begin([("Content-Type", content_type)])
        if moment != "after the head":
            for number in range(2):
                await peer.chunk(b"data: %d\n\n" % number + b"x" * (9000 if moment == "amid a document" else 0))
        await left.wait()
        await peer.gone()

    async with upstream(script) as up, gateway_for(up, kind=kind, deltas={"wait": "50ms"}) as gateway:
        async with connect(gateway) as client:
            if moment == "uploading":
                if method == "GET" or kind != "plain":
                    return  # a body that is read whole first never reaches the upstream: nothing to stop
                await client.send(
                    head_bytes(f"POST {PATHS[kind]} HTTP/1.1", [("Host", "gw"), ("Content-Length", "100000")]) + b"{"
                )
            else:
                await client.send(request_bytes(method, PATHS[kind], [("Accept-Encoding", SPOKEN)]))
            await up.seen(1)
            if moment not in ("before the head", "uploading"):
                response = await client.response_head()
                if moment != "after the head":
                    await body_until(client, response, b"data: 1")
            started = time.monotonic()
            left.set()
            getattr(client, how)()
            if moment != "uploading" or up.peers:  # a body that is read whole first may not have reached the upstream yet
                gone = await up.peers[0].gone(3)
                assert gone - started < 2, "the contract says a second"
            assert len(up.requests) <= 1
        await counted(gateway, "packhorse_requests_total", outcome="client_gone")
        await eventually(lambda: gateway.services.in_flight.now == 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_b03_twin_a_client_that_stays_has_all_and_the_connection_is_kept(kind):
    async def answers(peer: Peer, request: Request) -> None:
        if b'"stream": true' in request.body:
            await peer.stream(events(kind, WORDS))
        else:
            await peer.reply(growing(kind)(request))

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind))
        response = await client.response()
        assert (response.body, response.complete) == (b"".join(events(kind, WORDS)), True)
        await uses_delta(gateway, kind)
        assert len(up.peers) == 1


ENDS = ["rst", "fin amid chunks", "fin amid a chunk", "short length", "garbage chunk"]


async def die(peer: Peer, how: str, content_type: str, pieces: list[bytes], go: asyncio.Event) -> None:
    """Send the pieces, and break off when ``go`` is set."""
    if how == "short length":
        size = sum(map(len, pieces)) + 1000
        await peer.send(head_bytes("HTTP/1.1 200 OK", [("Content-Type", content_type), ("Content-Length", str(size))]))
        await peer.send(*pieces)
    else:
        await peer.begin([("Content-Type", content_type)])
        for piece in pieces:
            await peer.chunk(piece)
    await go.wait()
    if how == "rst":
        peer.reset()
    elif how == "garbage chunk":
        await peer.send(b"zz\r\nwhat\r\n")
        peer.close()
    else:
        if how == "fin amid a chunk":
            await peer.send(b"ff\r\nshort")
        peer.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("accept", [None, SPOKEN])
async def test_b08_an_upstream_that_dies_amid_a_stream_is_seen_to_have_died(kind, how, accept):
    """open-webui/open-webui#29628: a silent end was taken for a complete answer."""
    go = asyncio.Event()
    pieces = events(kind, WORDS)[:4]
    terminal = events(kind, WORDS)[-1]

    async def answers(peer: Peer, request: Request) -> None:
        await die(peer, how, "text/event-stream", pieces, go)

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind, [] if accept is None else [("Accept-Encoding", accept)]))
        response = await client.response_head()
        started = await body_until(client, response, pieces[3]) if how != "short length" else await client.until(pieces[3])
        go.set()
        response.chunks, response.body = [], b""
        await client.body_of(response)
        assert not response.complete, "the cut stream looks whole"
        assert started.startswith(pieces[0])
        assert terminal not in client.transcript
        assert b"[DONE]" not in client.transcript
        metrics = await counted(gateway, "packhorse_requests_total", outcome="upstream_cut")
        assert metrics.by("packhorse_requests_total", "outcome") == {"upstream_cut": 1}
        assert len(up.requests) == 1


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("how", ENDS)
async def test_b08_a_document_that_was_cut_is_a_502_and_no_base(kind, how):
    """The head is not out while the body is waited for, so the client gets a problem."""
    go = asyncio.Event()
    go.set()
    content_type, body = answer(kind, 1)

    async def answers(peer: Peer, request: Request) -> None:
        if request.value("x-turn") == b"1":
            await die(peer, how, content_type, [body[:4000], body[4000:]], go)
        else:
            await peer.reply(growing(kind)(request))

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        first = await client.ask("POST", PATHS[kind], chat_request(kind), [("X-Turn", "1")])
        assert first.status == 502
        assert b"urn:packhorse:upstream-cut" in first.response.body
        cut = ContextPack.from_content(body.decode())
        client.held[cut.digest] = cut
        second = await turn_of(client, kind, 2)
        assert not second.delta, "a cut answer became a base"
        third = await turn_of(client, kind, 3)
        assert third.delta
        metrics = await counted(gateway, "packhorse_requests_total", 3)
        assert metrics.by("packhorse_requests_total", "outcome") == {"upstream_cut": 1, "ok": 2}


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("how", ENDS)
async def test_b08_a_document_that_is_cut_when_its_head_is_out_is_cut_for_the_client(kind, how):
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        await die(peer, how, "text/plain", [document(1)], go)

    async with (
        upstream(each(answers)) as up,
        gateway_for(up, kind=kind, deltas={"wait": "50ms"}) as gateway,
        connect(gateway) as client,
    ):
        await client.send(request_bytes("POST", "/", [("Accept-Encoding", SPOKEN)]))
        response = await client.response_head()
        go.set()
        await client.body_of(response)
        assert not response.complete
        await counted(gateway, "packhorse_requests_total", outcome="upstream_cut")
        assert len(up.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_b08_twin_a_stream_that_ends_is_whole_and_ok(kind):
    async with upstream(each(_streaming(kind))) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind))
        response = await client.response()
        assert (response.body, response.complete) == (b"".join(events(kind, WORDS)), True)
        metrics = await counted(gateway, "packhorse_requests_total")
        assert metrics.by("packhorse_requests_total", "outcome") == {"ok": 1}


def _streaming(kind: str) -> Any:
    async def answers(peer: Peer, request: Request) -> None:
        await peer.stream(events(kind, WORDS))

    return answers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content_type", STREAMS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("cut", ["every byte", "in one"])
async def test_b09_characters_cut_at_every_byte_stay_whole(kind, content_type, host, cut):
    """api7/aisix#111: U+FFFD where a chunk ended within a character. ``in one`` is the twin."""
    whole = ': a comment\n\ndata: 北京☁ 😀 é\n\nid: ü\r\nevent: naïve\r\ndata: {"x":"☁"}\r\n\r\n'.encode() * 3

    async def answers(peer: Peer, request: Request) -> None:
        pieces = [whole[index : index + 1] for index in range(len(whole))] if cut == "every byte" else [whole]
        await peer.begin([("Content-Type", content_type)])
        for piece in pieces:
            await peer.chunk(piece)
            await asyncio.sleep(0)
        await peer.end()

    async with upstream(each(answers), host=host) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind, [("Accept-Encoding", SPOKEN)]))
        response = await client.response()
        assert (response.body, response.complete) == (whole, True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [1, 4000], ids=["one line", "twin of many lines"])
@pytest.mark.parametrize("piece", [700, 65536])
async def test_b11_a_line_of_megabytes_is_delivered(kind, lines, piece):
    """open-webui/open-webui#28114: "Chunk too big". Probe: iterating by line fails at 524288 bytes."""
    size = 3 * 2**20
    whole = b"".join(b"data: " + b"a" * (size // lines) + b"\n\n" for _ in range(lines)) + b"data: [DONE]\n\n"

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        for start in range(0, len(whole), piece):
            await peer.chunk(whole[start : start + piece])
        await peer.end()

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind, [("Accept-Encoding", SPOKEN)]))
        response = await client.response()
        assert response.complete
        assert response.body == whole


@pytest.mark.parametrize("kind", KINDS)
async def test_b12_a_healthy_stream_outlasts_every_timeout(kind):
    """octos-org/octos#2170: cut at exactly 300 seconds. Here every knob is 0.6 s, and the stream takes three times that."""
    timeouts = {"connect": "600ms", "first_byte": "600ms", "idle": "600ms"}

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        for number in range(12):
            await peer.chunk(b"data: %d\n\n" % number)
            await asyncio.sleep(0.15)
        await peer.end()

    async with (
        upstream(each(answers)) as up,
        gateway_for(up, kind=kind, timeouts=timeouts) as gateway,
        connect(gateway) as client,
    ):
        await client.send(stream_request(kind))
        response = await client.response()
        assert response.complete
        assert response.body.endswith(b"data: 11\n\n")


@pytest.mark.parametrize("kind", KINDS)
async def test_b12_twin_a_silent_stream_is_cut_after_the_idle_time(kind):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"data: 0\n\n")
        await peer.gone()

    timeouts = {"connect": "5s", "first_byte": "5s", "idle": "400ms"}
    async with upstream(script) as up, gateway_for(up, kind=kind, timeouts=timeouts) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind))
        response = await client.response()
        assert (response.body, response.complete) == (b"data: 0\n\n", False)
        await up.all_gone(3)
        metrics = await counted(gateway, "packhorse_upstream_errors_total")
        assert metrics.by("packhorse_requests_total", "outcome") == {"upstream_cut": 1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b14_a_reused_connection_that_dies_is_retried_for_safe_methods_alone(kind, host, method, how):
    """aio-libs/aiohttp#9138: the upstream closed just when the connection was used again. Contract 6."""

    async def script(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            if request.target == b"/second" and peer.index == 0:
                getattr(peer, how)()
                return
            await peer.respond(body=b"" if request.method == b"HEAD" else b"ok", framing="length")

    async with upstream(script, host=host) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        assert (await client.ask("GET", "/first")).status == 200
        response = await client.ask(method, "/second", [], b"{}" if method in ("POST", "PUT", "PATCH") else b"")
        attempts = [request for request in up.requests if request.target == b"/second"]
        if method in ("GET", "HEAD", "OPTIONS"):
            assert response.status == 200
            assert len(attempts) == 2
        else:
            assert response.status == 502
            assert len(attempts) == 1
            assert b"urn:packhorse:upstream-" in response.body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_b14_a_retry_happens_once_and_not_on_a_fresh_connection(kind, method):
    async def script(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            if request.target != b"/warm":
                peer.close()
                return
            await peer.respond(body=b"ok")

    async with upstream(script) as up, gateway_for(up, kind=kind) as gateway:
        async with connect(gateway) as client:
            cold = await client.ask(method, "/cold")
            assert cold.status == 502
            assert up.targets() == [b"/cold"]
        async with connect(gateway) as client:
            assert (await client.ask(method, "/warm")).status == 200
            assert (await client.ask(method, "/then")).status == 502
            assert up.targets().count(b"/then") == (2 if method == "GET" else 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_b14_a_connection_closed_while_idle_is_not_used_again(kind, method):
    """No byte was sent on it, so even a POST goes out on a fresh one."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.respond(body=b"ok")
        peer.close()
        await peer.lost.wait()

    async with upstream(script) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        for number in range(1, 6):
            assert (await client.ask(method, "/", [], b"{}" if method == "POST" else b"")).status == 200
            await up.peers[-1].lost.wait()
            await asyncio.sleep(0.01)
            assert len(up.requests) == number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_b14_no_hidden_retries_of_answers(kind, status):
    """Issue 2, section 2."""
    async with (
        upstream(Reply(status, [("Retry-After", "1")], b"no")) as up,
        gateway_for(up, kind=kind) as gateway,
        connect(gateway) as client,
    ):
        response = await client.ask("GET", "/")
        assert (response.status, response.text("retry-after"), len(up.requests)) == (status, "1", 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_b14_twin_a_living_connection_is_reused_and_deltas_used(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        for method in ("GET", "POST"):
            await uses_delta(gateway, kind, method=method, session=f"s-{method}")
        assert len(up.peers) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ["no", "yes"])
async def test_b17_x_accel_buffering_is_kept_and_the_stream_not_read_to_its_end(kind, value):
    """theopenconversationkit/tock#1895."""
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream"), ("X-Accel-Buffering", value)])
        await peer.chunk(b"data: 1\n\n")
        await go.wait()
        await peer.end()

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind, deltas=PATIENT) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind, [("Accept-Encoding", SPOKEN)]))
        async with asyncio.timeout(SOON):
            response = await client.response_head()
            assert response.text("x-accel-buffering") == value
            assert await next_chunk(client) == b"data: 1\n\n"
        go.set()
        assert (await client.body_of(response)).complete


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_b17_x_accel_buffering_is_added_to_event_streams_and_to_nothing_else(kind):
    async def answers(peer: Peer, request: Request) -> None:
        await (peer.stream(events(kind, WORDS)) if request.target == b"/stream" else peer.reply(growing(kind)(request)))

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        assert (await client.ask("POST", "/stream", [], b"{}")).text("x-accel-buffering") == "no"
        assert (await client.ask("POST", "/document", [], b"{}")).values("x-accel-buffering") == []
        turn = await uses_delta(gateway, kind)
        assert turn.response.values("x-accel-buffering") == []


@pytest.mark.parametrize("kind", ["openai", "plain"])
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/octet-stream"])
@pytest.mark.parametrize("said", ["close", "nothing"])
async def test_b18_the_tail_before_a_tls_close_is_not_lost(kind, content_type, said, ca):
    """opensandbox-group/OpenSandbox#1461: a megabyte, its terminator, and the close at once; the tail was lost now and then."""
    body = bytes(range(251)) * 5000

    async def script(peer: Peer) -> None:
        await peer.request()
        closing = [("Connection", "close")] if said == "close" else []
        fields = [("Content-Type", content_type), ("Transfer-Encoding", "chunked"), *closing]
        await peer.send(head_bytes("HTTP/1.1 200 OK", fields) + chunked(body))
        peer.close()

    route = {"tls": {"ca": str(ca.ca)}}
    async with upstream(script, tls=ca.server("127.0.0.1")) as up, gateway_for(up, kind=kind, route=route) as gateway:
        for _ in range(13):  # 13 runs of each of four, on two kinds of route
            async with connect(gateway) as client:
                await client.send(stream_request(kind))
                response = await client.response()
                assert response.complete
                assert response.body == body
        assert len(up.peers) == 13


async def test_b18_twin_documents_over_tls_have_deltas(ca):
    async with (
        upstream(growing(), tls=ca.server("127.0.0.1")) as up,
        gateway_for(up, route={"tls": {"ca": str(ca.ca)}}) as gateway,
    ):
        await uses_delta(gateway)


@pytest.mark.parametrize("kind", KINDS)
async def test_b_a_slow_client_makes_the_upstream_wait(kind):
    """Issue 2: back-pressure both ways, memory bounded."""
    piece = b"x" * 65536
    written = 0

    async def answers(peer: Peer, request: Request) -> None:
        nonlocal written
        await peer.begin([("Content-Type", "text/event-stream")])
        for _ in range(2000):
            await peer.chunk(piece)
            written += len(piece)
        await peer.end()

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind))
        await client.response_head()
        client.pause()
        before = -1
        while before != written:  # until it stands still
            before = written
            await asyncio.sleep(0.25)
        assert written < 40 * 2**20, "131 MB went into somebody's memory"
        client.reset()
        await up.all_gone(3)


@pytest.mark.parametrize("kind", KINDS)
async def test_b_comments_and_odd_events_are_kept(kind):
    whole = b":\n\n: keep-alive\n\nretry: 10\n\ndata\n\nevent: ping\ndata: {}\n\nunknown: x\n\n\n\ndata:1\rdata:2\r\r"

    async def answers(peer: Peer, request: Request) -> None:
        await peer.stream([whole])

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(stream_request(kind))
        assert (await client.response()).body == whole


async def test_b_a_slow_document_is_passed_on_after_the_wait():
    """Contract 3: a body not complete after ``deltas.wait`` is passed on as it comes."""
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/plain")])
        await peer.chunk(document(1))
        await go.wait()
        await peer.chunk(b"the end\n")
        await peer.end()

    async with upstream(each(answers)) as up, gateway_for(up, deltas={"wait": "200ms"}) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Debug", "1")]))
        async with asyncio.timeout(3):
            response = await client.response_head()
        assert (response.text("packhorse-why"), response.values("content-encoding")) == ("streamed", [])
        go.set()
        assert (await client.body_of(response)).body == document(1) + b"the end\n"
        assert (await scrape(gateway)).total("packhorse_requests_total") <= 1
