"""Attacks: hostile peers on both sides, many of them, and a machine that fails. What holds for one request holds under all of it."""

import contextlib
import gzip
import json
import random
import resource
import socket
import sqlite3
import statistics
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import brotli
import pytest
from backports import zstd
from contract.kit import (
    Client,
    Cut,
    Holder,
    Peer,
    Raw,
    Request,
    Upstream,
    ask,
    digest,
    fresh,
    gateway,
    get,
    is_delta,
    name,
    text_reply,
    until,
)
from support.messages import Malformed
from support.texts import lines

FIRST, SECOND = lines(100), lines(104)
MIB = 2**20


def well(gw, up) -> None:
    """It lives, holds nothing open, and serves."""
    assert gw.alive()
    assert get(gw, up.at(fresh(), text_reply("fine"))).body == b"fine"
    until(lambda: gw.metrics().total("packhorse_in_flight") == 0)


# ---------------------------------------------------------------- hostile clients


def mutated(chance: random.Random, path: str) -> bytes:
    """A request with a few things wrong, or right."""
    lines_ = [
        chance.choice(["GET", "POST", "PUT", "get", "G\x00T", "OPTIONS", "HEAD", "DELETE"])
        + f" {path} HTTP/1.{chance.choice('0111')}",
        "Host: g",
    ]
    fields = [
        "Content-Length: 5", "Content-Length: 5, 5", "Content-Length: 05", "Content-Length: 5 ", "Content-Length: ５", "Transfer-Encoding: chunked",
        "Transfer-Encoding: identity", "Transfer-Encoding: chunked, identity", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: \tchunked", "TE: chunked",
        "Connection: keep-alive", "Connection: close", "Connection: transfer-encoding", "Expect: 100-continue", "Upgrade: websocket", "Connection: upgrade",
        "Accept-Encoding: gzip", "Accept-Encoding: ctxpack.delta.v1", "Content-Encoding: gzip", "Packhorse-Session: x", "Ctxpack-Base: none",
        "Range: bytes=0-1", "If-None-Match: *", "Max-Forwards: 0", "X: \x7f", "X: \xff", "Content-Length: 5\r\nX: y", "X:\r\n folded", "Cookie: packhorse_session=x",
        "Trailer: X", "Via: 1.1 a, 1.1 b", "Packhorse-Debug: 1", "Origin: x\ty", "Sec-Fetch-Site: cross-site",
    ]  # fmt: skip
    lines_ += chance.sample(fields, chance.randrange(5))
    data = "\r\n".join(lines_).encode("latin-1", "replace") + b"\r\n\r\n"
    data += chance.choice(
        [b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"GET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n"]
    )
    if chance.random() < 0.4:
        at = chance.randrange(len(data))
        data = data[:at] + bytes([chance.randrange(256)]) * chance.randrange(3) + data[at + chance.randrange(3) :]
    return data


def test_mutated_requests(up, gw):
    """D01: whatever comes, the answer is HTTP or an end, the upstream sees only whole requests, and nobody else is disturbed."""
    chance = random.Random(20)
    path = up.at(fresh(), text_reply("fine"))
    seen: list[int] = []
    before = gw.metrics().total("packhorse_requests_total", status="5xx")
    for number in range(700):
        data = mutated(chance, path)
        with Client(gw) as client:
            client.socket.settimeout(1.0)
            client.send(data)
            with contextlib.suppress(OSError):
                client.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(Cut, TimeoutError, ConnectionResetError):
                response = client.response(data[:4].decode("latin-1").strip())
                seen.append(response.status)
                assert response.status not in (500, 502, 504), (number, data)
    assert set(seen) <= {101, 200, 204, 206, 304, 400, 404, 405, 408, 413, 415, 417, 426, 431, 501, 505}, set(seen)
    for request in up.seen(path):
        assert request.target == path.encode()
    assert gw.metrics().total("packhorse_requests_total", status="5xx") <= before + seen.count(501) + seen.count(505)
    well(gw, up)


