"""Contract, section 8: metrics."""

import gzip
import json
import re
import shutil
import subprocess
import time

import pytest
from contract.kit import Client, Holder, Peer, Raw, Reply, Request, ask, digest, fresh, gateway, get, name, text_reply, until
from prometheus_client.parser import text_string_to_metric_families
from support.texts import lines

FIRST, SECOND = lines(100), lines(104)
TABLE = {
    # name as scraped: type, labels (those of a histogram beside le)
    "packhorse_requests_total": ("counter", {"route", "method", "status", "outcome"}),
    "packhorse_request_seconds": ("histogram", {"route"}),
    "packhorse_overhead_seconds": ("histogram", {"route"}),
    "packhorse_first_byte_seconds": ("histogram", {"route"}),
    "packhorse_link_bytes_total": ("counter", {"route", "direction", "link", "part"}),
    "packhorse_link_original_bytes_total": ("counter", {"route", "direction", "link"}),
    "packhorse_bodies_total": ("counter", {"route", "direction", "coding", "why"}),
    "packhorse_gzip_compared_original_bytes_total": ("counter", {"route", "direction"}),
    "packhorse_gzip_compared_sent_bytes_total": ("counter", {"route", "direction"}),
    "packhorse_gzip_compared_gzip_bytes_total": ("counter", {"route", "direction"}),
    "packhorse_gzip_comparisons_skipped_total": ("counter", {"route", "reason"}),
    "packhorse_base_lookups_total": ("counter", {"direction", "result"}),
    "packhorse_bases": ("gauge", {"store"}),
    "packhorse_base_bytes": ("gauge", {"store"}),
    "packhorse_sessions": ("gauge", {"store"}),
    "packhorse_upstream_seconds": ("histogram", {"route"}),
    "packhorse_upstream_errors_total": ("counter", {"route", "reason"}),
    "packhorse_in_flight": ("gauge", None),
    "packhorse_degraded": ("gauge", None),
    "packhorse_build_info": ("gauge", None),
    "packhorse_config_last_reload_successful": ("gauge", None),
}


@pytest.fixture(scope="module")
def own(up):
    """A gateway of this file's own; its comparison may take all the time it wants."""
    routes = [
        {"name": "r", "match": "/", "upstream": up.url, "kind": "prepare"},
        {"name": "chat", "match": "/v1", "upstream": up.url, "kind": "openai"},
        {"name": "plain", "match": "/plain", "upstream": up.url, "kind": "plain"},
        {"name": "dead", "match": "/dead", "upstream": "http://127.0.0.1:9"},
    ]
    with gateway(up, routes=routes, gzip_comparison={"cpu_share": 1.0}) as made:
        yield made


def settled(gw):
    """A scrape after everything ended."""
    until(lambda: gw.metrics().total("packhorse_in_flight") == 0)
    time.sleep(0.05)
    return gw.metrics()


