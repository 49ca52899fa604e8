"""Contract, section 3: choosing."""

import gzip
import random
import time

import pytest
from backports import zstd
from contract.kit import (
    SPOKEN,
    Client,
    Holder,
    Peer,
    Raw,
    Reply,
    Request,
    ask,
    digest,
    fresh,
    gateway,
    get,
    is_delta,
    name,
    text_reply,
    until,
    why,
)
from support.texts import lines

from ctxpack import ContextPackDelta

FIRST, SECOND = lines(100), lines(104)


def turns(
    up,
    gw,
    *fields: tuple[str, str],
    path: str | None = None,
    accept: str = SPOKEN,
    bodies=(FIRST, SECOND),
    method: str = "GET",
    **reply,
):
    """The last of some turns, all asked with those fields."""
    path = path or fresh()
    client = Holder(gw, accept=accept, fields=fields)
    for body in bodies:
        up.at(path, text_reply(body, **reply))
        response = client.ask(method, path, b"q" if method == "POST" else b"")
        assert response.content == body.encode()
    return response


def bodies_of_all_kinds() -> list[tuple[str, str]]:
    chance = random.Random(5)
    words = lines(60)
    out = [(words, words)]
    for _ in range(14):
        size = chance.choice([3, 5, 20, 60, 200])
        base = lines(size, chance.randint(1, 99))
        cut = chance.randrange(len(base))
        match chance.randrange(5):
            case 0:
                target = base + lines(chance.randint(1, 90), 7)
            case 1:
                target = base[:cut] + "changed" + base[cut:]
            case 2:
                target = lines(size, chance.randint(100, 200))
            case 3:
                target = "".join(chr(chance.choice([0x4E00, 0x3B1, 65]) + chance.randrange(20)) for _ in range(1500))
            case _:
                target = "the same\n" * chance.randint(30, 3000)
        out.append((base, target))
    return out


@pytest.mark.parametrize(
    "accept", ["ctxpack.delta.v1, gzip", "ctxpack.delta.v1, ctxpack.pack.v1, gzip, zstd", "ctxpack.delta.v1", "gzip"]
)
def test_no_body_is_larger_than_identity_or_gzip(up, gw, accept):
    """So no body is larger than identity, nor, short of that tenth, than gzip would have made it."""
    for base, target in bodies_of_all_kinds():
        response = turns(up, gw, accept=accept, bodies=(base, target))
        plain = target.encode()
        assert len(response.body) <= len(plain)
        if len(plain) < 256:
            continue
        if "gzip" in accept and not (is_delta(response) and len(response.body) * 10 < len(plain)):
            assert len(response.body) <= len(gzip.compress(plain, 6)), (response.members("content-encoding"), why(response))


def test_the_smallest_form_wins(up, gw):
    """The smallest of the forms computed wins"""
    rewritten = lines(100, 9)
    response = turns(up, gw, accept="ctxpack.delta.v1, gzip", bodies=(FIRST, rewritten))
    assert response.members("content-encoding") == ["gzip"]
    response = turns(up, gw, accept="ctxpack.delta.v1", bodies=(FIRST, rewritten))
    assert response.members("content-encoding") == []
    assert why(response) == "not-smaller"
    dull = "word word word word\n" * 400
    response = turns(up, gw, accept="ctxpack.delta.v1, gzip", bodies=(FIRST, dull))
    assert response.members("content-encoding") == ["gzip"]


@pytest.mark.parametrize(
    ("accept", "never"),
    [
        ("ctxpack.delta.v1;q=0, gzip", "ctxpack"),
        ("ctxpack.delta.v1, gzip;q=0", "gzip"),
        ("ctxpack.delta.v1, gzip, zstd;q=0", "zstd"),
        ("ctxpack.delta.v1;q=0.000, zstd, gzip;q=0", "gzip"),
    ],
)
def test_q_0_excludes(up, gw, accept, never):
    """`q=0` excludes; other q-values only break ties."""
    for bodies in ((FIRST, SECOND), (FIRST, lines(300)), (FIRST, lines(100, 3))):
        codings = turns(up, gw, accept=accept, bodies=bodies).members("content-encoding")
        assert not [coding for coding in codings if coding.startswith(never)]


