"""What an exchange leaves behind: each figure in the series it belongs to, and the same bytes never twice."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from multidict import CIMultiDict
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.packs import gzipped, pack_client
from support.scrapes import counted, parse, scrape
from support.twins import growing, turn_of
from support.upstream import Reply, upstream

from gateway.comparison import GzipComparison
from gateway.counters import Counters
from gateway.recorder import NO_ROUTE, Recorder
from middleware.exchange import Exchange
from middleware.metrics import Ended


class Book:
    """A recorder with counters of its own, read back as a scrape reads them."""

    def __init__(self) -> None:
        self.counters = Counters("1")
        self.comparison = GzipComparison(
            6,
            1.0,
            on_result=lambda route, *sizes: self.counters.route(route).gzip_compared(*sizes),
            on_skip=lambda route, reason: self.counters.route(route).gzip_skipped(reason),
        )
        self.recorder = Recorder(self.counters, self.comparison, "metered")

    def total(self, name: str, **labels: str) -> float:
        samples = parse(self.counters.exposition()[0].decode())
        wanted = set(labels.items())
        return sum(value for (sample, given), value in samples.items() if sample == name and wanted <= given)


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    yield made
    made.comparison.close()


def exchange(**facts: Any) -> Exchange:
    return Exchange(outgoing=CIMultiDict(), **{"route": "r", "link": "weak", "why": "delta", **facts})


def ended(**facts: Any) -> Ended:
    given = {
        "method": "POST", "target": "/a", "status": 200, "outcome": "ok", "seconds": 0.5, "overhead": 0.1, "first_byte": 0.2,
        "sent": 10, "coding": "ctxpack.delta.v1",
    }  # fmt: skip
    return Ended(**{**given, **facts})


# Bytes of the link


def test_bytes_that_crossed_go_to_the_exchanges_route_and_link(book: Book) -> None:
    book.recorder.crossed(exchange(), "down", 100, 30)
    book.recorder.crossed(exchange(), "up", 200, 50)
    book.recorder.crossed(None, "up", 7, 3)
    for direction, part, count in (("down", "head", 100), ("down", "body", 30), ("up", "head", 200), ("up", "body", 50)):
        assert book.total("packhorse_link_bytes_total", route="r", link="weak", direction=direction, part=part) == count
    assert book.total("packhorse_link_bytes_total", route=NO_ROUTE, link="metered") == 10
    assert book.total("packhorse_link_original_bytes_total", direction="up", route="r") == 50
    assert book.total("packhorse_link_original_bytes_total", direction="down") == 0, "known only when the exchange ends"


def test_the_assumed_link_may_change(book: Book) -> None:
    book.recorder.assumed_link = "normal"
    book.recorder.crossed(None, "up", 5, 0)
    assert book.total("packhorse_link_bytes_total", route=NO_ROUTE, link="normal") == 5


def test_a_coded_upload_is_its_decoded_size_in_all(book: Book) -> None:
    """The connection counted the bytes as sent; the end of the exchange adds what decoding added."""
    decoded, sent = b"a" * 1000, b"z" * 40
    held = exchange(request_body=sent, request_decoded=decoded)
    book.recorder.crossed(held, "up", 10, len(sent))
    book.recorder.ended(held, ended())
    assert book.total("packhorse_link_original_bytes_total", direction="up") == 1000
    assert book.total("packhorse_gzip_compared_sent_bytes_total", direction="up") in (0, 40)


# How exchanges end


@pytest.mark.parametrize("outcome", ["ok", "client_gone", "upstream_cut", "refused", "failed"])
def test_every_end_is_one_request(book: Book, outcome: str) -> None:
    book.recorder.ended(exchange(), ended(outcome=outcome, status=0 if outcome == "client_gone" else 502))
    assert book.total("packhorse_requests_total", outcome=outcome, route="r", method="POST") == 1
    assert book.total("packhorse_requests_total") == 1
    assert book.total("packhorse_request_seconds_count", route="r") == 1


def test_a_whole_body_counts_as_it_was_and_a_cut_one_as_what_was_sent(book: Book) -> None:
    book.recorder.ended(exchange(original=500), ended(sent=20))
    assert book.total("packhorse_link_original_bytes_total", direction="down") == 500
    book.recorder.ended(exchange(original=500), ended(sent=20, outcome="client_gone"))
    assert book.total("packhorse_link_original_bytes_total", direction="down") == 520
    assert book.total("packhorse_gzip_comparisons_skipped_total", reason="cut") == 1


def test_bodies_have_a_coding_and_a_reason_and_our_own_answers_none(book: Book) -> None:
    book.recorder.ended(exchange(original=100, decoded=b"x" * 100), ended())
    book.recorder.ended(exchange(refusal="no-route"), ended(outcome="refused", status=404, coding="identity"))
    book.recorder.ended(exchange(), ended(sent=0, status=204))
    assert book.total("packhorse_bodies_total", coding="ctxpack.delta.v1", why="delta", direction="down") == 1
    assert book.total("packhorse_bodies_total") == 1


def test_streams_and_unread_bodies_are_skipped_comparisons(book: Book) -> None:
    book.recorder.ended(exchange(why="streamed"), ended(coding="identity"))
    book.recorder.ended(exchange(why="partial"), ended(coding="identity"))
    assert book.total("packhorse_gzip_comparisons_skipped_total", reason="stream") == 1
    assert book.total("packhorse_gzip_comparisons_skipped_total", reason="not-read") == 1


def test_a_size_that_is_known_is_compared_at_once(book: Book) -> None:
    body = b"x" * 1000
    book.recorder.ended(exchange(original=1000, decoded=body, gzip_size=29), ended(sent=12))
    sizes = [
        book.total(f"packhorse_gzip_compared_{what}_bytes_total", direction="down") for what in ("original", "sent", "gzip")
    ]
    assert sizes == [1000, 12, 29]


def test_lookups_upstream_times_and_faults(book: Book) -> None:
    book.recorder.ended(exchange(lookups=["hit", "unknown", "foreign", "hit"], upstream_seconds=0.3), ended())
    book.recorder.ended(exchange(upstream_error="connect"), ended(outcome="failed", status=502))
    assert [book.total("packhorse_base_lookups_total", result=word) for word in ("hit", "unknown", "foreign")] == [2, 1, 1]
    assert book.total("packhorse_upstream_seconds_count", route="r") == 1
    assert book.total("packhorse_upstream_errors_total", reason="connect", route="r") == 1


def test_what_the_parser_refused_has_neither_method_nor_route(book: Book) -> None:
    book.recorder.malformed(400)
    book.recorder.malformed(431)
    assert book.total("packhorse_requests_total", method="other", route=NO_ROUTE, outcome="refused", status="4xx") == 2


def test_a_line_is_made_only_where_it_is_wanted(book: Book, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "packhorse.access"):
        book.recorder.ended(exchange(), ended())
    assert not caplog.records
    with caplog.at_level(logging.INFO, "packhorse.access"):
        book.recorder.ended(exchange(id="x-1"), ended())
    facts = caplog.records[0].exchange  # type: ignore[attr-defined]
    assert (facts["id"], facts["route"], facts["path"], facts["ms"], facts["added_ms"]) == ("x-1", "r", "/a", 500.0, 100.0)


# Over sockets: what a counting socket sees, to the byte


@pytest.mark.parametrize("kind", ["plain", "prepare"])
async def test_the_links_bytes_are_those_of_a_counting_socket(kind: str) -> None:
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        async with pack_client(gateway) as client:
            for turn in range(1, 5):
                await turn_of(client, kind, turn, framing="chunked" if turn % 2 else "length")
            raw = client.client
            await raw.ask("HEAD", "/x")
            await raw.ask("POST", "/x", [("Content-Encoding", "gzip")], gzipped(b"a" * 3000))
            await raw.ask("POST", "/x", [("Expect", "100-continue")], b"abc")
            await raw.send(request_bytes("GET", "/1") * 3)
            for _ in range(3):
                await raw.response()
            await raw.send(b"\r\n\r\n" + request_bytes("GET", "/2"))
            await raw.response()
        found = await counted(gateway, "packhorse_link_bytes_total", raw.sent, direction="up")
        assert found.total("packhorse_link_bytes_total", direction="up", route="r") == raw.sent
        assert found.total("packhorse_link_bytes_total", direction="down", route="r") == raw.received


async def test_blank_lines_and_a_request_byte_by_byte_are_counted_where_they_belong() -> None:
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up, kind="plain") as gateway, connect(gateway) as client:
        for _ in range(2):
            await client.trickle(b"\r\n\r\n" + request_bytes("POST", "/", (), b"abc", framing="chunked"))
            await client.response()
        found = await counted(gateway, "packhorse_link_bytes_total", client.sent, direction="up")
        assert found.total("packhorse_link_bytes_total", direction="up", route="r", part="body") == 6
        assert found.total("packhorse_link_bytes_total", direction="up", route="r") == client.sent


async def test_refusals_are_counted_to_the_byte_too() -> None:
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up, route={"match": "/only"}) as gateway:
        sent = received = 0
        for raw in (
            request_bytes("GET", "/"),
            request_bytes("OPTIONS", "*"),
            b"nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\nX:" + b"y" * 99_999,
        ):
            async with connect(gateway) as client:
                await client.send(raw)
                await client.until(b"\r\n\r\n")
                await client.leave()
                sent, received = sent + client.sent, received + client.received
        found = await counted(gateway, "packhorse_requests_total", 4, route="none")
        assert found.total("packhorse_link_bytes_total", direction="up") <= sent
        assert found.total("packhorse_link_bytes_total", direction="down", route="none") >= received
        assert found.total("packhorse_link_bytes_total", route="r") == 0


async def test_gauges_come_back_to_nothing() -> None:
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up) as gateway:
        for _ in range(5):
            await ask(gateway, "GET", "/")
        await counted(gateway, "packhorse_requests_total", 5)
        assert (await scrape(gateway)).total("packhorse_in_flight") == 0
