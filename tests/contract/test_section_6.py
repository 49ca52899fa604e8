"""Contract, section 6: errors."""

import json
import socket
import threading
import time

import pytest
from contract.kit import (
    Client,
    Cut,
    Holder,
    Peer,
    Raw,
    Reply,
    Request,
    ask,
    fresh,
    gateway,
    get,
    name,
    problem,
    raw,
    text_reply,
    until,
)
from support.texts import lines

FIRST = lines(100)


def test_a_problem_is_rfc_9457(up, gw):
    """RFC 9457 problems, `type: "urn:packhorse:<code>"`"""
    response = get(gw, "/dead/x", [("Accept", "text/html"), ("Accept-Encoding", "gzip, ctxpack.delta.v1")])
    said = problem(response, 502, "upstream-unreachable")
    assert isinstance(said["title"], str)
    assert said["status"] == 502
    assert response.values("content-encoding") == []
    assert response.text("content-length") == str(len(response.body))
    assert response.values("date")
    head = ask(gw, "HEAD", "/dead/x")
    assert (head.status, head.body) == (502, b"")


def test_bad_request(up, gw):
    """`bad-request`"""
    problem(get(gw, "/", [("Packhorse-Session", "a b")]), 400, "bad-request")


def test_no_route(up):
    """`no-route` (404)"""
    routes = [{"name": "v", "match": "/v1", "upstream": up.url}]
    with gateway(up, routes=routes) as gw:
        for target in (
            "/",
            "/v2",
            "/v1x",
            "/v",
            "/V1",
            "/%761",
            "/metrics",
            "/livez",
            "/readyz",
            "/healthz",
            "/api/",
            "/console/",
            "/-/reload",
        ):
            problem(get(gw, target), 404, "no-route")
        assert get(gw, up.at("/v1", text_reply("fine"))).body == b"fine"
        assert get(gw, up.at("/v1/", text_reply("fine"))).body == b"fine"
        problem(ask(gw, "POST", "/other", [], b"x"), 404, "no-route")