def test_every_metric_is_there_with_its_type_and_labels(up, own):
    """| name | type, labels |: the whole table"""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(own)
    client.get(path)
    client.ask("POST", path, FIRST.encode())
    get(own, "/dead/x")
    get(own, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Ctxpack-Base", "sha256:" + "1" * 64)])
    own.counted("packhorse_gzip_compared_gzip_bytes_total")
    page = get(own.admin, "/metrics").body.decode()
    families = {}
    for family in text_string_to_metric_families(page):
        families[family.name + ("_total" if family.type == "counter" else "")] = family
    for metric, (kind, labels) in TABLE.items():
        assert metric in families, metric
        family = families[metric]
        assert family.type == kind, metric
        assert family.documentation, metric
        seen = {frozenset(sample.labels) - {"le"} for sample in family.samples if not sample.name.endswith("_created")}
        if labels is not None and seen:
            assert seen == {frozenset(labels)}, (metric, seen)
    skipped = families["packhorse_gzip_comparisons_skipped_total"]
    assert f"# TYPE {'packhorse_gzip_comparisons_skipped_total'} counter" in page
    assert skipped.type == "counter"


def test_series_that_have_not_happened_are_declared(up, own):
    """Each name of the table is on the page, whether or not it has happened yet."""
    page = get(own.admin, "/metrics").body.decode()
    for metric in TABLE:
        assert re.search(rf"^# TYPE {metric} ", page, re.M), metric


def test_content_type_of_the_page(gw):
    """F07: exact `text/plain; version=...; charset=utf-8`"""
    assert re.fullmatch(
        r"text/plain; version=\d\.\d\.\d; charset=utf-8(; escaping=[a-z-]+)?", get(gw.admin, "/metrics").text("content-type")
    )


def test_promtool(gw):
    """`promtool check metrics` passes"""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    done = subprocess.run(
        [found, "check", "metrics"], input=get(gw.admin, "/metrics").body, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_requests_total(up, own):
    """counter: `route`, `method`, `status` (2xx...), `outcome` (`ok`, `client_gone`, `upstream_cut`, `refused`, `failed`)"""
    before = settled(own)

    def more(**labels: str) -> float:
        return settled(own).total("packhorse_requests_total", **labels) - before.total("packhorse_requests_total", **labels)

    for status in (200, 404, 503):
        path = up.at(fresh(), text_reply("x", status=status))
        ask(own, "PUT", path, [], b"x")
        assert more(route="r", method="PUT", status=f"{status // 100}xx", outcome="ok") == 1
    assert ask(own, "M-SEARCH", up.at(fresh(), text_reply("x"))).status == 200
    assert more(method="other", status="2xx") == 1
    assert ask(own, "BREW", up.at(fresh(), text_reply("x"))).status in (200, 400, 501)
    assert more(method="BREW") == more(method="M-SEARCH") == 0
    get(own, "/", [("Packhorse-Session", "a b")])
    assert more(route="r", status="4xx", outcome="refused") == 1
    get(own, "/dead/x")
    assert more(route="dead", status="5xx", outcome="failed") == 1

    def cut(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.chunk(b"data: 1\n\n")
        time.sleep(0.05)
        peer.reset()

    get(own, up.at(fresh(), Raw(cut)))
    assert more(route="r", status="2xx", outcome="upstream_cut") == 1

    def endless(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.chunk(b"data: 1\n\n")
        peer.gone(8)

    with Client(own) as client:
        client.send(f"GET {up.at(fresh(), Raw(endless))} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        client.until(b"data: 1\n\n")
    until(lambda: more(route="r", outcome="client_gone") == 1)
    scrape = settled(own)
    assert set(scrape.by("packhorse_requests_total", "outcome")) <= {"ok", "client_gone", "upstream_cut", "refused", "failed"}
    assert all(re.fullmatch(r"[1-5]xx|none", status) for status in scrape.by("packhorse_requests_total", "status"))


TERMINAL = {
    "openai": ("/v1", b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', b"data: [DONE]\n\n"),
    "responses": (
        "/v1",
        b'event: response.created\ndata: {"type":"response.created"}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    ),
    "anthropic": (
        "/anthropic",
        b'event: ping\ndata: {"type":"ping"}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
}


@pytest.mark.parametrize("dialect", list(TERMINAL))
@pytest.mark.parametrize("ended", [True, False])
def test_a_client_that_leaves_after_the_terminal_event(up, gw, dialect, ended):
    """`client_gone` (left before the last event or byte; one that leaves after the terminal event of a stream is `ok`)"""
    prefix, event, terminal = TERMINAL[dialect]

    def script(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/event-stream")])
        peer.chunk(event)
        if ended:
            peer.chunk(terminal)
        peer.gone(8)

    path = up.at(fresh(prefix), Raw(script))
    before = gw.metrics()
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        client.until(terminal if ended else event)
        time.sleep(0.1)
    outcome = "ok" if ended else "client_gone"

    def counted() -> float:
        return gw.metrics().total("packhorse_requests_total", outcome=outcome) - before.total(
            "packhorse_requests_total", outcome=outcome
        )

    until(lambda: counted() == 1)


def bytes_of(scrape, direction: str, part: str) -> float:
    return scrape.total("packhorse_link_bytes_total", direction=direction, part=part)


def test_bytes_are_what_crossed_the_wire(up):
    """`packhorse_link_bytes_total` ...: what crossed the client's link. `body` is content after transfer decoding; `head` is all the rest of
    the message (fields, chunk framing, 1xx). Bytes plus or minus nothing."""
    with gateway(up) as gw:
        bodies_up = bodies_down = 0
        sent = received = 0
        stream = Reply(200, [("Content-Type", "text/event-stream")], b"data: x\n\n" * 30, framing="chunked")

        def cut(peer: Peer, _request: Request) -> None:
            peer.begin([("Content-Type", "text/event-stream")])
            peer.chunk(b"data: 1\n\n" * 100)
            time.sleep(0.05)
            peer.reset()

        def one(data: bytes, method: str, body: int, client: Client | None = None) -> None:
            nonlocal sent, received, bodies_up, bodies_down
            with Client(gw) if client is None else client as used:
                used.send(data)
                response = used.response(method)
                if used.socket.fileno() >= 0 and not response.complete:
                    used.ends(1)
                sent += used.sent
                received += used.received
            bodies_up += body
            bodies_down += len(response.body)

        plain, coded = up.at(fresh(), text_reply(FIRST)), up.at(fresh(), text_reply(SECOND, framing="chunked"))
        one(f"GET {plain} HTTP/1.1\r\nHost: g\r\n\r\n".encode(), "GET", 0)
        one(f"GET {coded} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: gzip\r\n\r\n".encode(), "GET", 0)
        one(f"HEAD {plain} HTTP/1.1\r\nHost: g\r\n\r\n".encode(), "HEAD", 0)
        one(f"GET {plain} HTTP/1.0\r\n\r\n".encode(), "GET", 0)
        one(f"GET {up.at(fresh(), stream)} HTTP/1.1\r\nHost: g\r\n\r\n".encode(), "GET", 0)
        one(f"GET {up.at(fresh(), Raw(cut))} HTTP/1.1\r\nHost: g\r\n\r\n".encode(), "GET", 0)
        one(f"GET {up.at(fresh(), Reply(204))} HTTP/1.1\r\nHost: g\r\n\r\n".encode(), "GET", 0)
        one(f"POST {plain} HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\n\r\nhello".encode(), "POST", 5)
        one(
            f"POST {plain} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\n\r\n".encode(),
            "POST",
            11,
        )
        one(f"GET {plain} HTTP/1.1\r\nHost: g\r\nPackhorse-Session: a b\r\n\r\n".encode(), "GET", 0)
        one(b"nonsense\r\n\r\n", "GET", 0)
        one(b"GET / HTTP/1.1\r\nHost: g\r\nX: " + b"x" * 50_000 + b"\r\n\r\n", "GET", 0)
        one(b"OPTIONS * HTTP/1.1\r\nHost: g\r\n\r\n", "OPTIONS", 0)
        tag = f'W/"sha256-{digest(FIRST)[7:39]}"'
        one(f"GET {plain} HTTP/1.1\r\nHost: g\r\nIf-None-Match: {tag}\r\n\r\n".encode(), "GET", 0)
        with Client(gw) as client:  # the 100 is part of the head, too
            client.send(f"POST {plain} HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n".encode())
            client.until(b"\r\n\r\n")
            client.send(b"abc")
            response = client.response("POST")
            sent, received = sent + client.sent, received + client.received
            bodies_up, bodies_down = bodies_up + 3, bodies_down + len(response.body)
        with Client(gw) as client:  # kept alive, pipelined, with coded turns
            for _ in range(3):
                client.send(f"GET {plain} HTTP/1.1\r\nHost: g\r\n\r\n".encode() * 2)
                for _ in range(2):
                    bodies_down += len(client.response().body)
            sent, received = sent + client.sent, received + client.received
        total = bytes_of

        def exact() -> bool:
            scrape = gw.metrics()
            return (
                total(scrape, "up", "body") == bodies_up
                and total(scrape, "up", "head") == sent - bodies_up
                and total(scrape, "down", "body") == bodies_down
                and total(scrape, "down", "head") == received - bodies_down
            )

        deadline = time.monotonic() + 5
        while not exact() and time.monotonic() < deadline:
            time.sleep(0.1)
        scrape = gw.metrics()
        got = {(d, p): total(scrape, d, p) for d in ("up", "down") for p in ("body", "head")}
        assert got == {
            ("up", "body"): bodies_up, ("up", "head"): sent - bodies_up,
            ("down", "body"): bodies_down, ("down", "head"): received - bodies_down,
        }  # fmt: skip


def test_original_bytes(up, own):
    """`packhorse_link_original_bytes_total`: the same bodies, uncoded"""
    before = settled(own)
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(own, fields=[("Packhorse-Link", "weak")])
    body = gzip.compress(lines(30).encode())
    coded = [len(client.ask("POST", path, body, [("Content-Encoding", "gzip")]).body)]
    up.at(path, text_reply(SECOND))
    coded.append(len(client.get(path).body))
    after = settled(own)

    def more(metric: str, **labels: str) -> float:
        return after.total(metric, **labels) - before.total(metric, **labels)

    assert more("packhorse_link_original_bytes_total", direction="down", link="weak", route="r") == len(FIRST) + len(SECOND)
    assert more("packhorse_link_bytes_total", direction="down", link="weak", part="body") == sum(coded)
    assert more("packhorse_link_original_bytes_total", direction="up", link="weak", route="r") == len(lines(30))
    assert more("packhorse_link_bytes_total", direction="up", link="weak", part="body") == len(body)


def test_link_labels(up, own):
    """`link`"""
    path = up.at(fresh(), text_reply(FIRST))
    for link in ("weak", "metered", "normal", "bogus"):
        get(own, path, [("Packhorse-Link", link)])
    assert set(settled(own).by("packhorse_link_bytes_total", "link")) <= {"weak", "metered", "normal", "unknown", "none"}
    assert set(own.metrics().by("packhorse_link_bytes_total", "direction")) == {"up", "down"}
    assert set(own.metrics().by("packhorse_link_bytes_total", "part")) == {"body", "head"}


def test_bodies_total(up, own):
    """`packhorse_bodies_total` | counter: `route`, `direction`, `coding`, `why` | `coding` (those of section 1, else `other`)"""
    before = settled(own)
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(own, accept="ctxpack.delta.v1")
    client.get(path)
    up.at(path, text_reply(SECOND))
    client.get(path)
    get(own, path, [("Accept-Encoding", "gzip")])
    get(own, up.at(fresh(), text_reply(b"x" * 900, ("Content-Encoding", "x-mine"))))
    after = settled(own)

    def more(**labels: str) -> float:
        return after.total("packhorse_bodies_total", direction="down", route="r", **labels) - before.total(
            "packhorse_bodies_total", direction="down", route="r", **labels
        )

    assert more(coding="ctxpack.delta.v1", why="delta") == 1
    assert more(coding="gzip") == 1
    assert more(coding="identity") == 1
    assert more(coding="other") == 1
    codings = set(after.by("packhorse_bodies_total", "coding"))
    assert codings <= {
        "dcz",
        "ctxpack.pack.v1",
        "ctxpack.delta.v1",
        "ctxpack.delta.v2",
        "zstd",
        "gzip",
        "br",
        "deflate",
        "identity",
        "other",
    }


def test_bodies_go_up_too(up, own):
    """`packhorse_bodies_total` | counter: `route`, `direction`, `coding`, `why`; direction is `down` or `up`"""
    before = settled(own)
    path = up.at(fresh(), text_reply(FIRST))
    ask(own, "POST", path, [("Content-Encoding", "gzip")], gzip.compress(lines(30).encode()))
    ask(own, "POST", path, [], lines(30).encode())
    after = settled(own)

    def more(coding: str) -> float:
        labels = {"direction": "up", "route": "r", "coding": coding}
        return after.total("packhorse_bodies_total", **labels) - before.total("packhorse_bodies_total", **labels)

    assert (more("gzip"), more("identity")) == (1, 1)


@pytest.mark.parametrize("method", ["GET", "PATCH", "PROPFIND", "REPORT", "SEARCH", "MKCOL"])
def test_registered_methods_are_named(up, own, method):
    """Labels come from settings, except `method` (the registered ones, else `other`): IANA's registry of methods"""
    before = settled(own)
    assert ask(own, method, up.at(fresh(), text_reply("x"))).status == 200
    assert (
        settled(own).total("packhorse_requests_total", method=method)
        == before.total("packhorse_requests_total", method=method) + 1
    )


def test_the_compared_series_speak_of_the_same_bodies(up):
    """one and the same set of bodies as they were, as they were sent, and as gzip would have sent them"""
    with gateway(up, gzip_comparison={"cpu_share": 1.0, "level": 6}) as gw:
        client = Holder(gw, accept="ctxpack.delta.v1")
        path = fresh()
        original = sent = 0
        compressed = 0
        for turn in range(5):
            text = lines(100 + 4 * turn)
            up.at(path, text_reply(text))
            sent += len(client.get(path).body)
            original += len(text)
            compressed += len(gzip.compress(text.encode(), 6, mtime=0))
            done = gw.counted("packhorse_gzip_compared_original_bytes_total", original, direction="down")
        assert done.total("packhorse_gzip_compared_original_bytes_total", direction="down") == original
        assert done.total("packhorse_gzip_compared_sent_bytes_total", direction="down") == sent
        assert abs(done.total("packhorse_gzip_compared_gzip_bytes_total", direction="down") - compressed) <= 5 * 30
        assert done.total("packhorse_gzip_comparisons_skipped_total") == 0


def test_no_comparison_within_no_budget(up):
    """within a budget (`gzip_comparison.cpu_share`), and what it skips is counted"""
    with gateway(up, gzip_comparison={"cpu_share": 0}) as gw:
        path = up.at(fresh(), text_reply(FIRST))
        client = Holder(gw, accept="ctxpack.delta.v1")
        for _ in range(4):
            client.get(path)
        scrape = gw.counted("packhorse_gzip_comparisons_skipped_total", 1)
        assert scrape.total("packhorse_gzip_compared_original_bytes_total") == 0
        assert scrape.total("packhorse_gzip_compared_sent_bytes_total") == 0
        assert scrape.total("packhorse_gzip_compared_gzip_bytes_total") == 0


def test_base_lookups(up, own):
    """`packhorse_base_lookups_total` | counter: `direction`, `result` (`hit`, `unknown`, `foreign`)"""
    path = up.at(fresh(), text_reply(FIRST))
    before = settled(own)
    Holder(own, fields=[("x-api-key", "one")]).get(path)
    for key, base in (("one", digest(FIRST)), ("two", digest(FIRST)), ("one", "sha256:" + "3" * 64)):
        get(own, path, [("x-api-key", key), ("Accept-Encoding", "ctxpack.delta.v1"), ("Ctxpack-Base", base)])
    after = settled(own)
    for result in ("hit", "foreign", "unknown"):
        more = after.total("packhorse_base_lookups_total", result=result, direction="down") - before.total(
            "packhorse_base_lookups_total", result=result, direction="down"
        )
        assert more == 1, (result, more)


def test_gauges(up):
    """`packhorse_bases`, `packhorse_base_bytes`, `packhorse_sessions` | gauge: `store`; `packhorse_in_flight`, ... | gauge"""
    with gateway(up) as gw:
        scrape = gw.metrics()
        assert scrape.by("packhorse_degraded", "x") == {} if not scrape.total("packhorse_degraded") else False
        assert scrape.total("packhorse_build_info") == 1
        assert scrape.total("packhorse_config_last_reload_successful") == 1
        assert scrape.total("packhorse_in_flight") == 0
        path = up.at(fresh(), text_reply(FIRST))
        Holder(gw).get(path)
        Holder(gw).get(path)
        scrape = settled(gw)
        assert scrape.total("packhorse_sessions", store="memory") == 2
        assert scrape.total("packhorse_bases", store="memory") == 2
        assert len(FIRST) <= scrape.total("packhorse_base_bytes", store="memory") <= 2 * len(FIRST) * 2.5

        def slow(peer: Peer, _request: Request) -> None:
            time.sleep(0.7)
            peer.send(text_reply("x").to_bytes())

        with Client(gw) as client:
            client.send(f"GET {up.at(fresh(), Raw(slow))} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
            until(lambda: gw.metrics().total("packhorse_in_flight") == 1)
            client.response()
        until(lambda: gw.metrics().total("packhorse_in_flight") == 0)


def test_histograms(up, own):
    """histogram: `route`"""
    before = settled(own)

    def slow(peer: Peer, _request: Request) -> None:
        time.sleep(0.3)
        peer.send(text_reply(FIRST).to_bytes())

    get(own, up.at(fresh(), Raw(slow)))
    after = settled(own)

    def more(metric: str) -> float:
        return after.total(metric, route="r") - before.total(metric, route="r")

    for metric in ("request", "overhead", "first_byte", "upstream"):
        assert more(f"packhorse_{metric}_seconds_count") == 1, metric
    assert 0.29 < more("packhorse_request_seconds_sum") < 3
    assert 0.29 < more("packhorse_first_byte_seconds_sum") < 3
    assert 0.29 < more("packhorse_upstream_seconds_sum") < 3
    assert more("packhorse_overhead_seconds_sum") < 0.25


def test_series_stay_constant_under_hostile_names(up, own):
    """Labels come from settings, except `method` ..., `coding` ... : series count stays constant under random methods, paths, models,
    sessions and status codes (F02)."""

    def series() -> int:
        return len([key for key in settled(own).series() if not key[0].endswith("_created")])

    for status in (200, 201, 301, 404, 500):
        ask(own, "ODD", up.at(fresh("/v1"), text_reply("x", status=status)), [], b"{}")
    for method in ("ODD", "ODDER"):
        ask(own, method, up.at(fresh("/v1"), text_reply("y" * 300, ("Content-Encoding", "q"))), [], b"{}")
    before = series()
    for number in range(60):
        status = [299, 599, 418, 226, 307][number % 5]
        path = up.at(fresh("/v1"), text_reply("y" * 300, ("Content-Encoding", f"coding{number}"), status=status))
        fields = [("x-session-id", f"s{number}"), ("x-api-key", f"k{number}"), ("Content-Type", f"x/{number}")]
        ask(
            own,
            f"METHOD{number}",
            path,
            fields,
            json.dumps({"model": f'm{number}"\\\n', "prompt_cache_key": str(number)}).encode(),
        )
    assert series() - before <= 6, "a series a name"
    page = get(own.admin, "/metrics").body.decode()
    assert "METHOD1" not in page
    assert "coding1" not in page


def test_scrapes_are_no_requests(up, own):
    """F09: request counters unchanged by scrapes"""
    before = settled(own).total("packhorse_requests_total")
    for _ in range(50):
        own.metrics()
    assert own.metrics().total("packhorse_requests_total") == before


def test_upstream_errors(up, own):
    """`packhorse_upstream_errors_total` | counter: `route`, `reason`"""
    before = settled(own)
    get(own, "/dead/x")
    get(own, up.at(fresh(), Raw(lambda peer, _request: peer.close())))
    after = settled(own)
    assert (
        after.total("packhorse_upstream_errors_total", route="dead")
        - before.total("packhorse_upstream_errors_total", route="dead")
        == 1
    )
    assert (
        after.total("packhorse_upstream_errors_total", route="r") - before.total("packhorse_upstream_errors_total", route="r")
        >= 1
    )


def test_labels_hold_nothing_anybody_said(up, own):
    """D16: no key hashes, e-mails, session ids in labels"""
    secret = name("SECRET")
    fields = [
        ("x-api-key", secret),
        ("Packhorse-Session", secret),
        ("User-Agent", secret),
        ("Origin", secret),
        ("Host", secret),
    ]
    get(own, up.at(f"/{secret}", text_reply(FIRST)), fields)
    assert secret not in get(own.admin, "/metrics").body.decode()