@pytest.mark.parametrize("accept", ["ctxpack.delta.v1;q=0.001, gzip;q=1, identity;q=1", "gzip;q=1, ctxpack.delta.v1;q=0.01"])
def test_other_q_values_only_break_ties(up, gw, accept):
    """other q-values only break ties"""
    assert is_delta(turns(up, gw, accept=accept))
    assert turns(up, gw, accept="identity;q=1, gzip;q=0.001").members("content-encoding") == ["gzip"]


@pytest.mark.parametrize("link", ["weak", "metered", "normal"])
def test_deltas_are_for_weak_or_metered_links(up, gw, link):
    """Deltas are for links classified `weak` or `metered` (setting `deltas.links`)."""
    response = turns(up, gw, ("Packhorse-Link", link))
    assert is_delta(response) is (link != "normal")
    if link == "normal":
        assert why(response) == "link-normal"


def test_deltas_links_is_a_setting(up):
    """(setting `deltas.links`)"""
    with gateway(up, deltas={"links": ["weak", "normal"]}) as gw:
        for link, used in (("weak", True), ("metered", False), ("normal", True)):
            assert is_delta(turns(up, gw, ("Packhorse-Link", link))) is used


def test_order_of_evidence_networks_and_assume(up):
    """Order of evidence: `Packhorse-Link`, client hints, route setting, client network (CIDR list) ... `link.assume` (default `metered`)"""
    networks = [{"cidr": "127.0.0.0/8", "link": "normal"}]
    routes = [
        {"name": "a", "match": "/", "upstream": up.url},
        {"name": "b", "match": "/weak", "upstream": up.url, "link": "weak"},
    ]
    with gateway(up, routes=routes, link={"networks": networks}) as gw:
        assert why(turns(up, gw)) == "link-normal"
        assert is_delta(turns(up, gw, path=fresh("/weak"))), "the route comes before the network"
        assert is_delta(turns(up, gw, ("Save-Data", "on"))), "hints come before the network"
        assert is_delta(turns(up, gw, ("Packhorse-Link", "metered")))
        assert why(turns(up, gw, ("Packhorse-Link", "normal"), path=fresh("/weak"))) == "link-normal"
    networks = [{"cidr": "10.0.0.0/8", "link": "normal"}, {"cidr": "::1/128", "link": "normal"}]
    with gateway(up, link={"networks": networks, "assume": "metered"}) as gw:
        assert is_delta(turns(up, gw))
    with gateway(up, link={"assume": "normal"}) as gw:
        assert why(turns(up, gw)) == "link-normal"
        assert is_delta(turns(up, gw, ("ECT", "2g")))


def test_the_network_of_a_client_behind_a_trusted_proxy(up):
    """client network (CIDR list), where only configured proxies are trusted"""
    networks = [{"cidr": "203.0.113.0/24", "link": "normal"}]
    for trusted, expected in (([], True), (["127.0.0.0/8"], False)):
        with gateway(up, link={"networks": networks}, trusted_proxies=trusted, forwarded="x-forwarded") as gw:
            response = turns(up, gw, ("X-Forwarded-For", "203.0.113.7"))
            assert is_delta(response) is expected, trusted


@pytest.mark.parametrize(("size", "small"), [(1, True), (254, True), (255, True), (256, False), (257, False)])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_bodies_under_min_bytes(up, gw, size, small, framing):
    """Bodies under `deltas.min_bytes` (default 256) ... pass as they are."""
    body = "ab" * 200
    response = turns(up, gw, accept="ctxpack.delta.v1, gzip", bodies=(body[:size],), framing=framing)
    if small:
        assert (why(response), response.body) == ("too-small", body[:size].encode())
        assert response.members("content-encoding") == []
    else:
        assert response.members("content-encoding") == ["gzip"]
    plain = get(gw, up.at(fresh(), text_reply(body[:size], framing=framing)), [("Accept-Encoding", "gzip")])
    assert plain.members("content-encoding") == ([] if small else ["gzip"])


def test_bodies_over_max_bytes(up):
    """Bodies ... over `deltas.max_bytes` (default 16 MiB) pass as they are."""
    with gateway(up, deltas={"max_bytes": 8192, "min_bytes": 300}) as gw:
        text = lines(200)
        for framing in ("length", "chunked"):
            for size, coded in ((299, False), (300, True), (301, True), (8191, True), (8192, True), (8193, False)):
                path = up.at(fresh(), text_reply(text[:size], framing=framing))
                response = get(gw, path, [("Accept-Encoding", "gzip")])
                assert response.members("content-encoding") == (["gzip"] if coded else []), (size, framing)
                if not coded:
                    assert response.body == text[:size].encode()