def test_mutated_bodies(up, gw):
    """Bodies that are not what Content-Encoding says: 400, 413 or 415, never a fault of the gateway's own."""
    chance = random.Random(21)
    encoders = {"gzip": gzip.compress, "zstd": zstd.compress, "br": brotli.compress, "deflate": zlib.compress}
    path = up.at(fresh("/v1"), text_reply("fine"))
    with Client(gw) as client:
        for number in range(400):
            codings = chance.choices(list(encoders), k=chance.randint(1, 3))
            data = json.dumps({"model": "m", "messages": [lines(chance.randint(1, 9), number)]}).encode()
            for coding in codings:
                data = encoders[coding](data)
            for _ in range(chance.randrange(3)):
                at = chance.randrange(len(data))
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + chance.randrange(2) :]
            if chance.random() < 0.2:
                data = data[: chance.randrange(1, len(data))]
            fields = [("Content-Encoding", ", ".join(codings)), ("x-api-key", "k"), ("Accept-Encoding", "ctxpack.delta.v1")]
            response = client.ask("POST", path, fields, data)
            assert response.status in (200, 400, 413), (number, response.body)
            if "close" in response.members("connection"):
                client.close()
                client.__init__(gw)
    well(gw, up)


def test_slowloris(up):
    """Heads that never end are closed, and others are served meanwhile."""
    with gateway(up, limits={"keep_alive": "1500ms"}) as gw:
        slow = [Client(gw) for _ in range(200)]
        for client in slow:
            client.send(b"GET / HTTP/1.1\r\nHost: g\r\nX-")
        path = up.at(fresh(), text_reply("fine"))
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            assert get(gw, path).body == b"fine"
            for client in slow:
                with contextlib.suppress(OSError):
                    client.send(b"a")
            time.sleep(0.3)
        ended = 0
        for client in slow:
            client.socket.settimeout(2)
            with contextlib.suppress(TimeoutError):
                try:
                    data = client.to_end()
                    assert data == b"" or b"408" in data or b"400" in data
                    ended += 1
                except ConnectionResetError:
                    ended += 1
            client.close()
        assert ended == 200
        well(gw, up)


def test_slow_bodies(up):
    """A body that stops arriving is not waited for for ever, and holds up nobody."""
    with gateway(up, timeouts={"idle": "1s"}) as gw:
        path = up.at(fresh(), text_reply("fine"))
        slow = [Client(gw) for _ in range(50)]
        for number, client in enumerate(slow):
            coded = "Content-Encoding: gzip\r\n" if number % 2 else ""
            client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\n{coded}Content-Length: 100\r\n\r\nabc".encode())
        assert get(gw, path).body == b"fine"
        for client in slow:
            response = client.response("POST")
            assert response.status in (408, 504)
            client.close()
        until(lambda: gw.metrics().total("packhorse_in_flight") == 0)


def test_thousands_of_cancelled_requests(up, gw):
    """A client that leaves frees everything: descriptors, exchanges, memory."""

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.chunk(b"data: 1\n\n")
        peer.gone(20)

    streams, silent = up.at(fresh(), Raw(script)), up.at(fresh(), Raw(lambda peer, _request: peer.gone(20)))
    chance = random.Random(3)

    def rush(count: int) -> None:
        for _ in range(count):
            client = Client(gw)
            with contextlib.suppress(OSError):
                kind = chance.randrange(4)
                if kind == 0:
                    client.send(f"POST {silent} HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\nabc".encode())
                else:
                    client.send(
                        f"GET {streams if kind == 1 else silent} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: ctxpack.delta.v1\r\n\r\n".encode()
                    )
                if kind == 1:
                    client.until(b"data: 1")
                (client.reset if chance.random() < 0.5 else client.close)()

    def calm() -> bool:
        return gw.metrics().total("packhorse_in_flight") == 0

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(rush, [40] * 8))
    until(calm, 15)
    time.sleep(0.5)
    descriptors, memory = gw.descriptors(), gw.memory()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(rush, [250] * 8))
    until(calm, 15)
    until(lambda: gw.descriptors() <= descriptors + 8, 10)
    assert gw.memory() - memory < 30 * MIB
    well(gw, up)


