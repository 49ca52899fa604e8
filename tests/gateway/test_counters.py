"""Counters: contract 8 on the page, series bounded whatever the traffic, no environment variable in the way."""

import math
import threading
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from support.exposition import promtool_check
from support.scrapes import Key, parse

from gateway import metric_table as table
from gateway.counters import CONTENT_TYPE, Counters
from middleware.stores import StoreSizes


@dataclass
class Shelf:
    """A store as the gauges see it."""

    kind: str = "memory"
    held: StoreSizes = field(default_factory=lambda: StoreSizes(1, 2, 3))
    trouble: str | None = None

    def sizes(self) -> StoreSizes:
        return self.held

    def degraded(self) -> str | None:
        return self.trouble


class BrokenShelf(Shelf):
    """A store whose disk is gone."""

    def sizes(self) -> StoreSizes:
        raise OSError("gone")


def samples(counters: Counters) -> dict[Key, float]:
    """Every series of the page."""
    return parse(counters.exposition()[0].decode())


def value(counters: Counters, name: str, **labels: str) -> float:
    return samples(counters)[name, frozenset(labels.items())]


def every_exchange(counters: Counters, route: str) -> None:
    """One exchange of each kind the counters know."""
    counted = counters.route(route)
    for method in (*table.METHODS, "BREW"):
        for status in (0, 101, 200, 304, 404, 500, 999):
            for outcome in table.OUTCOMES:
                counted.request(method, status, outcome, 0.2, 0.001, 0.1)
    for direction in table.DIRECTIONS:
        for coding in (*table.CODINGS, "rot13"):
            for why in (*table.WHYS, "mood"):
                counted.body(direction, coding, why)
    counted.upstream_error("solar flare")
    counted.gzip_skipped("mood")
    counters.base_lookup("down", "hit")


def test_the_page_holds_the_contracts_metrics_and_the_process_ones() -> None:
    counters = Counters("0.1.0")
    counters.route("chat").request("GET", 200, "ok", 1.0, 0.1, 0.2)
    counters.watch(Shelf(), lambda: 0)
    families = {f.name: f for f in text_string_to_metric_families(counters.exposition()[0].decode())}
    ours = {name: f.type for name, f in families.items() if name.startswith("packhorse_")}
    assert ours == {m.name.removesuffix("_total"): m.kind for m in table.METRICS}
    assert {n.removesuffix("_total") for n in families if not n.startswith("packhorse_")} <= {
        "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
        "process_cpu_seconds", "process_open_fds", "process_max_fds",
    }  # fmt: skip
    assert not any(n.endswith("_created") for n in families)


def test_labels_are_those_of_the_table() -> None:
    counters = Counters("0.1.0")
    every_exchange(counters, "chat")
    counters.watch(Shelf(), lambda: 0)
    by_name = {m.name: set(m.labels) for m in table.METRICS}
    for name, labels in samples(counters):
        if name.startswith("packhorse_"):
            bare = next(n for n in by_name if name == n or name in (f"{n}_bucket", f"{n}_sum", f"{n}_count"))
            assert {key for key, _ in labels} - {"le"} == by_name[bare], name


def test_the_content_type_is_exact() -> None:
    page, content_type = Counters("0.1.0").exposition()
    assert content_type == CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert page.endswith(b"\n")


def test_gauges_are_read_at_each_scrape() -> None:
    counters = Counters("0.1.0")
    assert value(counters, "packhorse_config_last_reload_successful") == 1
    now = 3
    shelf = Shelf("sqlite", StoreSizes(5, 7, 2))
    counters.watch(shelf, lambda: now)
    assert value(counters, "packhorse_in_flight") == 3
    assert value(counters, "packhorse_degraded") == 0
    now, shelf.held, shelf.trouble = 4, StoreSizes(6, 8, 3), "disk full"
    counters.reloaded(False)
    assert value(counters, "packhorse_in_flight") == 4
    assert value(counters, "packhorse_bases", store="sqlite") == 6
    assert value(counters, "packhorse_base_bytes", store="sqlite") == 8
    assert value(counters, "packhorse_sessions", store="sqlite") == 3
    assert value(counters, "packhorse_degraded") == 1
    assert value(counters, "packhorse_config_last_reload_successful") == 0