def test_max_bytes_speaks_of_the_decoded_body(up):
    """a coded body whose content is over `deltas.max_bytes` passes as it is, too"""
    with gateway(up, deltas={"max_bytes": 8192}) as gw:
        content = b"a" * 9000
        path = up.at(fresh(), text_reply(gzip.compress(content), ("Content-Encoding", "gzip")))
        response = Holder(gw, accept="ctxpack.delta.v1, gzip").get(path)
        assert response.content == content
        assert not is_delta(response)
        assert get(gw, path, [("Accept-Encoding", "identity")]).body == content


STREAMS = [
    "text/event-stream",
    "TEXT/Event-Stream; charset=utf-8",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
]


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("accept", ["ctxpack.delta.v1, ctxpack.pack.v1", "identity"])
def test_streams_are_passed_on_as_they_come(up, gw, kind, accept):
    """Event streams, NDJSON ... are passed on as they come."""

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", kind)])
        peer.chunk(b"data: 1\n\n")
        time.sleep(0.35)
        peer.chunk(b"data: 2\n\n")
        peer.finish()

    path = up.at(fresh(), Raw(script))
    with Client(gw) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: {accept}\r\nPackhorse-Debug: 1\r\n\r\n".encode())
        began = time.monotonic()
        head = client.head()
        assert time.monotonic() - began < 0.3
        client.until(b"data: 1\n\n")
        assert time.monotonic() - began < 0.3, "an event was held"
        client.until(b"data: 2\n\n")
        client.until(b"0\r\n\r\n")
        assert head.values("content-encoding") == []


def test_a_body_not_complete_after_the_wait(up):
    """any body not complete after `deltas.wait` (default 500 ms) ... is passed on as it comes"""

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/plain")])
        peer.chunk(FIRST[:4000].encode())
        time.sleep(0.9)
        peer.chunk(FIRST[4000:].encode())
        peer.finish()

    path = up.at(fresh(), Raw(script))
    with gateway(up, deltas={"wait": "200ms"}) as gw, Client(gw) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: ctxpack.delta.v1\r\nPackhorse-Session: w\r\n"
                    "Packhorse-Debug: 1\r\n\r\n".encode())  # fmt: skip
        began = time.monotonic()
        head = client.head()
        client.until(FIRST[3900:4000].encode())
        assert 0.1 < time.monotonic() - began < 0.6
        assert why(head) == "streamed"
        assert client.until(FIRST[-30:].encode())


def test_a_body_complete_within_the_wait_is_coded(up, gw):
    """any body not complete after `deltas.wait` (default 500 ms)"""

    def slow(body: str):
        def script(peer: Peer, _request: Request) -> None:
            peer.begin([("Content-Type", "text/plain")])
            for at in range(0, len(body), 4000):
                peer.chunk(body[at : at + 4000].encode())
                time.sleep(0.04)
            peer.finish()

        return Raw(script)

    path = up.at(fresh(), slow(FIRST))
    client = Holder(gw)
    client.get(path)
    up.at(path, slow(SECOND))
    assert is_delta(client.get(path))


# ---------------------------------------------------------------- Sec-Fetch

FETCHES = [
    # Sec-Fetch-Site, Sec-Fetch-Mode, Origin, Access-Control-Allow-Origin, delta
    (None, None, None, None, True),
    ("same-origin", "cors", None, None, True),
    ("same-origin", "navigate", None, None, True),
    ("same-site", "no-cors", None, None, True),
    ("none", "navigate", None, None, True),
    ("cross-site", "no-cors", None, None, False),
    ("cross-site", "no-cors", "https://a.example", "*", False),
    ("cross-site", "no-cors", "https://a.example", "https://a.example", False),
    ("cross-site", "navigate", None, None, False),
    ("cross-site", "cors", "https://a.example", None, False),
    ("cross-site", "cors", "https://a.example", "https://b.example", False),
    ("cross-site", "cors", "https://a.example", "https://a.example", True),
    ("cross-site", "cors", "https://a.example", "*", True),
    ("cross-site", "cors", None, "https://a.example", False),
    ("cross-site", "cors", "https://a.example", "https://a.example.evil", False),
    ("cross-site", "cors", "null", "https://a.example", False),
    ("cross-site", "websocket", None, "*", False),
    ("cross-site", None, "https://a.example", "https://a.example", False),
    ("bogus", "cors", None, None, False),
    ("bogus", "no-cors", None, None, False),
]