def test_500_connections(up, gw):
    """500 connections at one time, each with a session of its own, every answer exact."""
    paths = [up.at(fresh(), text_reply(lines(40, number))) for number in range(20)]
    clients = []
    try:
        for number in range(500):
            client = Client(gw)
            clients.append(client)
            fields = f"Packhorse-Session: c{number}\r\nAccept-Encoding: ctxpack.delta.v1, gzip\r\n"
            client.send(f"GET {paths[number % 20]} HTTP/1.1\r\nHost: g\r\n{fields}\r\n".encode())
        for number, client in enumerate(clients):
            client.socket.settimeout(30)
            response = client.response()
            body = gzip.decompress(response.body) if response.members("content-encoding") else response.body
            assert body == lines(40, number % 20).encode()
    finally:
        for client in clients:
            client.close()
    well(gw, up)


def test_a_thousand_pipelined_requests(up, gw):
    """Pipelining: answers come in order, and none is lost."""
    paths = [up.at(fresh(), text_reply(f"answer {number}")) for number in range(50)]
    with Client(gw) as client:
        sender = threading.Thread(
            target=lambda: client.send(
                b"".join(f"GET {paths[n % 50]} HTTP/1.1\r\nHost: g\r\n\r\n".encode() for n in range(1000))
            )
        )
        sender.start()
        for number in range(1000):
            assert client.response().body == f"answer {number % 50}".encode()
        sender.join(10)


HEAVY = {
    "accept-encoding": ",".join(f"x{n};q=0.{n % 10}" for n in range(2500))[:30000],
    "ctxpack-base": ",".join("sha256:" + f"{n:064x}" for n in range(420))[:30000],
    "if-none-match": ",".join(f'"{n}"' for n in range(4000))[:30000],
    "cache-control": 'x="' + '\\"' * 14000,
    "cookie": "packhorse_session=" + ";" * 29000,
    "x-forwarded-for": ",".join(["1.2.3.4"] * 3500)[:30000],
    "forwarded": "for=" + '"' + "\\" * 29000,
    "available-dictionary": ":" + "A" * 29000 + ":",
    "downlink": "9" * 29000,
    "save-data": "((" * 14000,
    "if-range": '"' * 29000,
    "range": "bytes=" + ",".join(f"{n}-" for n in range(5000))[:29000],
    "connection": ",".join(f"x{n}" for n in range(5000))[:29000],
    "via": ",".join(["1.1 a"] * 4000)[:29000],
    "origin": "https://" + "a." * 14000,
    "content-encoding": "," * 29000,
}


@pytest.mark.parametrize("field", HEAVY)
def test_long_fields_take_no_time(up, gw, field):
    """Every field is read in linear time."""
    path = up.at(fresh(), text_reply(FIRST))
    fields = [
        (key, value)
        for key, value in [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", "h")]
        if key.lower() != field
    ]
    began = time.monotonic()
    response = ask(gw, "POST", path, [*fields, (field, HEAVY[field])], b"x")
    assert response.status in (200, 400, 413, 415)
    assert time.monotonic() - began < 1.0


def test_long_chunk_extensions_and_trailers(up, gw):
    """What HTTP lets a client send beside the body is bounded, too."""
    path = up.at(fresh(), text_reply("fine"))
    before = gw.memory()
    for data in (
        b"5;" + b"x" * (4 * MIB) + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(300_000)) + b"\r\n",
    ):
        with Client(gw) as client, contextlib.suppress(OSError, Cut):
            client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + data)
            assert client.response("POST").status in (200, 400, 413, 431)
    assert gw.memory() - before < 40 * MIB
    well(gw, up)