@pytest.mark.parametrize("total", [33_000, 40_000, 100_000, 400_000])
def test_headers_too_large(up, gw, total):
    """`headers-too-large` (431; limit 32 KiB)"""
    path = up.at(fresh(), text_reply("fine"))
    with Client(gw) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\nX-Long: {'x' * total}\r\n\r\n".encode())
        problem(client.response(), 431, "headers-too-large")
    with Client(gw) as client:
        client.send(f"GET {path}?{'q' * total} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        response = client.response()
        assert response.status in (414, 431)
    with Client(gw) as client:
        many = "".join(f"X-{n}: {'v' * 90}\r\n" for n in range(total // 90))
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n{many}\r\n".encode())
        problem(client.response(), 431, "headers-too-large")
    assert up.seen(path) == []


def test_heads_within_the_limit(up, gw):
    """`headers-too-large` (431; limit 32 KiB): below it, both ways, heads pass (H04)"""
    answer = text_reply("fine", ("X-Back", "y" * 9000), *[(f"Y-{n}", "1") for n in range(130)])
    path = up.at(fresh(), answer)
    fields = [("X-There", "x" * 9000), *[(f"X-{n}", "1") for n in range(130)], ("Cookie", "c" * 9000)]
    response = get(gw, path, fields)
    assert response.status == 200
    assert response.text("x-back") == "y" * 9000
    assert up.last(path).value("x-there") == b"x" * 9000
    assert len([n for n in response.names() if n.startswith("y-")]) == 130
    assert len([n for n in up.last(path).names() if n.startswith("x-")]) == 131
    response = get(gw, path, [("X-There", "x" * 31_000)])
    assert response.status == 200


def test_too_large_a_head_from_upstream(up, gw):
    """a head of the upstream over the limit is an error of the upstream"""
    path = up.at(fresh(), text_reply("fine", ("X-Back", "y" * 60_000)))
    response = get(gw, path)
    assert response.status == 502
    assert json.loads(response.body)["type"].startswith("urn:packhorse:upstream")


def test_upstream_unreachable(up, gw):
    """`upstream-unreachable` (502)"""
    for method in ("GET", "POST", "PUT"):
        problem(ask(gw, method, "/dead/x", [], b"x" if method != "GET" else b""), 502, "upstream-unreachable")
    with gateway("http://name.invalid:80") as other:
        problem(get(other, "/"), 502, "upstream-unreachable")


def test_upstream_timeout(up):
    """`upstream-timeout` (504) | Timeouts: connect, first byte and idle are separate"""
    silent = up.at(fresh(), Raw(lambda peer, _request: peer.gone(5)))

    def idle(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.chunk(b"data: 1\n\n")
        peer.gone(8)

    def healthy(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        for _ in range(12):
            peer.chunk(b"data: 1\n\n")
            time.sleep(0.25)
        peer.finish()

    stalls, streams = up.at(fresh(), Raw(idle)), up.at(fresh(), Raw(healthy))
    with gateway(up, timeouts={"connect": "1s", "first_byte": "700ms", "idle": "1s"}) as gw:
        for method in ("GET", "POST"):
            began = time.monotonic()
            problem(ask(gw, method, silent, [], b"x" if method == "POST" else b""), 504, "upstream-timeout")
            assert 0.5 < time.monotonic() - began < 3
        assert len(up.seen(silent)) == 2, "a request that had been sent was sent again"
        with Client(gw) as client:
            began = time.monotonic()
            client.send(f"GET {stalls} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
            response = client.response()
            assert response.status == 200
            assert not response.complete, "Once the head is out: cut the connection."
            assert 0.8 < time.monotonic() - began < 4
        assert get(gw, streams).complete, "a healthy stream has no total limit"
        until(lambda: gw.metrics().total("packhorse_upstream_errors_total") >= 3)


def test_a_connection_that_is_never_accepted(up):
    """Timeouts: connect ... (`upstream-timeout` or `upstream-unreachable`: nothing was sent)"""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    try:
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        with gateway(f"http://127.0.0.1:{listener.getsockname()[1]}", timeouts={"connect": "500ms"}) as gw:
            began = time.monotonic()
            response = get(gw, "/")
            assert response.status in (502, 504)
            assert time.monotonic() - began < 4
            assert json.loads(response.body)["type"] in ("urn:packhorse:upstream-timeout", "urn:packhorse:upstream-unreachable")
    finally:
        for filler in [*fillers, listener]:
            filler.close()


CUTS = {
    "nothing": b"",
    "half a status line": b"HTTP/1.1 20",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Type: text/pl",
    "not HTTP": b"SSH-2.0-OpenSSH_9\r\n",
    "a bad length": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "split field": b"HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 0\r\n\r\n",
    "status": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("sent", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("reset", [False, True])
def test_upstream_cut(up, gw, sent, reset):
    """`upstream-cut` (502)"""

    def script(peer: Peer, _request: Request) -> None:
        peer.send(sent)
        time.sleep(0.05)
        (peer.reset if reset else peer.close)()

    path = up.at(fresh(), Raw(script))
    response = ask(gw, "POST", path, [], b"x")
    assert response.status == 502
    assert json.loads(response.body)["type"] in ("urn:packhorse:upstream-cut", "urn:packhorse:upstream-unreachable"), (
        response.body
    )
    assert len(up.seen(path)) == 1, "a POST was sent again"
    if sent in (b"", CUTS["half a head"]):
        problem(response, 502, "upstream-cut")


def test_once_the_head_is_out_the_connection_is_cut(up, gw):
    """Once the head is out: cut the connection."""

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        for number in range(3):
            peer.chunk(b"data: %d\n\n" % number)
        time.sleep(0.1)
        peer.reset()

    path = up.at(fresh(), Raw(script))
    with Client(gw) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        response = client.response()
        assert (response.status, response.complete) == (200, False)
        assert b"0\r\n\r\n" not in client.transcript
        assert b"DONE" not in client.transcript


# ---------------------------------------------------------------- retries


def stale(kept: list[Peer]):
    """The first request is answered; the connection is closed when the second comes, before any byte of an answer."""

    def script(peer: Peer, request: Request) -> None:
        if kept and kept[0] is peer:
            peer.reset() if request.target.endswith(b"rst") else peer.close()
            return
        kept[:] = [peer]
        answer = text_reply("fine").to_bytes()
        peer.send(answer[:-4] if request.method == b"HEAD" else answer)

    return Raw(script)


@pytest.mark.parametrize(
    ("method", "again"),
    [("GET", True), ("HEAD", True), ("OPTIONS", True), ("POST", False), ("PUT", False), ("DELETE", False), ("PATCH", False)],
)
def test_retried_once_for_a_safe_method_on_a_reused_connection(up, method, again):
    """A request is retried only if no byte of it was sent, or, for a safe method, once, on a reused connection that closed before any
    byte of the response."""
    from contract.kit import Upstream

    mine = Upstream()
    kept: list[Peer] = []
    path = mine.at("/x", stale(kept))
    with gateway(mine) as gw:
        assert get(gw, path).status == 200
        response = ask(gw, method, path, [], b"x" if method in ("POST", "PUT", "PATCH") else b"")
        assert response.status == (200 if again else 502)
        assert len(mine.seen(path)) == (3 if again else 2)
    mine.close()


def test_retried_once_only(up):
    """once, on a reused connection"""
    from contract.kit import Upstream

    mine = Upstream()
    served: set[int] = set()

    def script(peer: Peer, _request: Request) -> None:
        if served:
            peer.close()
            return
        served.add(peer.index)
        peer.send(text_reply("fine").to_bytes())

    path = mine.at("/x", Raw(script))
    with gateway(mine) as gw:
        assert get(gw, path).status == 200
        problem(get(gw, path), 502, "upstream-cut")
        assert len(mine.seen(path)) <= 3
        before = len(mine.seen(path))
        problem(get(gw, path), 502, "upstream-cut")
        assert len(mine.seen(path)) == before + 1, "a fresh connection is not retried"
    mine.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_no_hidden_retries(up, gw, status):
    """no hidden retries of 429 or 5xx"""
    path = up.at(fresh(), Reply(status, [("Retry-After", "1")], b"busy"))
    response = get(gw, path)
    assert (response.status, response.body, response.text("retry-after")) == (status, b"busy", "1")
    assert len(up.seen(path)) == 1


def test_redirects_are_relayed(up, second, gw):
    """D17: it never answers for the upstream, nor follows it"""
    path = up.at(fresh(), Reply(302, [("Location", f"{second.url}/x?a=b")]))
    response = get(gw, path, [("Authorization", "Bearer x")])
    assert response.status == 302
    assert response.text("location") == f"{second.url}/x?a=b"
    assert second.seen("/x") == []


# ---------------------------------------------------------------- what the parser refuses

SECRET = "s3cr3t-mark"
MALFORMED = {
    "no host": f"GET /{SECRET} HTTP/1.1\r\n\r\n",
    "two hosts": f"GET /{SECRET} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "length and chunks": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "the same length twice": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "space before colon": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "plus": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nContent-Length: +2\r\n\r\nab",
    "negative": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nContent-Length: -2\r\n\r\nab",
    "hexadecimal": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nContent-Length: 0x2\r\n\r\nab",
    "fold": f"GET / HTTP/1.1\r\nHost: g\r\nX-A: b\r\n {SECRET}\r\n\r\n",
    "bare LF": f"GET /{SECRET} HTTP/1.1\nHost: g\n\n",
    "NUL": f"GET / HTTP/1.1\r\nHost: g\r\nX-A: {SECRET}\0\r\n\r\n",
    "bare CR": f"GET / HTTP/1.1\r\nHost: g\r\nX-A: {SECRET}\rb\r\n\r\n",
    "no version": f"GET /{SECRET}\r\n\r\n",
    "version 9": f"GET / HTTP/9.9\r\nHost: g\r\nX-A: {SECRET}\r\n\r\n",
    "version 2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "target with a space": f"GET /a {SECRET} HTTP/1.1\r\nHost: g\r\n\r\n",
    "no target": "GET HTTP/1.1\r\nHost: g\r\n\r\n",
    "method": f"G@T{{{SECRET} / HTTP/1.1\r\nHost: g\r\n\r\n",
    "field without colon": f"GET / HTTP/1.1\r\nHost: g\r\n{SECRET}\r\n\r\n",
    "empty name": f"GET / HTTP/1.1\r\nHost: g\r\n: {SECRET}\r\n\r\n",
    "space in a name": f"GET / HTTP/1.1\r\nHost: g\r\nX A: {SECRET}\r\n\r\n",
    "unknown transfer coding": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip\r\n\r\n",
    "chunked twice": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": f"POST /{SECRET} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SECRET + "\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests(up, gw, data):
    """Malformed requests that the HTTP parser refuses get the same problem format, with none of the offending bytes in answer or log."""
    mark = name("mark")
    data = data.replace(SECRET, mark)
    up.at(f"/{mark}", text_reply("it went through"))
    with Client(gw) as client:
        client.send(data.encode("latin-1"))
        response = client.response("GET")
        assert response.status in (400, 405, 413, 431, 501, 505), response.status
        assert response.text("content-type").split(";")[0] == "application/problem+json"
        assert json.loads(response.body)["type"].startswith("urn:packhorse:")
        assert mark.encode() not in client.transcript
        assert client.ends(3), "the connection goes on after a request that was not understood"
    assert up.seen(f"/{mark}") == []
    assert mark not in gw.log or data.startswith("GET /mark")  # HTTP/0.9: the target itself is in order


@pytest.mark.parametrize(
    "chunks",
    [
        "zz\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffff1\r\na",
        "3\nabc\n0\n\n",
    ],
)
def test_malformed_chunks(up, gw, chunks):
    """Malformed requests ... get the same problem format (and are never taken as whole by the upstream)"""
    got: list[bool] = []

    def script(peer: Peer, request: Request) -> None:
        try:
            peer.request_body(request)
            got.append(True)
            peer.send(text_reply("whole").to_bytes())
        except Exception:
            got.append(False)
            peer.close()

    path = up.at(fresh(), Raw(script, head_only=True))
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}".encode())
        response = client.response("POST")
        assert response.status == 400
        assert json.loads(response.body)["type"] == "urn:packhorse:bad-request"
    assert True not in got


def test_transfer_encoding_in_any_case(up, gw):
    """D01: `tRANSFER-ENCODING: chunked` is what it is"""
    path = up.at(fresh(), text_reply("fine"))
    response = raw(gw, f"POST {path} HTTP/1.1\r\nHost: g\r\ntRANSFER-ENCODING: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode())
    assert response.status == 200
    assert up.last(path).body == b"abc"


def test_options_star(up, gw):
    """`OPTIONS *`: 204 with `Allow`."""
    response = raw(gw, b"OPTIONS * HTTP/1.1\r\nHost: g\r\n\r\n")
    assert response.status == 204
    assert {"get", "post", "options"} <= set(response.members("allow"))
    assert up.seen("*") == []


@pytest.mark.parametrize("target", ["example.org:443", "127.0.0.1:80", "/x", "*"])
def test_connect(up, gw, target):
    """`CONNECT`: 405."""
    response = raw(gw, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert response.status == 405
    assert response.values("allow")
    assert up.seen(target) == []


def test_trailers_are_dropped_and_te_is_not_forwarded(up, gw):
    """Trailers are parsed and dropped, `TE` is not forwarded."""
    path = up.at(
        fresh(),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n",
    )
    with Client(gw) as client:
        client.send(
            f"POST {path} HTTP/1.1\r\nHost: g\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-U\r\nTransfer-Encoding: chunked\r\n\r\n"
            "3\r\nabc\r\n0\r\nX-U: 1\r\nX-V: 5\r\n\r\n".encode()
        )
        response = client.response("POST")
        assert (response.status, response.body, response.trailers) == (200, b"ok", [])
        assert response.values("trailer") == []
        got = up.last(path)
        assert (got.body, got.trailers) == (b"abc", [])
        assert got.values("te") == got.values("x-u") == got.values("trailer") == []
        assert client.ask("GET", up.at(fresh(), text_reply("next"))).body == b"next"


def test_rate_limited(up):
    """`rate-limited`"""
    gate = threading.Event()

    def script(peer: Peer, _request: Request) -> None:
        gate.wait(10)
        peer.send(text_reply("late").to_bytes())

    path = up.at(fresh(), Raw(script))
    with gateway(up, limits={"in_flight": 2}) as gw:
        waiting = [Client(gw) for _ in range(2)]
        for client in waiting:
            client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        until(lambda: len(up.seen(path)) == 2)
        problem(get(gw, path), 429, "rate-limited")
        gate.set()
        for client in waiting:
            assert client.response().status == 200
            client.close()
        until(lambda: get(gw, path).status == 200)


def test_shutting_down(up):
    """`shutting-down` (503) | SIGTERM drains: no new connections, streams finish within the grace period, `/readyz` 503"""
    gate = threading.Event()

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.chunk(b"data: 1\n\n")
        gate.wait(10)
        peer.chunk(b"data: 2\n\n")
        peer.finish()

    path, other = up.at(fresh(), Raw(script)), up.at(fresh(), text_reply("fine"))
    with gateway(up, drain="10s") as gw, Client(gw) as streaming, Client(gw) as idle, Client(gw) as admin_idle:
        assert idle.ask("GET", other).status == 200
        streaming.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        streaming.head()
        streaming.until(b"data: 1\n\n")
        gw.signal(15)
        until(lambda: gw.status("/readyz") == 503)
        assert gw.status("/livez") == 200
        try:
            idle.send(f"GET {other} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
            problem(idle.response(), 503, "shutting-down")
        except (Cut, OSError):
            pass  # closed before it could ask
        with pytest.raises((OSError, Cut)):  # no new connections
            get(gw, other)
        gate.set()
        assert streaming.until(b"0\r\n\r\n")
        assert gw.wait() == 0
        assert admin_idle


def test_streams_that_outlast_the_grace_are_cut(up):
    """`drain`: grace after SIGTERM"""

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        for _ in range(100):
            peer.chunk(b"data: 1\n\n")
            time.sleep(0.1)

    path = up.at(fresh(), Raw(script))
    with gateway(up, drain="700ms") as gw, Client(gw) as streaming:
        streaming.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        streaming.head()
        began = time.monotonic()
        gw.signal(15)
        assert gw.wait() == 0
        assert 0.5 < time.monotonic() - began < 5


@pytest.mark.parametrize("stage", ["before the first byte", "mid-stream", "plain"])
def test_a_client_that_leaves_stops_the_upstream(up, gw, stage):
    """`client_gone`: a client that leaves, before the first byte, mid-stream or in a plain exchange, stops the upstream within a second"""
    stopped: list[float] = []

    def script(peer: Peer, _request: Request) -> None:
        if stage == "mid-stream":
            peer.begin([("Content-Type", "text/event-stream")])
            peer.chunk(b"data: 1\n\n")
        elif stage == "plain":
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\n" + b"x" * 500)
        if peer.gone(6):
            stopped.append(time.monotonic())

    path = up.at(fresh(), Raw(script))
    client = Client(gw)
    client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
    until(lambda: up.seen(path))
    if stage == "mid-stream":
        client.until(b"data: 1\n\n")
    time.sleep(0.1)
    left = time.monotonic()
    client.close()
    until(lambda: stopped)
    assert stopped[0] - left < 1.0


def test_expect_100(up, gw):
    """`Expect: 100-continue` (a refusal that headers decide comes without `100`)"""
    path = up.at(fresh(), text_reply("fine"))
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n".encode())
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        client.send(b"abc")
        response = client.response("POST")
        assert (response.status, response.interim) == (200, [])
    assert up.last(path).body == b"abc"
    for fields in ("Packhorse-Session: a b\r\n", "Content-Encoding: x-no\r\n"):
        with Client(gw) as client:
            client.send(
                f"POST {path} HTTP/1.1\r\nHost: g\r\n{fields}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n".encode()
            )
            response = client.response("POST")
            assert response.status in (400, 415)
            assert response.interim == []
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nExpect: something-else\r\nContent-Length: 3\r\n\r\nabc".encode())
        assert client.response("POST").status in (200, 417)


def test_no_secrets_in_problems_or_logs(up, gw):
    """D14: SECRET nowhere in logs, error bodies, metrics"""
    secret = "TOPSECRET" + name("x")
    fields = [("Authorization", f"Bearer {secret}"), ("x-api-key", secret), ("Cookie", f"a={secret}"), ("x-session-id", secret)]
    for target in (f"/dead/x?key={secret}", f"/nothing?key={secret}", f"/v1/nothing?{secret}"):
        for body in (b"", secret.encode(), f'{{"prompt_cache_key": "{secret}"'.encode()):
            response = ask(gw, "POST", target, [*fields, ("Accept-Encoding", "ctxpack.delta.v1")], body)
            assert secret.encode() not in response.raw_head + response.body
    ask(gw, "POST", "/x", [*fields, ("Content-Encoding", secret)], b"x")
    get(gw, "/x", [("Packhorse-Session", f"{secret}/x")])
    client = Holder(gw, secret)
    client.get("/y")
    time.sleep(0.2)
    assert secret not in gw.log
    assert secret.encode() not in get(gw.admin, "/metrics").body
