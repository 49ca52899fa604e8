"""What the gateway set out to reach, beside what this run measured. Nothing is asserted: a table says yes or no."""

import math
from dataclasses import dataclass

from benchmarks.footprint import Footprint
from benchmarks.traffic import Traffic

_SIZE = "32"
_MOST = 16


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table; ``measured`` and ``reached`` are words, ``unknown`` where the run did not measure it."""

    what: str
    target: str
    measured: str
    reached: str
    value: float


def targets(traffic: Traffic | None, footprint: Footprint | None) -> list[Target]:
    """All of them, in the order they were set."""
    return [*(_of_traffic(traffic) if traffic is not None else ()), *(_of_footprint(footprint) if footprint else ())]


def _of_traffic(traffic: Traffic) -> list[Target]:
    alone, many = (traffic.cell("packhorse", _SIZE, count) for count in (1, _MOST))
    gzip6 = traffic.cell("nginx gzip 6", _SIZE, _MOST)
    added = traffic.added(alone, lambda found: found.p50_ms) if alone else math.nan
    rate = many.median(lambda found: found.rate) if many else math.nan
    core = _per_core(many.median(lambda found: found.server_cpu_ms)) if many else math.nan
    loop = _per_core(many.median(lambda found: found.server_main_ms)) if many else math.nan
    times = traffic.ratio("packhorse", "nginx gzip 6", _SIZE, _MOST)
    both = many is not None and gzip6 is not None
    own, others = (cell.median(lambda found: found.server_cpu_ms) if cell else math.nan for cell in (many, gzip6))
    cost = others / own if both and own else math.nan
    return [
        _line("added p50 at 32 KB, deltas on, 1 connection", "at most 1.5 ms", f"{added:.2f} ms", added, added <= 1.5),
        _line("requests/s at 32 KB, deltas on, 16 connections", "at least 1,800", f"{rate:,.0f}", rate, rate >= 1800),
        _line("the same for each second of CPU it used", "(1,800)", f"{core:,.0f}", core, core >= 1800),
        _line("the same for each second of its event loop", "(1,800)", f"{loop:,.0f}", loop, loop >= 1800),
        _line("the rate beside nginx with gzip 6, same round", "at least 2.0 times", f"{times:.2f} times", times, times >= 2.0),
        _line("the same in CPU for each request", "(2.0 times)", f"{cost:.2f} times", cost, cost >= 2.0),
    ]


def _of_footprint(footprint: Footprint) -> list[Target]:
    idle, ready, cpu = footprint.idle / 1e6, footprint.ready_median, footprint.ready_cpu_median
    return [
        _line("resident memory, idle", "under 80 MB", f"{idle:.1f} MB", idle, idle < 80),
        _line("from exec to ready", "within 1 s", f"{ready:.2f} s", ready, ready <= 1.0),
        _line("CPU it had used by then", "(1 s)", f"{cpu:.2f} s", cpu, cpu <= 1.0),
    ]


def _per_core(milliseconds: float) -> float:
    return 1000 / milliseconds if milliseconds else math.nan


def _line(what: str, target: str, measured: str, value: float, reached: bool) -> Target:
    if math.isnan(value):
        return Target(what, target, "not measured", "unknown", value)
    return Target(what, target, measured, "yes" if reached else "no", value)
