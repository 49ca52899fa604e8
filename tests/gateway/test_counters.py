"""Counters: contract 8 on the page, series bounded whatever the traffic, no environment variable in the way."""

import math
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway import metric_table as table
from gateway.counters import CONTENT_TYPE, Counters
from middleware.stores import StoreSizes

ROOT = Path(__file__).resolve().parents[2]


def samples(counters: Counters) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series of the page, as a parser of the format reads it."""
    text = counters.exposition()[0].decode()
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


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
    counters.watch_store("memory", lambda: StoreSizes(1, 2, 3))
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
    counters.watch_store("memory", lambda: StoreSizes(1, 2, 3))
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
    now = {"in_flight": 3, "bases": 5}
    counters.watch(in_flight=lambda: now["in_flight"], degraded=lambda: 1, reloaded=lambda: 0)
    counters.watch_store("sqlite", lambda: StoreSizes(now["bases"], 7, 2))
    assert value(counters, "packhorse_in_flight") == 3
    now.update(in_flight=4, bases=6)
    assert value(counters, "packhorse_in_flight") == 4
    assert value(counters, "packhorse_bases", store="sqlite") == 6
    assert value(counters, "packhorse_base_bytes", store="sqlite") == 7
    assert value(counters, "packhorse_sessions", store="sqlite") == 2
    assert value(counters, "packhorse_degraded") == 1
    assert value(counters, "packhorse_config_last_reload_successful") == 0


def test_a_gauge_that_cannot_be_read_costs_no_other_metric() -> None:
    counters = Counters("0.1.0")

    def broken() -> float:
        raise OSError("gone")

    def broken_store() -> StoreSizes:
        raise OSError("gone")

    counters.watch(in_flight=broken, degraded=lambda: 2, reloaded=lambda: 1)
    counters.watch_store("sqlite", broken_store)
    assert math.isnan(value(counters, "packhorse_in_flight"))
    assert math.isnan(value(counters, "packhorse_bases", store="sqlite"))
    assert value(counters, "packhorse_degraded") == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.integers(0, 10_000), st.text(max_size=20)), max_size=20))
def test_no_label_value_from_traffic_breaks_or_widens_the_page(values: list[tuple[str, int, str]]) -> None:
    counters = Counters("0.1.0")
    every_exchange(counters, "chat")
    before = samples(counters).keys()
    counted = counters.route("chat")
    for word, status, other in values:
        counted.request(word, status, other, 0.1, None, None)
        counted.body(word, other, word)
        counted.body("down", f"{word}, gzip", "delta")
        counted.link_bytes("down", "weak", "body", status)
        counted.upstream_error(word)
        counted.gzip_skipped(other)
    after = samples(counters)
    assert {key for key in after.keys() - before if "other" not in dict(key[1]).values()} == set()
    assert len(after) - len(before) <= 60


def test_series_are_constant_under_random_traffic() -> None:
    """F02: methods, statuses, codings, reasons at random; once `other` was seen everywhere, nothing new appears."""
    dice = random.Random(2)
    counters = Counters("0.1.0")

    def word() -> str:
        return "".join(chr(dice.randrange(32, 0x2FFF)) for _ in range(dice.randrange(1, 12)))

    def traffic(count: int) -> None:
        counted = counters.route("chat")
        for _ in range(count):
            counted.request(word(), dice.randrange(0, 1000), dice.choice(table.OUTCOMES), 0.1, 0.1, 0.1)
            counted.body(dice.choice(table.DIRECTIONS), word(), dice.choice(table.WHYS))
            counted.link_bytes(dice.choice(table.DIRECTIONS), dice.choice(table.LINKS), "head", 10)
            counted.upstream_error(word())

    every_exchange(counters, "chat")
    traffic(500)
    before = samples(counters).keys()
    traffic(5000)
    assert samples(counters).keys() == before


@pytest.mark.parametrize("name", ['a"b\\c', "line\nbreak", "\ud800", "é", "x" * 4000, ""])
def test_hostile_names_cannot_break_a_scrape(name: str) -> None:
    counters = Counters(name)
    counters.route(name).request("GET", 200, "ok", 1.0, 0.1, 0.2)
    counters.route(name).request("GET", 200, "ok", 1.0, 0.1, 0.2)
    counters.watch_store(name, lambda: StoreSizes(0, 0, 0))
    found = [v for (n, _), v in samples(counters).items() if n == "packhorse_requests_total"]
    assert found == [2]
    promtool(counters.exposition()[0])


def promtool(page: bytes) -> None:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    done = subprocess.run([found, "check", "metrics"], input=page, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_promtool_has_nothing_to_say() -> None:
    counters = Counters("0.1.0")
    every_exchange(counters, "chat")
    every_exchange(counters, "none")
    counters.watch_store("memory", lambda: StoreSizes(1, 2, 3))
    promtool(counters.exposition()[0])


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


_SCRIPT = """
import sys, prometheus_client  # as a library that was there first would import it
from gateway.counters import Counters
c = Counters("0.1.0")
c.route("chat").request("GET", 200, "ok", 0.1, 0.1, 0.1)
sys.stdout.buffer.write(c.exposition()[0])
"""


@pytest.mark.parametrize("name", ["PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"])
@pytest.mark.parametrize("there", [True, False])
def test_multiprocess_mode_cannot_be_switched_on(tmp_path: Path, name: str, there: bool) -> None:
    """F03, F10: no shared files are made, read or wiped, whatever lies in the directory and whether it exists."""
    directory = tmp_path / "shared"
    if there:
        directory.mkdir()
        (directory / "counter_1.db").write_bytes(b"\x00\x01truncated")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _SCRIPT],
        cwd=ROOT,
        env={name: str(directory), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    families = {f.name: f for f in text_string_to_metric_families(done.stdout.decode())}
    (sample,) = families["packhorse_requests"].samples
    assert (sample.value, "pid" in sample.labels) == (1, False)
    assert [p.name for p in tmp_path.glob("shared/*")] == (["counter_1.db"] if there else [])


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