def test_tiny_chunks(up, gw):
    """A body in one-byte chunks is whole, and takes no time to speak of."""
    path = up.at(fresh(), text_reply("fine"))
    body = random.Random(1).randbytes(40_000)
    began = time.monotonic()
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.send(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert client.response("POST").status == 200
    assert up.last(path).body == body
    assert time.monotonic() - began < 5


# ---------------------------------------------------------------- hostile upstreams


def test_mutated_answers(up, gw):
    """Whatever the upstream says: a valid answer, a 502, or a cut; never the bytes of one answer in another's place."""
    chance = random.Random(22)
    heads = [
        "Content-Length: 5", "Content-Length: 7", "Content-Length: -1", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Content-Encoding: gzip",
        "Content-Encoding: gzip, gzip", "Content-Type: text/event-stream", "Content-Type: \xff", "Set-Cookie: a=b", "Set-Cookie: a\rb", "X: \x00", "Connection: close",
        "Connection: upgrade", "Upgrade: x", "ETag: x", "Vary: *", "Vary:", "Cache-Control: no-store=\"", "Packhorse-Session: evil", "Ctxpack-Digest: x",
        "Content-Range: bytes 0-4/5", "Retry-After: x", "Location: /\x7f", "X-Accel-Buffering: yes", "Server-Timing: x;dur=1", "Access-Control-Allow-Origin: *",
    ]  # fmt: skip
    current = [b""]

    def script(peer: Peer, _request: Request) -> None:
        peer.send(current[0])
        time.sleep(0.003)
        peer.close()

    path = up.at(fresh(), Raw(script))
    for number in range(400):
        status = chance.choice(
            [
                "200 OK",
                "200 OK",
                "204 No",
                "304 Not",
                "206 Part",
                "404 No",
                "100 C",
                "101 S",
                "103 E",
                "999 X",
                "20 OK",
                "600",
                "200",
            ]
        )
        data = (
            "\r\n".join([f"HTTP/1.{chance.choice('0112')} {status}", *chance.sample(heads, chance.randrange(5))]).encode(
                "latin-1"
            )
            + b"\r\n\r\n"
        )
        data += chance.choice(
            [
                b"",
                b"hello",
                b"5\r\nhello\r\n0\r\n\r\n",
                gzip.compress(b"hello" * 200),
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
            ]
        )
        if chance.random() < 0.2:
            at = chance.randrange(len(data))
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + chance.randrange(2) :]
        current[0] = data
        with Client(gw) as client:
            client.send(
                f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: ctxpack.delta.v1, gzip\r\nPackhorse-Session: m\r\n\r\n".encode()
            )
            try:
                response = client.response()
            except Malformed as error:
                raise AssertionError(f"{number}: {data!r} was answered by {bytes(client.transcript)!r}") from error
            assert response.status != 500, (number, data)
    well(gw, up)


def test_an_answer_nobody_asked_for(up):
    """Bytes behind an answer, or between two, are never the answer to the next client (response queue poisoning)."""
    mine = Upstream()
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

    def script(peer: Peer, _request: Request) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + evil)

    def late(peer: Peer, _request: Request) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            peer.send(evil)

    for made in (script, late):
        path = mine.at(fresh(), Raw(made))
        other = mine.at(fresh(), text_reply("mine"))
        with gateway(mine) as gw:
            for _ in range(5):
                get(gw, path)
                time.sleep(0.1 if made is late else 0)
                assert get(gw, other).body == b"mine"
    mine.close()


def test_an_answer_before_the_request_is_read(up, gw):
    """An upstream that answers early: what it did not read is never the next request on that connection."""

    def early(peer: Peer, request: Request) -> None:
        peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
        time.sleep(0.2)

    path = up.at(fresh(), Raw(early, head_only=True))
    other = up.at(fresh(), text_reply("mine"))
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n"
    for _ in range(5):
        with Client(gw) as client:
            client.send(
                f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {len(smuggled) + 2_000_000}\r\n\r\n".encode() + smuggled
            )
            assert client.response("POST").status == 403
        assert get(gw, other).body == b"mine"
    assert up.seen("/smuggled") == []


def test_101_unasked(up, gw):
    """A 101 nobody asked for is no answer."""
    path = up.at(
        fresh(),
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    )
    response = get(gw, path)
    assert response.status == 502
    well(gw, up)


def test_a_flood_of_1xx(up, gw):
    """Interim answers without end are not waited for without end, nor held in memory."""

    def script(peer: Peer, _request: Request) -> None:
        for _ in range(3000):
            peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: <" + b"x" * 500 + b">\r\n\r\n")
        peer.send(text_reply("fine").to_bytes())

    path = up.at(fresh(), Raw(script))
    before = gw.memory()
    response = get(gw, path)
    assert response.status in (200, 502)
    assert gw.memory() - before < 30 * MIB
    well(gw, up)


