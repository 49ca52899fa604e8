"""Counters under hostile traffic and in hostile surroundings: series bounded, pages readable, no shared files."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.exposition import promtool_check
from support.scrapes import Key, parse

from gateway import metric_table as table
from gateway.counters import Counters

ROOT = Path(__file__).resolve().parents[2]


def samples(counters: Counters) -> dict[Key, float]:
    """Every series of the page."""
    return parse(counters.exposition()[0].decode())


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
    found = [v for (n, _), v in samples(counters).items() if n == "packhorse_requests_total"]
    assert found == [2]
    promtool_check(counters.exposition()[0])


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