@pytest.mark.parametrize(("site", "mode", "origin", "allow", "used"), FETCHES)
def test_sec_fetch(up, gw, site, mode, origin, allow, used):
    """A delta only for requests a browser marks `same-origin`, `same-site` or `none` in `Sec-Fetch-Site`, for `cors` mode where the
    response allows that origin, and for clients that send no such field"""
    given = [("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode), ("Origin", origin)]
    fields = [(key, value) for key, value in given if value is not None]
    path = up.at(fresh(), text_reply(FIRST, *([("Access-Control-Allow-Origin", allow)] if allow else [])))
    client = Holder(gw, fields=fields)
    client.get(path)
    up.at(path, text_reply(SECOND, *([("Access-Control-Allow-Origin", allow)] if allow else [])))
    assert is_delta(client.get(path)) is used


# ---------------------------------------------------------------- untouched


def untouched(up, gw, reply: Reply, *fields: tuple[str, str], method: str = "GET") -> None:
    """The response is byte for byte what the upstream sent, but for proxy fields, though the client would take a delta."""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw, fields=fields)
    client.ask("GET", path, fields=[("Packhorse-Link", "weak")])
    up.at(path, reply)
    response = ask(gw, method, path, [*client.request_fields(), *fields])
    assert response.status == reply.status
    assert response.body == (b"" if method == "HEAD" else reply.body)
    given = {key.lower(): value for key, value in reply.fields}
    for key in ("etag", "content-encoding", "content-range", "accept-ranges", "content-type"):
        assert response.text(key) == given.get(key), key
    assert response.values("ctxpack-digest") == []


PLAIN = ("Content-Type", "text/plain; charset=utf-8")
ETAG = ("ETag", '"v1"')


def test_206_is_untouched(up, gw):
    """Untouched, always: 206"""
    untouched(
        up, gw, Reply(206, [PLAIN, ETAG, ("Content-Range", "bytes 0-8704/90000"), ("Accept-Ranges", "bytes")], SECOND.encode())
    )
    multi = Reply(
        206, [("Content-Type", "multipart/byteranges; boundary=x"), ETAG], b"--x\r\n\r\n" + SECOND.encode() + b"\r\n--x--\r\n"
    )
    untouched(up, gw, multi)


@pytest.mark.parametrize("value", ["no-transform", "max-age=5, No-Transform", "private,no-transform"])
def test_no_transform_is_untouched_on_either_side(up, gw, value):
    """Untouched, always: ... `no-transform` on either side"""
    untouched(up, gw, Reply(200, [PLAIN, ETAG, ("Cache-Control", value)], SECOND.encode()))
    untouched(up, gw, Reply(200, [PLAIN, ETAG], SECOND.encode()), ("Cache-Control", value))
    coded = gzip.compress(SECOND.encode())
    untouched(up, gw, Reply(200, [PLAIN, ETAG, ("Content-Encoding", "gzip"), ("Cache-Control", value)], coded))


def test_a_quoted_no_transform_is_none(up, gw):
    """A directive is a token; what stands in a quoted string is no directive (RFC 9111 5.2)."""
    path = up.at(fresh(), text_reply(FIRST, ("Cache-Control", 'x="a, no-transform"')))
    assert get(gw, path, [("Accept-Encoding", "gzip")]).members("content-encoding") == ["gzip"]


def test_head_is_untouched(up, gw):
    """Untouched, always: ... HEAD"""
    path = up.at(fresh(), text_reply(FIRST, ETAG))
    with Client(gw) as client:
        response = client.ask("HEAD", path, [("Accept-Encoding", "ctxpack.delta.v1, gzip"), ("Packhorse-Session", name())])
        assert response.status == 200
        assert response.values("content-encoding") == []
        assert response.text("content-length") == str(len(FIRST))
        assert response.text("etag") == '"v1"'
        assert client.ask("GET", path).body == FIRST.encode(), "the connection is in step"
    assert up.seen(path)[0].method == b"HEAD"


@pytest.mark.parametrize("status", [204, 304])
def test_204_and_304_are_untouched(up, gw, status):
    """Untouched, always: ... 1xx/204/304"""
    path = up.at(fresh(), Reply(status, [("X-Mine", "1")]))
    with Client(gw) as client:
        response = client.ask("GET", path, [("Accept-Encoding", SPOKEN), ("Packhorse-Session", name())])
        assert response.status == status
        assert response.text("x-mine") == "1"
        assert response.values("content-encoding") == []
        assert response.values("ctxpack-digest") == []
        assert client.ask("GET", up.at(fresh(), text_reply("next"))).body == b"next"


def test_a_204_that_claims_a_body(up, gw):
    """Untouched, always: 204 (and never framed: RFC 9112 6.1)"""
    path = up.at(fresh(), b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    with Client(gw) as client:
        assert client.ask("GET", path).status == 204
        assert client.ask("GET", up.at(fresh(), text_reply("next"))).body == b"next"


def test_1xx_is_untouched(up, gw):
    """Untouched, always: ... 1xx"""
    path = up.at(fresh(), b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" + text_reply(FIRST).to_bytes())
    response = get(gw, path, [("Accept-Encoding", "gzip")])
    assert response.status == 200
    assert response.values("link") == []
    assert gzip.decompress(response.body) == FIRST.encode()


def test_upgrades_are_untouched(up, gw):
    """Untouched, always: ... upgrades"""

    def script(peer: Peer, request: Request) -> None:
        if request.value("upgrade") != b"websocket":
            peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
            return
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello")
        got = peer.exactly(4)
        peer.send(got[::-1])
        peer.close()

    path = up.at(fresh(), Raw(script))
    with Client(gw) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAccept-Encoding: gzip\r\nPackhorse-Session: u\r\n\r\n".encode())  # fmt: skip
        response = client.head()
        assert response.status == 101
        assert response.text("upgrade").lower() == "websocket"
        assert up.last(path).values("packhorse-session") == []
        assert client.exactly(5) == b"hello"
        client.send(b"ab\xff\x00")
        assert client.to_end() == b"\x00\xffba"


@pytest.mark.parametrize("coding", ["x-unknown", "gzip, x-unknown", "dcz", "dcb", "gzip;q=1", "compress", "aes128gcm"])
def test_a_coding_the_gateway_cannot_undo_is_untouched(up, gw, coding):
    """Untouched, always: ... a coding the gateway cannot undo"""
    untouched(up, gw, Reply(200, [PLAIN, ETAG, ("Content-Encoding", coding)], b"\x00\x01" * 4000))


def test_unchanged_content(up, gw):
    """Unchanged content: a conditional GET is answered 304 (section 2); for other methods a delta that keeps every chunk."""
    response = turns(up, gw, bodies=(FIRST, FIRST), method="POST", accept="ctxpack.delta.v1")
    assert is_delta(response)
    assert why(response) == "unchanged"
    delta = ContextPackDelta.from_bytes(response.body)
    assert list(delta.new_chunks) == []
    assert delta.base_digest == delta.target_digest == digest(FIRST)
    for method in ("PUT", "PATCH", "DELETE"):
        assert why(turns(up, gw, bodies=(FIRST, FIRST), method=method)) == "unchanged"


def test_unchanged_content_of_a_post_is_no_304(up, gw):
    """a conditional GET is answered 304; for other methods a delta"""
    path = up.at(fresh(), text_reply(FIRST))
    tag = f'W/"sha256-{digest(FIRST)[7:39]}"'
    assert ask(gw, "POST", path, [("If-None-Match", tag)], b"q").status == 200


@pytest.mark.parametrize(
    "accept", ["identity;q=0", "*;q=0", "br, identity;q=0", "foo, *;q=0", "ctxpack.delta.v1, identity;q=0"]
)
def test_nothing_acceptable(up, gw, accept):
    """Nothing acceptable (`identity;q=0` and no coding in common): identity is sent, with `Packhorse-Why: not-acceptable`."""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", accept), ("Packhorse-Debug", "1"), ("Packhorse-Session", name())])
    assert response.status == 200
    assert response.values("content-encoding") == []
    assert response.body == FIRST.encode()
    assert why(response) == "not-acceptable"


@pytest.mark.parametrize("accept", ["gzip, identity;q=0", "ctxpack.pack.v1, identity;q=0", "zstd, *;q=0"])
def test_identity_refused_and_something_in_common(up, gw, accept):
    """Nothing acceptable (`identity;q=0` and no coding in common) -- here there is one"""
    path = up.at(fresh(), text_reply("short text\n" * 30))
    response = get(gw, path, [("Accept-Encoding", accept)])
    assert response.members("content-encoding") == [accept.split(",")[0]]


def test_a_get_with_a_body(up, gw):
    """A GET may have content; it is passed on, and its answer is like any other."""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw)
    client.ask("GET", path, b"question", [("Content-Length", "8")], framing="none")
    assert up.last(path).body == b"question"
    up.at(path, text_reply(SECOND))
    assert is_delta(client.ask("GET", path, b"question", [("Content-Length", "8")], framing="none"))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "REPORT", "QUERY", "PROPFIND"])
