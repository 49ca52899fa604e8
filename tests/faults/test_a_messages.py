"""Faults (a), second half: codings and lengths, interim answers, ranges, validators, Vary."""

import asyncio
import time
import zlib

import brotli
import pytest
from backports import zstd
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.messages import Request, head_bytes, read_request_body
from support.packs import SPOKEN, decoded, gzipped, pack_client
from support.texts import KINDS, PATHS, UNDERSTOOD, answer, chat_request, document, lines
from support.twins import growing, turn_of, uses_delta
from support.upstream import Peer, Reply, each, upstream

from ctxpack import ContextPack

CODERS = {
    "gzip": gzipped,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "deflate": zlib.compress,
    "x-gzip": gzipped,
    "gzip, gzip": lambda data: gzipped(gzipped(data)),
    "zstd, gzip": lambda data: gzipped(zstd.compress(data)),
}
TEXT = lines(25).encode()
REFUSALS: list[list[tuple[str, str]]] = [
    [],
    [("Accept-Encoding", "identity")],
    [("Accept-Encoding", "")],
    [("Accept-Encoding", "gzip;q=0, br;q=0, zstd;q=0, deflate;q=0, x-gzip;q=0")],
]


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("coding", list(CODERS))
@pytest.mark.parametrize("accept", range(len(REFUSALS)))
async def test_a08_a09_a_coded_answer_reaches_a_client_that_takes_none_whole(kind, coding, accept):
    """tornadoweb/tornado#3690: decoded, cut at the coded length; qualixar/superlocalmemory#79: plain text labelled gzip."""
    fields = [("Content-Encoding", coding), ("ETag", '"v1"'), ("Content-Type", "text/plain")]
    async with upstream(Reply(fields=fields, body=CODERS[coding](TEXT))) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/", REFUSALS[accept])
        assert (response.status, response.complete) == (200, True)
        assert response.body == TEXT
        assert response.values("content-encoding") == []
        assert response.value("etag") == b'W/"v1"'


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("status", [201, 400, 404, 429, 500])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("feed", ["whole", "bytes"])
async def test_a08_error_bodies_and_every_framing_too(kind, status, framing, feed):
    reply = Reply(status, [("Content-Encoding", "gzip"), ("Content-Type", "application/json")], gzipped(TEXT), feed, framing)
    async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", PATHS[kind], [], b"{}")
        assert (response.status, response.body, response.complete) == (status, TEXT, True)
        assert response.values("content-encoding") == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
async def test_a08_the_providers_own_coding_reaches_a_client_that_accepts_it(kind, coding):
    """Issue 2, section 2. No coding is put over or under it, and the label is true."""
    body = CODERS[coding](TEXT)
    fields = [("Content-Encoding", coding), ("ETag", '"v1"')]
    async with upstream(Reply(fields=fields, body=body)) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/", [("Accept-Encoding", coding)])
        assert response.members("content-encoding") == [coding]
        assert decoded(response) == TEXT
        assert len(response.body) <= len(body)
        if response.body == body:
            assert response.value("etag") == b'"v1"'


