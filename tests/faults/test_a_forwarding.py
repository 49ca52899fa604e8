"""Faults (a), first half: fields and targets cross the gateway as HTTP says, and nothing else happens to them."""

import pytest
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.messages import head_bytes
from support.texts import KINDS, PATHS, UNDERSTOOD, chat_request
from support.twins import growing, uses_delta
from support.upstream import Peer, Reply, each, upstream

HOSTS = ["127.0.0.1", "localhost"]
FEEDS = ["whole", "bytes"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("feed", FEEDS)
async def test_a01_fields_that_connection_names_are_dropped_both_ways(kind, host, feed):
    """anomalyco/opencode#47770: a fixed list of hop-by-hop fields, and what Connection names reached the other side."""
    back = [("Connection", "X-Back-Hop"), ("CONNECTION", "keep-alive , x-second"), ("X-Back-Hop", "1"), ("x-second", "2")]
    back += [("Keep-Alive", "timeout=5"), ("Proxy-Authenticate", "Basic"), ("X-Back-End", "3")]
    async with upstream(Reply(fields=back, body=b"ok", feed=feed), host=host) as up, gateway_for(up, kind=kind) as gateway:
        fields = [
            ("Connection", "x-hop, close"),
            ("X-HOP", "1"),
            ("connection", " X-Third ,, "),
            ("x-third", "3"),
            ("X-End", "2"),
        ]
        fields += [("Keep-Alive", "timeout=1"), ("Proxy-Connection", "keep-alive"), ("TE", "trailers"), ("Trailer", "X-T")]
        fields += [("Proxy-Authorization", "Basic secret"), ("Upgrade", "h2c")]
        response = await ask(gateway, "POST", PATHS[kind], fields, b"{}")
        assert (response.status, response.body) == (200, b"ok")
        assert response.value("x-back-end") == b"3"
        for name in ("x-back-hop", "x-second", "keep-alive", "proxy-authenticate"):
            assert response.values(name) == []
        assert up.last.value("x-end") == b"2"
        for name in ("x-hop", "x-third", "keep-alive", "proxy-connection", "te", "trailer", "proxy-authorization", "upgrade"):
            assert up.last.values(name) == []
        assert up.last.body == b"{}"


@pytest.mark.parametrize("kind", KINDS)
async def test_a01_connection_cannot_take_away_the_framing(kind):
    """The same kind of fault: Connection names a field that frames or addresses the message."""
    reply = Reply(fields=[("Connection", "content-length, date, x-a")], body=b"hello")
    async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway:
        fields = [("Connection", "content-length, host, transfer-encoding")]
        response = await ask(gateway, "POST", "/", fields, b"body")
        assert (response.status, response.body, response.complete) == (200, b"hello", True)
        assert (up.last.body, up.last.value("host")) == (b"body", up.authority.encode())


@pytest.mark.parametrize("kind", KINDS)
async def test_a01_twin_fields_nobody_names_pass_and_the_delta_is_used(kind):
    answer = growing(kind, [("X-Back-Hop", "1"), ("Connection", "keep-alive")])
    async with upstream(answer) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind, fields=[("X-Hop", "1"), ("Connection", "keep-alive")])
        assert turn.response.value("x-back-hop") == b"1"
        assert up.last.value("x-hop") == b"1"