def test_fields_of_the_upstream_that_are_ours(up, gw):
    """An upstream cannot speak in the gateway's name: the session or digest it claims is not taken for ours."""
    path = up.at(
        fresh(),
        text_reply(
            FIRST, ("Packhorse-Session", "theirs"), ("Ctxpack-Digest", "sha256:" + "0" * 64), ("Packhorse-Why", "delta")
        ),
    )
    client = Holder(gw, accept="ctxpack.delta.v1")
    response = client.get(path)
    assert response.values("ctxpack-digest") == [digest(FIRST).encode()]
    assert response.values("packhorse-why") == [b"no-base"]


@pytest.mark.parametrize(
    "value", ["a\r\nSet-Cookie: x=1", "a%0d%0aSet-Cookie: x=1", "a\nSet-Cookie: x=1", "a\rSet-Cookie: x=1"]
)
def test_header_injection(up, gw, value):
    """D06: never a split, through ids of the client or fields of the upstream"""
    path = up.at(fresh(), text_reply("fine"))
    for field in ("Packhorse-Session", "Origin", "If-None-Match", "x-session-id", "Host"):
        with Client(gw) as client:
            client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n{field}: {value}\r\n\r\n".encode())
            response = client.response()
            assert response.values("set-cookie") == []
            if "\r\nSet" not in value:
                assert b"set-cookie" not in {key.lower() for key, _ in (up.seen(path)[-1].fields if up.seen(path) else [])}
    if "\r\n" not in value:
        path = up.at(fresh(), f"HTTP/1.1 200 OK\r\nX-A: {value}\r\nContent-Length: 2\r\n\r\nok".encode())
        response = get(gw, path)
        assert response.status == 502 or response.values("set-cookie") == [] or value.startswith("a\n")


# ---------------------------------------------------------------- bombs


def bomb(coding: str, mib: int) -> bytes:
    """So many MiB of zeros."""
    match coding:
        case "gzip":
            return gzip.compress(bytes(64 * MIB), 9) * (mib // 64)
        case "zstd":
            return zstd.compress(bytes(64 * MIB), 3) * (mib // 64)
        case "br":
            return brotli.compress(bytes(mib * MIB), quality=1)
        case _:
            return zlib.compress(bytes(mib * MIB), 1)


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "deflate"])
def test_bombs(up, gw, coding):
    """C03, C21: 413 or 502, bounded memory; both directions"""
    data = bomb(coding, 128)
    path = up.at(fresh(), text_reply("fine"))
    get(gw, path)
    before = gw.memory("VmHWM")
    for encoded, codings in ((data, coding), (gzip.compress(data), f"{coding}, gzip")):
        began = time.monotonic()
        response = ask(gw, "POST", path, [("Content-Encoding", codings)], encoded)
        assert response.status == 413
        assert time.monotonic() - began < 4
    assert up.seen(path)[1:] == []
    grown = gw.memory("VmHWM") - before
    assert grown < 100 * MIB, grown
    path = up.at(fresh(), text_reply(data, ("Content-Encoding", coding)))
    for accept in ("identity", "ctxpack.delta.v1", f"{coding}, ctxpack.delta.v1"):
        with Client(gw) as client:
            client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: {accept}\r\nPackhorse-Session: b\r\n\r\n".encode())
            response = client.response()
            if coding in accept:
                assert (response.status, response.body) == (200, data)
            else:
                assert response.status == 502 or not response.complete or len(response.body) == 128 * MIB
    grown = gw.memory("VmHWM") - before
    assert grown < 120 * MIB, grown
    well(gw, up)


def test_a_large_honest_body_is_no_bomb(up, gw):
    """Bodies ... over `deltas.max_bytes` pass as they are: one the client cannot undo is undone on its way, whole, however long."""
    piece = random.Random(1).randbytes(40_000).hex().encode() + b"\n"
    body = piece * 1000
    path = up.at(fresh(), text_reply(gzip.compress(body, 1), ("Content-Encoding", "gzip")))
    before = gw.memory("VmHWM")
    response = get(gw, path, [("Accept-Encoding", "identity")])
    assert response.complete, f"cut after {len(response.body)} of {len(body)} bytes"
    assert response.body == body
    assert gw.memory("VmHWM") - before < 60 * MIB