def test_deltas_for_any_method(up, gw, method):
    """The smallest of the forms computed wins, whatever the method."""
    response = turns(up, gw, method=method)
    assert is_delta(response), why(response)


def test_http_1_0_clients(up, gw):
    """A client of HTTP/1.0 is served: no chunks, and the connection ends."""
    for reply in (
        text_reply(FIRST),
        text_reply(FIRST, framing="chunked"),
        Reply(200, [("Content-Type", "text/event-stream")], b"data: x\n\n", framing="chunked"),
    ):
        path = up.at(fresh(), reply)
        with Client(gw) as client:
            client.send(f"GET {path} HTTP/1.0\r\nHost: g\r\nAccept-Encoding: gzip\r\n\r\n".encode())
            response = client.response()
            assert response.status == 200
            assert response.values("transfer-encoding") == []
            body = gzip.decompress(response.body) if response.members("content-encoding") else response.body
            assert body == reply.body


def test_http_1_0_client_without_host(up, gw):
    """HTTP/1.0 knows no Host."""
    path = up.at(fresh(), text_reply("fine"))
    with Client(gw) as client:
        client.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert client.response().status == 200


@pytest.mark.parametrize("status", [200, 201, 203, 400, 404, 429, 500, 503])
def test_any_status_is_exact(up, gw, status):
    """Coded or not, the content is the upstream's, whatever the status."""
    path = up.at(fresh(), text_reply(FIRST, status=status))
    client = Holder(gw)
    for _ in range(2):
        response = client.get(path)
        assert (response.status, response.content) == (status, FIRST.encode())