COOKIES = [
    (b"Set-Cookie", b"a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
    (b"Set-Cookie", b"b=2"),
    (b"Set-Cookie", b"c=3; Path=/;  HttpOnly"),
    (b"Set-Cookie", b"a=4"),
    (b"Set-Cookie", b'e="x, y"'),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [200, 302, 404, 500])
@pytest.mark.parametrize("feed", FEEDS)
async def test_a03_duplicate_fields_stay_lines_of_their_own(kind, status, feed):
    """lablup/backend.ai#13193: five Set-Cookie lines, the last survived."""
    reply = Reply(status, [*COOKIES, ("Link", "<a>"), ("X-Y", "1"), ("Link", "<b>"), ("Location", "/z")], b"ok", feed)
    async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway:
        sent = [("X-A", "1"), ("Cookie", "k=v"), ("X-B", "2"), ("x-a", "3, 4"), ("X-A", "")]
        response = await ask(gateway, "GET", "/", sent)
        assert response.status == status
        assert response.values("set-cookie") == [value for _, value in COOKIES]
        assert response.values("link") == [b"<a>", b"<b>"]
        assert up.last.values("x-a") == [b"1", b"3, 4", b""]
        order = [name for name in up.last.names() if name in ("x-a", "cookie", "x-b")]
        assert order == ["x-a", "cookie", "x-b", "x-a", "x-a"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a03_twin_all_cookies_come_with_a_delta_too(kind):
    async with upstream(growing(kind, COOKIES)) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind, fields=[("Cookie", "k=v; l=w")])
        assert turn.response.values("set-cookie") == [value for _, value in COOKIES]
        assert up.last.values("cookie") == [b"k=v; l=w"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("status", [200, 204, 304, 404, 503])
async def test_a04_one_server_and_one_date_the_upstreams(kind, method, status):
    """headroomlabs-ai/headroom#1808: Server and Date twice. The parser of the kit refuses any that comes twice."""
    date = "Tue, 15 Nov 1994 08:12:31 GMT"
    reply = Reply(status, [("Server", "up/1.0"), ("Date", date)], b"" if status in (204, 304) or method == "HEAD" else b"x")
    async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, method, "/")
        assert response.status == status
        assert (response.value("server"), response.value("date")) == (b"up/1.0", date.encode())


@pytest.mark.parametrize("kind", KINDS)
async def test_a04_no_server_is_made_up_and_a_date_is(kind):
    async with upstream(Reply(body=b"x")) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/")
        assert response.values("server") == []
        assert len(response.values("date")) == 1  # RFC 9110 6.6.1: a recipient with a clock


async def test_a04_refusals_have_one_of_each_too():
    async with gateway_for("http://127.0.0.1:1", limits={"request": 10}) as gateway:
        for fields, body in (((), b""), ((), b"x" * 100), ([("Packhorse-Session", "a b")], b"")):
            response = await ask(gateway, "POST", "/", fields, body)
            assert response.status in (400, 413, 502)
            assert len(response.values("server")) < 2
            assert b"aiohttp" not in response.raw_head
            assert b"Python" not in response.raw_head


@pytest.mark.parametrize("kind", KINDS)
async def test_a04_twin_a_delta_carries_the_upstreams_server_and_date(kind):
    fields = [("Server", "up/1.0"), ("Date", "Tue, 15 Nov 1994 08:12:31 GMT")]
    async with upstream(growing(kind, fields)) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind)
        assert turn.response.value("server") == b"up/1.0"
        assert turn.response.value("date") == b"Tue, 15 Nov 1994 08:12:31 GMT"