def test_a_gauge_that_cannot_be_read_costs_no_other_metric() -> None:
    counters = Counters("0.1.0")

    def broken() -> float:
        raise OSError("gone")

    counters.watch(BrokenShelf("sqlite", trouble="gone"), broken)
    assert math.isnan(value(counters, "packhorse_in_flight"))
    assert math.isnan(value(counters, "packhorse_bases", store="sqlite"))
    assert value(counters, "packhorse_degraded") == 1


def test_savings_are_the_pages_own_numbers() -> None:
    counters = Counters("0.1.0")
    counted = counters.route("chat")
    counted.link_bytes("down", "weak", "body", 10)
    counted.link_bytes("down", "weak", "head", 3)
    counted.original_bytes("down", "weak", 100)
    counted.gzip_compared("down", 100, 10, 30)
    counted.gzip_skipped("budget")
    assert counters.savings() == {
        "routes": [
            {
                "route": "chat",
                "links": [{"direction": "down", "link": "weak", "original_bytes": 100, "body_bytes": 10, "head_bytes": 3}],
                "gzip_compared": [{"direction": "down", "original_bytes": 100, "sent_bytes": 10, "gzip_bytes": 30}],
                "gzip_skipped": {"budget": 1},
            }
        ]
    }


def test_promtool_has_nothing_to_say() -> None:
    counters = Counters("0.1.0")
    every_exchange(counters, "chat")
    every_exchange(counters, "none")
    counters.watch(Shelf(), lambda: 0)
    promtool_check(counters.exposition()[0])


def test_scrapes_change_nothing() -> None:
    counters = Counters("0.1.0")
    every_exchange(counters, "chat")
    ours = {k: v for k, v in samples(counters).items() if k[0].startswith("packhorse_")}
    for _ in range(20):
        counters.exposition()
    assert {k: v for k, v in samples(counters).items() if k[0].startswith("packhorse_")} == ours


def test_a_route_that_a_reload_removed_keeps_its_series() -> None:
    counters = Counters("0.1.0")
    counters.route("old").upstream_error("connect")
    counters.route("new")
    assert value(counters, "packhorse_upstream_errors_total", route="old", reason="connect") == 1
    assert counters.route("old") is counters.route("old")


def test_the_three_compared_series_move_together() -> None:
    """Another thread counts whole triples while pages are made: no page holds half of one."""
    counters = Counters("0.1.0")
    counted = counters.route("chat")
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted.gzip_compared("down", 100, 10, 30)

    writer = threading.Thread(target=count)
    writer.start()
    try:
        for _ in range(60):
            page = samples(counters)
            original, sent, gzipped = (
                page[m.name, frozenset({("route", "chat"), ("direction", "down")})]
                for m in (table.COMPARED_ORIGINAL, table.COMPARED_SENT, table.COMPARED_GZIP)
            )
            assert original == 10 * sent
            assert 3 * sent == gzipped
    finally:
        stop.set()
        writer.join()


def test_small_sets_start_at_zero() -> None:
    """A series that appears with its first increment hides that increment from rate()."""
    counters = Counters("0.1.0")
    counters.route("chat")
    assert value(counters, "packhorse_upstream_errors_total", route="chat", reason="cut") == 0
    assert value(counters, "packhorse_gzip_compared_gzip_bytes_total", route="chat", direction="down") == 0
    assert value(counters, "packhorse_link_bytes_total", route="chat", direction="up", link="weak", part="head") == 0
    assert value(counters, "packhorse_base_lookups_total", direction="up", result="foreign") == 0


def test_counting_is_cheap() -> None:
    """Not a benchmark: a bound that only a lock, a parse or a scan on the request's way would miss."""
    import timeit

    counted = Counters("0.1.0").route("chat")
    number = 5000
    for statement in (
        lambda: counted.link_bytes("down", "metered", "body", 100),
        lambda: counted.body("down", "ctxpack.delta.v1, gzip", "delta"),
        lambda: counted.request("POST", 200, "ok", 0.1, 0.001, 0.05),
    ):
        best = min(timeit.repeat(statement, number=number, repeat=5)) / number
        assert best < 10e-6, f"{best * 1e6:.2f} microseconds"