def texts(chance: random.Random) -> tuple[str, str]:
    """A text and one made from it; of all the characters that other programs take for line ends, and others."""
    pool = [
        "\n",
        "\r\n",
        "\r",
        "\u2028",
        "\x0c",
        "\x00",
        "\ufeff",
        "é",
        "始",
        "😀",
        "\u0301",
        "a",
        " ",
        "word ",
        "x" * 600,
        '"',
        "\\",
        "\ufffd",
    ]
    base = "".join(chance.choices(pool, k=chance.randrange(5, 400)))
    cut = chance.randrange(len(base) + 1)
    more = "".join(chance.choices(pool, k=chance.randrange(200)))
    return base, chance.choice([base + more, base[:cut], base[:cut] + more + base[cut:], more, more + base, base])


def test_any_text_is_rebuilt(up, gw):
    """A delta never returns a result that looks usable but is not: any text, from any base, to the byte."""
    chance = random.Random(23)
    path = fresh()
    used = 0
    for _ in range(200):
        client = Holder(
            gw,
            accept=chance.choice(
                ["ctxpack.delta.v1", "ctxpack.delta.v1, gzip, zstd", "ctxpack.pack.v1, ctxpack.delta.v1, identity;q=0"]
            ),
        )
        for text in texts(chance):
            up.at(path, text_reply(text))
            response = client.ask("POST", path, b"q")
            assert response.content == text.encode()
        used += is_delta(response)
    assert used > 40


def test_a_page_of_another_origin_cannot_stop_the_gateway(up):
    """The admin plane on loopback has no token: a browser's form must not reach `POST /-/drain` or `/-/reload` there."""
    with gateway(up, drain="1s") as gw:
        page = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")]
        for target in ("/-/reload", "/-/drain"):
            assert ask(
                gw.admin, "POST", target, [*page, ("Content-Type", "application/x-www-form-urlencoded")], b""
            ).status in (401, 403)
        time.sleep(0.2)
        assert gw.status("/readyz") == 200


def test_zstd_windows(up, gw):
    """C08: windows over the limit are refused cleanly, not allocated"""
    compressor = zstd.ZstdCompressor(
        options={zstd.CompressionParameter.compression_level: 22, zstd.CompressionParameter.window_log: 27}
    )
    data = compressor.compress(random.Random(1).randbytes(3000)) + compressor.flush()
    path = up.at(fresh(), text_reply("fine"))
    before = gw.memory("VmHWM")
    response = ask(gw, "POST", path, [("Content-Encoding", "zstd")], data)
    assert response.status in (200, 400, 413, 415)
    path = up.at(fresh(), text_reply(data, ("Content-Encoding", "zstd")))
    assert get(gw, path, [("Accept-Encoding", "identity")]).status in (200, 502)
    assert gw.memory("VmHWM") - before < 160 * MIB


def test_a_client_that_does_not_read(up, gw):
    """back-pressure both ways, memory bounded"""
    sent = [0]

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.socket.settimeout(3)
        piece = b"data: " + b"x" * 65000 + b"\n\n"
        with contextlib.suppress(OSError):
            for _ in range(3000):
                peer.chunk(piece)
                sent[0] += len(piece)

    path = up.at(fresh(), Raw(script))
    before = gw.memory()
    with Client(gw) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        client.head()
        time.sleep(1.5)
        assert sent[0] < 60 * MIB, "the upstream feels no back-pressure"
        assert gw.memory() - before < 40 * MIB
    well(gw, up)