BODILESS = {
    "204 chunked": head_bytes("HTTP/1.1 204 No Content", [("Transfer-Encoding", "chunked"), ("X-First", "1")]),
    "204 with a length": head_bytes("HTTP/1.1 204 No Content", [("Content-Length", "5"), ("X-First", "1")]),
    "304 chunked": head_bytes("HTTP/1.1 304 Not Modified", [("Transfer-Encoding", "chunked"), ("X-First", "1")]),
    "304 with a length": head_bytes("HTTP/1.1 304 Not Modified", [("Content-Length", "2000"), ("X-First", "1")]),
    "204": head_bytes("HTTP/1.1 204 No Content", [("X-First", "1")]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [*BODILESS, "204 chunked and terminated", "304 chunked and terminated"])
async def test_a06_a_bodiless_answer_does_not_poison_the_next(kind, case):
    """aio-libs/aiohttp#5106: 204 with chunked framing, whose five bytes were taken for the next response."""
    case, terminated, _ = case.partition(" and terminated")
    junk = b"0\r\n\r\n" if terminated else b""

    async def answer(peer: Peer, request):
        if request.target == b"/first":
            await peer.send(BODILESS[case] + junk)
        else:
            await peer.respond(body=b"second")

    async with upstream(each(answer)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(request_bytes("OPTIONS", "/first") + request_bytes("GET", "/second"))
        first = await client.response("OPTIONS")
        assert (first.status, first.body, first.value("x-first")) == (int(case[:3]), b"", b"1")
        assert first.values("transfer-encoding") == []
        second = await client.response()
        assert (second.status, second.body) == (200, b"second")
        assert not client.buffer


@pytest.mark.parametrize("kind", KINDS)
async def test_a06_head_has_no_body_and_the_next_answer_parses(kind):
    async def answer(peer: Peer, request):
        if request.method == b"HEAD":
            await peer.send(head_bytes("HTTP/1.1 200 OK", [("Content-Length", "2000"), ("Content-Type", "text/plain")]))
        else:
            await peer.respond(body=b"second")

    async with upstream(each(answer)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(request_bytes("HEAD", "/") + request_bytes("GET", "/"))
        first = await client.response("HEAD")
        assert (first.status, first.value("content-length")) == (200, b"2000")
        assert (await client.response()).body == b"second"


@pytest.mark.parametrize("kind", KINDS)
async def test_a06_twin_pipelined_turns_with_bodies_and_the_delta_is_used(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        body = chat_request(kind)
        await client.send(request_bytes("POST", PATHS[kind], (), body) * 3)
        bodies = [(await client.response()).body for _ in range(3)]
        assert len(bodies[0]) > 5000
        assert bodies[0] == bodies[1] == bodies[2]
        await uses_delta(gateway, kind)


QUERIES = [
    "/echo?b=2&a=1&b=3&uploads&sig=%E9%FF&s=1;2&q=hello%20world&e=",
    "/echo?q=a+b&&=v&%zz&%2f%2F'{}|^`~[]\\",
    "/a?",
    "/a??",
    "/a?b?c=/d",
    "/?%C3%A9",
    "/a?x=%00%0d%0a",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("target", QUERIES)
async def test_a11_the_query_is_byte_identical_upstream(kind, host, method, target):
    """opensandbox-group/OpenSandbox#1901: the query was parsed and written anew, and signatures broke."""
    async with upstream(Reply(body=b"ok"), host=host) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, method, target)
        assert response.status == 200
        assert up.last.target == target.encode()
        assert up.last.method == method.encode()


SEGMENTS = [
    *("/v1/files/a%2Fb/content", "/v1/files/a%2fb/content", "/a%20b", "/a+b", "/%41%7e", "/a;p=1/b,c", "/a%2520b", "/%25"),
    *("/a//b///c", "/caf%C3%A9", "/%E9", "/a:b@c!$&'()*+,=", "/r/%2e%2e%2f", "/trailing/", "/a/./b"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", SEGMENTS)
async def test_a13_a14_the_path_is_byte_identical_upstream(kind, target):
    """jupyterhub/jupyter-server-proxy#510 (%2F became /), dotnet/yarp#1219 (%2520 decoded or encoded once too often)."""
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind) as gateway:
        assert (await ask(gateway, "GET", target)).status == 200
        assert up.last.target == target.encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", SEGMENTS)
@pytest.mark.parametrize(("path", "match"), [("", "/gw"), ("/base%2Fx", "/gw/v"), ("/b/", "/gw/")])
async def test_a14_so_it_is_when_a_prefix_is_taken_off(kind, target, path, match):
    async with upstream(Reply(body=b"ok")) as up:
        route = {"match": match, "strip_prefix": True, "upstream": up.url + path}
        async with gateway_for(up, kind=kind, route=route) as gateway:
            response = await ask(gateway, "GET", match.rstrip("/") + target + "?q=%2520")
            assert response.status == 200
            assert up.last.target == (path.rstrip("/") + target + "?q=%2520").encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("target", ["/%", "/%zz", "/a%2", "/%%20", "/a?%", "/%u0041"])
async def test_a14_a_lone_percent_is_verbatim_or_400_never_500(kind, strip, target):
    """aio-libs/yarl#124."""
    route = {"match": "/gw", "strip_prefix": strip}
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind, route=route) as gateway:
        response = await ask(gateway, "GET", "/gw" + target)
        assert response.status in (200, 400)
        if response.status == 200:
            assert up.last.target == (target if strip else "/gw" + target).encode()
        else:
            assert up.requests == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", ["/v1/a%2Fb/c%2520d?b=2&a=1&sig=%E9%FF&e=", "/plain?q=1"])
async def test_a11_a13_a14_twin_such_targets_have_deltas(kind, method, target):
    async with (
        upstream(growing(kind)) as up,
        gateway_for(up, kind=kind, route={"match": "/gw", "strip_prefix": True}) as gateway,
    ):
        await uses_delta(gateway, kind, method=method, target="/gw" + target)
        assert up.targets() == [target.encode()] * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", HOSTS)
async def test_a32_opaque_header_bytes_pass_both_ways(kind, host):
    """Probe: aiohttp drops a byte that is not UTF-8. RFC 9110 5.5: obs-text is opaque."""
    opaque = [b"caf\xe9", b"\xff\xfe", "café ☁".encode(), b"a\tb", b"\xe9"]
    fields = [(b"X-A", value) for value in opaque]
    async with upstream(Reply(fields=fields, body=b"ok"), host=host) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", "/", [*fields, ("Content-Type", "text/plain")], b"{}")
        assert response.status == 200
        assert response.values("x-a") == opaque
        assert up.last.values("x-a") == opaque


@pytest.mark.parametrize("kind", KINDS)
async def test_a32_twin_a_delta_comes_with_opaque_bytes(kind):
    async with upstream(growing(kind, [(b"X-A", b"caf\xe9")])) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind, fields=[(b"X-A", b"caf\xe9")])
        assert turn.response.value("x-a") == b"caf\xe9"
        assert up.last.value("x-a") == b"caf\xe9"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_byte_faithful_names_order_and_nothing_invented(kind):
    """Issue 2, section 2: order, duplicates and bodies are what the other side sent; only Via and framing are ours."""
    sent = [
        ("X-Zed", "1"),
        ("Authorization", "Bearer k"),
        ("X-Alpha", "  two  words ".strip()),
        ("Content-Type", "application/x-own"),
    ]
    back = [
        ("X-Zed", "1"),
        ("X-Alpha", "2"),
        ("Content-Type", 'application/octet-stream; odd="1"'),
        ("Cache-Control", "no-transform"),
    ]
    body = bytes(range(256)) * 3
    async with upstream(Reply(fields=back, body=body)) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", "/", sent, body)
        assert response.body == up.last.body == body
        expected = ["authorization", "content-length", "content-type", "host", "via", "x-alpha", "x-zed"]
        assert sorted(name for name in up.last.names() if name != "accept-encoding") == expected
        ordered = [name for name in up.last.names() if name in ("x-zed", "authorization", "x-alpha", "content-type")]
        assert ordered == ["x-zed", "authorization", "x-alpha", "content-type"]
        assert (up.last.value("via") or b"").startswith(b"1.1 packhorse-")
        assert [name for name in response.names() if name.startswith("x-")] == ["x-zed", "x-alpha"]
        extra = set(response.names()) - {"x-zed", "x-alpha", "content-type", "cache-control", "content-length", "date"}
        assert extra <= ({"vary"} if kind in UNDERSTOOD else set())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_a_body_without_a_type_gets_none(kind):
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", "/", [], b"x")
        assert response.values("content-type") == []
        for name in ("content-type", "accept", "user-agent"):
            assert up.last.values(name) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_trailers_are_dropped_both_ways(kind):
    """Contract 6: trailers are parsed and dropped."""

    async def answer(peer: Peer, request):
        await peer.begin([("Content-Type", "text/plain"), ("Trailer", "X-T")])
        await peer.chunk(b"body")
        await peer.send(b"0\r\nX-T: 1\r\n\r\n")

    async with upstream(each(answer)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        head = head_bytes("POST / HTTP/1.1", [("Host", "gw"), ("Transfer-Encoding", "chunked"), ("Trailer", "X-U")])
        await client.send(head + b"4\r\nbody\r\n0\r\nX-U: 2\r\n\r\n")
        response = await client.response()
        assert (response.status, response.body, response.trailers) == (200, b"body", [])
        assert (up.last.body, up.last.trailers, up.last.values("x-u")) == (b"body", [], [])
        assert (await client.ask("GET", "/")).status == 200


@pytest.mark.parametrize(("mode", "names"), [("x-forwarded", ["x-forwarded-for"]), ("forwarded", ["forwarded"]), (False, [])])
async def test_a_forwarding_fields_are_ours_or_none(mode, names):
    """Contract 10: a client's own Forwarded and X-Forwarded-* go nowhere unless its address is trusted."""
    claimed = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
        ("X-Forwarded-Host", "evil"),
        ("X-Real-IP", "6.6.6.6"),
    ]
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, forwarded=mode) as gateway:
        assert (await ask(gateway, "GET", "/", claimed, host="gw.local")).status == 200
        assert b"6.6.6.6" not in up.last.raw_head
        assert b"evil" not in up.last.raw_head
        present = [name for name in ("x-forwarded-for", "forwarded") if name in up.last.names()]
        assert present == names
        if names:
            assert b"127.0.0.1" in up.last.raw_head
            assert b"gw.local" in up.last.raw_head