def test_upstream_zstd_and_a_delta_client_in_the_other_direction(up, gw):
    """content codings stacked in both directions"""
    path = up.at(
        fresh(),
        text_reply(gzip.compress(zstd.compress(FIRST.encode())), ("Content-Encoding", "zstd"), ("Content-Encoding", "gzip")),
    )
    client = Holder(gw)
    body = gzip.compress(zstd.compress(b"question " * 50))
    assert client.ask("POST", path, body, [("Content-Encoding", "zstd, gzip")]).content == FIRST.encode()
    up.at(path, text_reply(zstd.compress(SECOND.encode()), ("Content-Encoding", "zstd")))
    assert is_delta(client.ask("POST", path, body, [("Content-Encoding", "zstd, gzip")]))


def test_a_large_body_at_the_limit_of_16_mib(up, gw):
    """over `deltas.max_bytes` (default 16 MiB) pass as they are"""
    line = b"0123456789abcdef" * 63 + b"0123456789abcde\n"
    exact = line * (16 * 1024)
    assert len(exact) == 16 * 2**20
    path = up.at(fresh(), text_reply(exact))
    response = get(gw, path, [("Accept-Encoding", "gzip")])
    assert response.members("content-encoding") == ["gzip"]
    up.at(path, text_reply(exact + b"x"))
    response = get(gw, path, [("Accept-Encoding", "gzip")])
    assert response.members("content-encoding") == []
    assert response.body == exact + b"x"


def test_plain_http_with_a_session_is_served(up, gw):
    """any client that sends `Packhorse-Session` has opted in and is served too"""
    assert is_delta(turns(up, gw))


def test_back_to_back_requests_on_one_connection(up, gw):
    """Every answer stays in step on one connection, coded or not, 50 times over."""
    paths = [up.at(fresh(), text_reply(lines(3 + n % 40))) for n in range(50)]
    with Client(gw) as client:
        sent = b"".join(f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: gzip\r\n\r\n".encode() for path in paths)
        client.send(sent)
        for n in range(50):
            response = client.response()
            body = gzip.decompress(response.body) if response.members("content-encoding") else response.body
            assert body == lines(3 + n % 40).encode()
    until(lambda: all(up.seen(path) for path in paths))
