"""Time grows with size and no faster, and a megabyte packs in time. Best of several runs, so a busy machine may pass."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxpack import ContextPack, ContextPackDelta, apply_delta

LINES = b"".join(
    b"%d: a line of minutes, about as long as they are, each with a number of its own\n" % n for n in range(12_000)
)

SHAPES = {
    "lines": lambda size: (LINES * (size // len(LINES) + 1))[:size],
    "one_line": lambda size: b"x" * size,
    "one_wide_line": lambda size: "始".encode() * (size // 3),
    "line_feeds": lambda size: b"\n" * size,
    "long_and_short_lines": lambda size: (b"y" * 513 + b"\n\n") * (size // 515),
}


def best(act: Callable[[], object], runs: int = 7) -> float:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        act()
        times.append(time.perf_counter() - started)
    return min(times)


def test_a_megabyte_packs_in_under_15_milliseconds() -> None:
    data = SHAPES["lines"](1_000_000)
    assert best(lambda: ContextPack.from_utf8(data).to_bytes(), 20) < 0.015


@pytest.mark.parametrize("shape", SHAPES)
def test_time_grows_linearly(shape: str) -> None:
    small, large = SHAPES[shape](250_000), SHAPES[shape](2_000_000)

    def turn(data: bytes) -> Callable[[], object]:
        base = ContextPack.from_utf8(data)
        edited = data[: len(data) // 6 * 3] + b"!" + data[len(data) // 6 * 3 :]
        wire = base.to_bytes()

        def act() -> None:
            target = ContextPack.from_utf8(edited, after=base)
            delta = ContextPackDelta.from_bytes(ContextPackDelta.between(base, target).to_bytes())
            apply_delta(ContextPack.from_bytes(wire), delta)

        return act

    assert best(turn(large)) < 8 * 3 * best(turn(small))


@pytest.mark.parametrize("shape", SHAPES)
def test_appending_costs_a_fraction_of_packing(shape: str) -> None:
    data = SHAPES[shape](4_000_000)
    before = ContextPack.from_utf8(data)
    grown = data + b"one line more\n"
    assert before.digest
    appending = best(lambda: ContextPack.from_utf8(grown, after=before).digest)
    assert appending < best(lambda: ContextPack.from_utf8(grown).digest) / 5


def test_the_benchmark_runs(root: Path) -> None:
    command = [sys.executable, str(root / "benchmarks" / "bench_ctxpack.py"), "--json", "--sizes", "4KB"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert {figure["size"] for figure in json.loads(done.stdout)["figures"]} == {"4KB"}