def test_an_upstream_that_does_not_read(up, gw):
    """back-pressure both ways, memory bounded"""
    path = up.at(fresh(), Raw(lambda peer, _request: time.sleep(2.5), head_only=True))
    before = gw.memory()
    sent = 0
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {60 * MIB}\r\n\r\n".encode())
        client.socket.settimeout(1.0)
        with contextlib.suppress(OSError):
            for _ in range(240):
                client.send(b"x" * (MIB // 4))
                sent += MIB // 4
        assert sent < 40 * MIB
        assert gw.memory() - before < 40 * MIB
    well(gw, up)


def test_heavy_turns_hold_up_nobody(up, gw):
    """F09: the event loop is free while large bodies are packed, compared and compressed."""
    bodies = ["".join(f"{number} {seed} some words that differ\n" for number in range(300_000)) for seed in range(3)]
    bodies.append("\n" * 4_000_000)
    bodies.append("x" * 8_000_000)
    path = fresh()
    waits: list[float] = []
    done = threading.Event()

    def watch() -> None:
        with Client(gw.admin) as client:
            while not done.is_set():
                began = time.monotonic()
                client.ask("GET", "/livez")
                waits.append(time.monotonic() - began)
                time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        client = Holder(gw)
        for body in bodies:
            up.at(path, text_reply(body))
            ask(gw, "GET", path, client.request_fields())
        fields = [("Accept-Encoding", "ctxpack.delta.v1, gzip"), ("Packhorse-Session", client.session)]
        ask(gw, "GET", path, [*fields, ("Ctxpack-Base", ", ".join(digest(body) for body in bodies))])
    finally:
        done.set()
        watcher.join(10)
    waits.sort()
    assert statistics.median(waits) < 0.05
    assert waits[-1] < 1.0, waits[-5:]


# ---------------------------------------------------------------- a machine that fails


def traffic(gw, up, rounds: int, broken: list[str], stop: threading.Event) -> None:
    """Turns of a session; every body is rebuilt and verified."""
    seed = random.randrange(10_000)
    client = Holder(gw)
    path = fresh()
    for turn in range(rounds):
        if stop.is_set():
            return
        text = lines(30 + turn, seed)
        up.at(path, text_reply(text))
        try:
            response = client.ask("POST", path, b"question " * 40)
        except (OSError, Cut, AssertionError) as error:
            if isinstance(error, AssertionError) and "HTTP/1.1 502" not in str(error):
                broken.append(repr(error))
            continue
        if response.status == 200 and response.content != text.encode():
            broken.append(f"wrong bytes on turn {turn}")


def test_sqlite_under_kill_9(up, tmp_path):
    """E09: kill -9 mid-write: never a half-written base; it starts again, serves, and the file is sound"""
    file = tmp_path / "bases.sqlite3"
    with gateway(up, store={"kind": "sqlite", "path": str(file)}, folder=tmp_path) as gw:
        broken: list[str] = []
        for round_ in range(3):
            stop = threading.Event()
            threads = [threading.Thread(target=traffic, args=(gw, up, 200, broken, stop)) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.5 + 0.2 * round_)
            gw.kill()
            stop.set()
            for thread in threads:
                thread.join(20)
            with contextlib.closing(sqlite3.connect(file)) as database:
                assert database.execute("pragma integrity_check").fetchone() == ("ok",)
            gw.again()
            assert json.loads(get(gw.admin, "/readyz").body)["degraded"] == []
        assert broken == []
        assert gw.metrics().total("packhorse_bases", store="sqlite") > 0
        well(gw, up)


def test_a_full_disk_under_traffic(up, tmp_path):
    """E10: 200 full bodies (fail open), error metric, no partial base; /readyz says degraded; the traffic goes on"""
    file = tmp_path / "bases.sqlite3"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, before[1]))
    try:
        with gateway(
            up, store={"kind": "sqlite", "path": str(file), "memory": "256KiB"}, log={"access": "off"}, folder=tmp_path
        ) as gw:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            broken: list[str] = []
            never = threading.Event()
            threads = [threading.Thread(target=traffic, args=(gw, up, 60, broken, never)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(40)
            assert broken == []
            assert gw.status("/readyz") == 200
            until(lambda: json.loads(get(gw.admin, "/readyz").body)["degraded"], 10)
            assert gw.metrics().total("packhorse_degraded") >= 1
            well(gw, up)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["garbage", "cut", "folder", "read-only"])
def test_a_broken_store(up, tmp_path, kind):
    """E09: starts, moves the bad file aside, serves; corrupt or read-only files"""
    file = tmp_path / "bases.sqlite3"
    match kind:
        case "garbage":
            file.write_bytes(random.Random(1).randbytes(50_000))
        case "cut":
            with contextlib.closing(sqlite3.connect(file)) as database:
                database.execute("create table bases (a)")
                database.commit()
            file.write_bytes(file.read_bytes()[:5000])
        case "folder":
            file.mkdir()
            (file / "x").write_text("x")
        case "read-only":
            with contextlib.closing(sqlite3.connect(file)) as database:
                database.execute("create table other (a)")
                database.commit()
            file.chmod(0o400)
    with gateway(up, store={"kind": "sqlite", "path": str(file)}, folder=tmp_path) as gw:
        path = up.at(fresh(), text_reply(FIRST))
        client = Holder(gw)
        client.get(path)
        up.at(path, text_reply(SECOND))
        assert client.get(path).content == SECOND.encode()
        assert gw.status("/readyz") == 200
        if kind == "folder":
            assert json.loads(get(gw.admin, "/readyz").body)["degraded"]
        assert "Traceback" not in gw.log


def test_reload_under_load(up):
    """validated, then swapped as a whole: no request fails while it happens"""
    with gateway(up) as gw:
        stop = threading.Event()
        broken: list[str] = []
        deltas = [0]

        def turns() -> None:
            client = Holder(gw)
            path = fresh()
            turn = 0
            while not stop.is_set():
                turn += 1
                up.at(path, text_reply(lines(60 + turn % 50)))
                try:
                    response = client.get(path)
                    deltas[0] += is_delta(response)
                    if response.status != 200:
                        broken.append(str(response.status))
                except Exception as error:
                    broken.append(repr(error))

        threads = [threading.Thread(target=turns) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(20):
            size = 100 + number
            gw.rewrite(lambda document, size=size: document.__setitem__("deltas", {"min_bytes": size}))
            if number % 3:
                assert ask(gw.admin, "POST", "/-/reload", [], b"").status == 200
            else:
                gw.signal(1)
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join(15)
        assert broken == []
        assert deltas[0] > 20
        well(gw, up)


def test_descriptors_and_threads_are_flat(up, gw):
    """E17: open descriptors and threads constant"""
    path = up.at(fresh(), text_reply(FIRST))
    for _ in range(20):
        Holder(gw).get(path)
    time.sleep(0.3)
    before = gw.descriptors()
    for _ in range(400):
        get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", name())])
    until(lambda: gw.descriptors() <= before + 8, 5)


def test_debug_logs_hold_no_secrets(up):
    """D14: ... at debug level; never a body, a key or a query string"""
    secret = name("SECRET")
    with gateway(up, log={"level": "debug", "format": "json"}) as gw:
        fields = [
            ("Authorization", f"Bearer {secret}"),
            ("x-api-key", secret),
            ("Cookie", f"a={secret}"),
            ("x-session-id", secret),
        ]
        path = up.at(
            fresh(), text_reply(f"{secret} in an answer\n" * 40, ("Set-Cookie", f"a={secret}"), ("Location", f"/{secret}"))
        )
        broken = up.at(fresh(), f"HTTP/1.1 200 {secret}\r\n{secret}\r\n\r\n".encode())
        for target in (f"{path}?key={secret}", f"{broken}?{secret}"):
            ask(gw, "POST", target, [*fields, ("Accept-Encoding", "ctxpack.delta.v1")], f'{{"x": "{secret}"}}'.encode())
            ask(gw, "POST", target, [*fields, ("Content-Encoding", "gzip")], secret.encode())
        with Client(gw) as client:
            client.send(f"GET / HTTP/1.1\r\n{secret}\r\n\r\n".encode())
            client.response()
        time.sleep(0.3)
        assert secret not in gw.log
        for line in gw.log.splitlines():
            json.loads(line)


def test_log_lines_cannot_be_forged(up):
    """A path or field cannot write lines or escapes into the log."""
    with gateway(up) as gw:
        for target in ("/a%0aFORGED", "/\x7f\x7f", "/\u009b31m".encode("latin-1").decode("latin-1"), "/\xe2\x80\xa8FORGED"):
            get(gw, target)
        time.sleep(0.2)
        assert not [line for line in gw.log.splitlines() if line.startswith("FORGED")]
        assert all(character.isprintable() or character in "\n\t" for character in gw.log)