@pytest.mark.parametrize("accept", range(len(REFUSALS)))
async def test_a08_a_plain_route_decodes_nothing(accept):
    fields = [("Content-Encoding", "gzip"), ("ETag", '"v1"')]
    async with upstream(Reply(fields=fields, body=gzipped(TEXT))) as up, gateway_for(up, kind="plain") as gateway:
        response = await ask(gateway, "GET", "/", REFUSALS[accept])
        assert (response.body, response.value("content-encoding"), response.value("etag")) == (gzipped(TEXT), b"gzip", b'"v1"')


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, gzip"])
async def test_a08_a09_twin_the_delta_is_of_the_decoded_body(kind, coding):
    answers = growing(kind, [("Content-Encoding", coding), ("ETag", '"v1"')], coded=CODERS[coding])
    async with upstream(answers) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind)
        assert turn.response.value("etag") == b'W/"v1"'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "deflate", "x-gzip", "gzip, zstd"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a10_a_coded_request_reaches_the_upstream_as_it_was(kind, coding, method, framing):
    """headroomlabs-ai/headroom#1542: decoded, and forwarded still labelled zstd; fixed on one route, missed on two."""
    body = (zstd.compress if coding == "gzip, zstd" else lambda data: data)(CODERS[coding.split(",")[0]](chat_request(kind)))
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind) as gateway:
        fields = [("Content-Encoding", coding), ("Content-Type", "application/json")]
        response = await ask(gateway, method, PATHS[kind], fields, body, framing=framing)
        assert (response.status, response.body) == (200, b"ok")
        assert up.last.body == body
        assert up.last.value("content-encoding") == coding.encode()
        assert up.last.value("content-type") == b"application/json"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a10_twin_coded_requests_have_deltas_for_answers(kind, coding):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        body = CODERS[coding](chat_request(kind))
        await uses_delta(gateway, kind, body=body, fields=[("Content-Encoding", coding)])
        assert [request.body for request in up.requests] == [body, body]


EXPECT = [("Expect", "100-continue"), ("Content-Type", "application/json")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upstream_says_100", [False, True])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a16_a_client_that_waits_for_100_gets_it(kind, upstream_says_100, framing):
    """mitmproxy/mitmproxy#553: the upload hung, or the upstream's 100 was taken for the answer."""

    async def script(peer: Peer) -> None:
        if await peer.head() is None:
            return
        if upstream_says_100:
            await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = peer.upstream.last
        await read_request_body(peer, request)
        await peer.respond(201, [("X-A", "1")], b"final")

    async with upstream(script) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        whole = request_bytes("POST", PATHS[kind], EXPECT, chat_request(kind), framing=framing)
        head, _, body = whole.partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        started = time.monotonic()
        await client.arrives(b"HTTP/1.1 100", within=3)
        assert time.monotonic() - started < 2
        await client.send(body)
        response = await client.response()
        assert (response.status, response.body, response.value("x-a")) == (201, b"final", b"1")
        assert [interim.status for interim in response.interim] == [100]
        assert up.last.body == chat_request(kind)
        assert not client.buffer


REFUSED_BY_HEADERS = [
    ([("Content-Length", "100000000000")], 413, {}),
    ([("Content-Length", "5")], 401, {"access": {"keys": [{"name": "a", "key": "0123456789abcdef"}]}}),
    ([("Content-Length", "5"), ("Packhorse-Session", "a b")], 400, {}),
]


@pytest.mark.parametrize(
    ("kind", "fields", "status", "settings"),  # a plain route has no sessions
    [(kind, *case) for kind in KINDS for case in REFUSED_BY_HEADERS if not (kind == "plain" and case[1] == 400)],
)
async def test_a16_a_refusal_that_headers_decide_comes_without_100(kind, fields, status, settings):
    """Issue 2, section 2."""
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind, **settings) as gateway, connect(gateway) as client:
        await client.send(head_bytes(f"POST {PATHS[kind]} HTTP/1.1", [("Host", "gw"), *EXPECT, *fields]))
        response = await client.response()
        assert (response.status, response.interim, up.requests) == (status, [], [])
        assert response.text("content-type") == "application/problem+json"


async def test_a16_an_expectation_nobody_knows_is_417():
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up) as gateway:
        assert (await ask(gateway, "POST", "/", [("Expect", "cake")], b"x")).status == 417
        assert up.requests == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a16_twin_with_expect_the_delta_is_used_and_expect_is_not_sent_on(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        await uses_delta(gateway, kind, fields=[("Expect", "100-continue")])
        assert all("expect" not in request.names() for request in up.requests)


INTERIM = [
    head_bytes("HTTP/1.1 103 Early Hints", [("Link", "</style.css>; rel=preload"), ("X-Early", "1")]),
    head_bytes("HTTP/1.1 102 Processing", []),
    head_bytes("HTTP/1.1 103 Early Hints", [("Link", "</a>")]) * 2,
    head_bytes("HTTP/1.1 100 Continue", []) + head_bytes("HTTP/1.1 103 Early Hints", [("Link", "</a>")]),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interim", range(len(INTERIM)))
@pytest.mark.parametrize("feed", ["one write", "bytes"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a18_early_hints_are_not_the_answer(kind, interim, feed, method):
    """mitmproxy/mitmproxy#2229: 103 was taken for the final response."""

    async def answers(peer: Peer, request: Request) -> None:
        data = INTERIM[interim] + Reply(fields=[("X-A", "1")], body=b"ok").to_bytes()
        await (peer.send(data) if feed == "one write" else peer.trickle(data))

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        for _ in range(2):
            response = await client.ask(method, "/")
            assert (response.status, response.body, response.value("x-a")) == (200, b"ok", b"1")
            assert response.values("link") == response.values("x-early") == []
            assert response.interim == []  # contract 6: dropped
        assert len(up.peers) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a18_twin_a_link_of_the_final_answer_stays_and_the_delta_is_used(kind):
    async with upstream(growing(kind, [("Link", "</a>; rel=x")])) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind)
        assert turn.response.values("link") == [b"</a>; rel=x"]


RANGES = {
    "one range": [("Content-Range", "bytes 0-1999/9000"), ("Content-Type", "text/plain"), ("ETag", '"v1"')],
    "several": [("Content-Type", "multipart/byteranges; boundary=B"), ("ETag", '"v1"')],
    "coded": [("Content-Range", "bytes 0-1999/9000"), ("Content-Encoding", "gzip"), ("ETag", '"v1"')],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", list(RANGES))
@pytest.mark.parametrize("accept", [SPOKEN, "gzip, zstd, dcz", ""])
async def test_a19_a_slice_passes_untouched_and_is_no_base(kind, case, accept):
    """mtrudel/bandit#677: a 206 was compressed, and Content-Range described other bytes."""
    body = document(1)[:2000]

    def answers(request: Request) -> Reply:
        return Reply(206 if request.values("range") else 200, RANGES[case] if request.values("range") else [], body)

    async with upstream(answers) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway, accept=accept) as client:
        fields = [("Range", "bytes=0-1999"), ("If-Range", '"origin"')]
        for _ in range(2):
            await client.client.send(request_bytes("GET", "/doc", [*client.request_fields(), *fields]))
            response = await client.client.response()
            assert (response.status, response.body, response.complete) == (206, body, True)
            for name, value in RANGES[case]:
                assert response.text(name) == value
        assert up.last.values("range") == [b"bytes=0-1999"]
        assert up.last.values("if-range") == [b'"origin"']
        slice_pack = ContextPack.from_content(body.decode())
        client.held[slice_pack.digest] = slice_pack
        whole = await client.ask("GET", "/doc")
        assert whole.content == body
        assert not whole.delta, "a slice became a base"


@pytest.mark.parametrize("kind", KINDS)
async def test_a19_twin_the_whole_document_has_a_delta(kind):
    async with upstream(growing(kind, [("Accept-Ranges", "bytes")])) as up, gateway_for(up, kind=kind) as gateway:
        await uses_delta(gateway, kind, method="GET")


CONDITIONAL = [b'W/"v1"', b'"x", W/"v1"', b'W/"x" ,W/"v1",W/"y"', b"*"]


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("condition", CONDITIONAL)
@pytest.mark.parametrize("accept", [SPOKEN, "gzip"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a22_a_tag_of_ours_is_mapped_back_to_the_origins(kind, condition, accept, method):
    """ggml-org/llama.cpp#23916: conditional requests never gave 304. The upstream here compares byte by byte, as many do."""

    def answers(request: Request) -> Reply:
        named = [tag.strip() for value in request.values("if-none-match") for tag in value.split(b",")]
        vary = [("ETag", '"v1"'), ("Vary", "Origin"), ("Content-Type", "text/plain")]
        if b'"v1"' in named or b"*" in named:
            return Reply(304, vary)
        return Reply(200, vary, document(1))

    async with upstream(answers) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway, accept=accept) as client:
        first = await client.ask("GET", "/doc")
        second = await client.ask("GET", "/doc")
        assert (first.content, second.content) == (document(1), document(1))
        coded = [turn for turn in (first, second) if turn.codings]
        assert coded, "nothing was coded, so no tag was weakened"
        assert all(turn.response.value("etag") == b'W/"v1"' for turn in coded)
        request = request_bytes(method, "/doc", [*client.request_fields(), ("If-None-Match", condition)])
        await client.client.send(request)
        third = await client.client.response(method)
        assert (third.status, third.body) == (304, b"")
        assert third.values("content-encoding") == []
        assert third.value("etag") in (b'W/"v1"', b'"v1"')
        assert set(third.members("vary")) == set(second.response.members("vary"))
        assert up.last.values("if-none-match")


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_a22_a_changed_document_is_sent_in_spite_of_the_condition(kind):
    def answers(request: Request) -> Reply:
        if request.values("if-none-match") == [b'"v2"']:
            return Reply(304, [("ETag", '"v2"')])
        return growing(kind, [("ETag", '"v2"')])(request)

    async with upstream(answers) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        await turn_of(client, kind, 1, method="GET")
        second = await turn_of(client, kind, 2, method="GET", fields=[("If-None-Match", 'W/"v1"')])
        assert second.delta
        assert len(up.requests) == 2


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_a22_an_origins_own_weak_tag_still_works(kind):
    def answers(request: Request) -> Reply:
        named = [tag.strip() for value in request.values("if-none-match") for tag in value.split(b",")]
        if b'W/"own"' in named:
            return Reply(304, [("ETag", 'W/"own"')])
        return growing(kind, [("ETag", 'W/"own"')])(request)

    async with upstream(answers) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind, method="GET")
        assert turn.response.value("etag") == b'W/"own"'
        response = await ask(gateway, "GET", PATHS[kind], [("If-None-Match", 'W/"own"'), ("Accept-Encoding", "gzip")])
        assert (response.status, response.body) == (304, b"")
        assert up.last.values("if-none-match")


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_a22_if_match_is_mapped_back_and_if_range_with_our_tag_is_dropped(kind):
    def answers(request: Request) -> Reply:
        return growing(kind, [("ETag", '"v1"')])(request)

    async with upstream(answers) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind, method="GET")
        tag = turn.response.text("etag")
        await ask(gateway, "PUT", PATHS[kind], [("If-Match", f'{tag}, "other"'), ("Accept-Encoding", SPOKEN)], b"{}")
        matched = b", ".join(up.last.values("if-match"))
        assert b'"v1"' in [part.strip() for part in matched.split(b",")]
        await ask(gateway, "GET", PATHS[kind], [("If-Range", str(tag)), ("Range", "bytes=0-9"), ("Accept-Encoding", SPOKEN)])
        assert up.last.values("if-range") == []


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_a22_without_a_tag_from_upstream_a_get_has_ours(kind):
    """Contract 2: the seed's 304-style check. The upstream is asked; its unchanged body is a 304."""
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        first = await turn_of(client, kind, 1, method="GET")
        tag = first.response.text("etag")
        assert tag is not None
        assert tag.startswith('W/"sha256-')
        assert len(tag) == len('W/"sha256-"') + 32
        digest = first.response.text("ctxpack-digest")
        assert digest is not None
        assert tag[len('W/"sha256-') : -1] == digest.removeprefix("sha256:")[:32]
        fields = [*client.request_fields(), ("If-None-Match", tag), ("X-Turn", "1")]
        same = await client.client.ask("GET", PATHS[kind], fields)
        assert (same.status, same.body, same.text("etag")) == (304, b"", tag)
        fields[-1] = ("X-Turn", "2")
        await client.client.send(request_bytes("GET", PATHS[kind], fields))
        other = client.read(await client.client.response())
        assert (other.status, other.content) == (200, answer(kind, 2)[1])
        assert other.delta
        assert len(up.requests) == 3


FOUR = {"accept-encoding", "available-dictionary", "ctxpack-base", "ctxpack-accept"}


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("accept", [None, "", "identity", "gzip", "zstd", SPOKEN])
@pytest.mark.parametrize(
    ("own", "further"),
    [
        ([], set()),
        ([("Vary", "Origin")], {"origin"}),
        ([("Vary", "origin, accept-ENCODING"), ("Vary", "Cookie")], {"origin", "cookie"}),
    ],
)
async def test_a23_vary_is_on_every_variant_merged_and_without_duplicates(kind, method, accept, own, further):
    """cloudflare/pingora#233: Vary missing on the variant that was not compressed, so caches were poisoned."""
    async with upstream(growing(kind, own)) as up, gateway_for(up, kind=kind) as gateway:
        fields = [] if accept is None else [("Accept-Encoding", accept)]
        for _ in range(2):
            response = await ask(gateway, method, PATHS[kind], fields)
            assert response.status == 200
            members = response.members("vary")
            assert len(members) == len(set(members))
            assert set(members) == FOUR | further


async def test_a23_vary_star_stays_and_a_plain_route_adds_nothing():
    async with upstream(growing("prepare", [("Vary", "*")])) as up, gateway_for(up) as gateway:
        assert "*" in (await ask(gateway, "GET", "/", [("Accept-Encoding", "gzip")])).members("vary")
    async with upstream(growing("plain", [("Vary", "Origin")])) as up, gateway_for(up, kind="plain") as gateway:
        assert (await ask(gateway, "GET", "/", [("Accept-Encoding", "gzip")])).members("vary") == ["origin"]


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_a23_twin_a_delta_carries_vary(kind):
    async with upstream(growing(kind, [("Vary", "Origin")])) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind)
        assert set(turn.response.members("vary")) == FOUR | {"origin"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accept", [None, "gzip, br, zstd", SPOKEN])
async def test_a29_an_event_stream_with_a_length_is_not_cut(kind, accept):
    """envoyproxy/ai-gateway#2392: a stream that says its length was rewritten and cut at the old one."""
    events = b"".join(b'data: {"delta": "%d"}\n\n' % number for number in range(500)) + b"data: [DONE]\n\n"
    reply = Reply(fields=[("Content-Type", "text/event-stream")], body=events)
    async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        for _ in range(2):
            response = await client.ask("POST", PATHS[kind], [] if accept is None else [("Accept-Encoding", accept)], b"{}")
            assert response.complete
            assert decoded(response) == events


@pytest.mark.parametrize("kind", KINDS)
async def test_a29_twin_a_document_with_a_length_has_a_delta_with_its_own(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind)
        if turn.response.framing == "length":
            assert int(turn.response.value("content-length") or b"-1") == len(turn.response.body)


async def test_a_no_transform_on_either_side_leaves_the_body_alone():
    """Contract 3."""
    async with (
        upstream(growing("prepare", [("Cache-Control", "no-transform, max-age=5")])) as up,
        gateway_for(up) as gateway,
        pack_client(gateway) as client,
    ):
        for number in (1, 2):
            turn = await turn_of(client, "prepare", number)
            assert (turn.codings, turn.why) == ([], "no-transform")
    async with upstream(growing("prepare")) as up, gateway_for(up) as gateway, pack_client(gateway) as client:
        for number in (1, 2):
            turn = await turn_of(client, "prepare", number, fields=[("Cache-Control", "no-transform")])
            assert turn.codings == []
        await asyncio.sleep(0)
    async with upstream(growing("prepare")) as up, gateway_for(up) as gateway:
        await uses_delta(gateway, "prepare")
