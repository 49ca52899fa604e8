"""The tables of a run, for a terminal or for a file, and the same as JSON."""

import math
import os
import platform
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.footprint import Footprint
from benchmarks.forms import FORMS, Sums
from benchmarks.targets import Target
from benchmarks.traffic import CONNECTIONS, PEERS, Cell, Traffic

_QUIET = 0.85
"""A server at 16 connections that had its core for less than this share of the window was kept from it by others."""


def _table(console: Console, title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII2)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def print_traffic(console: Console, traffic: Traffic) -> None:
    """A table for each size: the medians of the rounds."""
    few, many = CONNECTIONS
    for size in dict.fromkeys(cell.size for cell in traffic.cells.values()):
        one = _table(console, f"{size} KB, {few} connection (ms)", "peer", "p50", "added", "p95", "added", "req/s", "CPU ms")
        table = _table(
            console, f"{size} KB, {many} connections (ms)",
            "peer", "p50", "p95", "req/s", "x gzip 6", "CPU ms", "loop ms", "req/CPU s", "body bytes", "deltas",
        )  # fmt: skip
        for peer in PEERS:
            if (cell := traffic.cell(peer, size, few)) is not None:
                one.add_row(peer, *_alone(traffic, cell))
            if (cell := traffic.cell(peer, size, many)) is not None:
                table.add_row(peer, *_many(traffic, cell))
        console.print(one)
        console.print(table)
    for peer, why in traffic.skipped.items():
        console.print(f"not measured: {peer}: {why}")
    for error in traffic.errors:
        console.print(f"a window was left out: {error}")
    verified = sum(found.verified for cell in traffic.cells.values() for found in cell.windows)
    console.print(f"{verified:,} sampled bodies were rebuilt and are byte for byte what the upstream sent.")
    busy = [cell.median(lambda found: found.server_busy) for cell in _busy_cells(traffic)]
    if busy and min(busy) < _QUIET:
        console.print(
            f"Others used this machine: of its core a server had as little as {min(busy):.0%}. Compare req/CPU s, not req/s."
        )
    console.print()


def _busy_cells(traffic: Traffic) -> list[Cell]:
    """Those that can fill a core: the generator is faster than they are."""
    peers = ("packhorse", "packhorse passing", "bare aiohttp", "nginx gzip 6")
    cells = (traffic.cell(peer, size, CONNECTIONS[1]) for peer in peers for size in ("8", "32"))
    return [cell for cell in cells if cell is not None]


def _alone(traffic: Traffic, cell: Cell) -> list[str]:
    direct = cell.peer == "direct"
    added = [traffic.added(cell, read) for read in (lambda found: found.p50_ms, lambda found: found.p95_ms)]
    first, second = ("", "") if direct else (f"{added[0]:.2f}", f"{added[1]:.2f}")
    p50, p95 = cell.median(lambda found: found.p50_ms), cell.median(lambda found: found.p95_ms)
    rate, cpu = cell.median(lambda found: found.rate), cell.median(lambda found: found.server_cpu_ms)
    return [f"{p50:.2f}", first, f"{p95:.2f}", second, f"{rate:,.0f}", f"{cpu:.3f}"]


def _many(traffic: Traffic, cell: Cell) -> list[str]:
    cpu = cell.median(lambda found: found.server_cpu_ms)
    times = traffic.ratio(cell.peer, "nginx gzip 6", cell.size, cell.connections)
    share = sum(found.deltas for found in cell.windows) / max(1, sum(found.requests for found in cell.windows))
    return [
        f"{cell.median(lambda found: found.p50_ms):.2f}",
        f"{cell.median(lambda found: found.p95_ms):.2f}",
        f"{cell.median(lambda found: found.rate):,.0f}",
        "" if math.isnan(times) else f"{times:.2f}",
        f"{cpu:.3f}",
        f"{cell.median(lambda found: found.server_main_ms):.3f}",
        f"{1000 / cpu:,.0f}" if cpu else "",
        f"{cell.median(lambda found: found.body_bytes):,.0f}",
        f"{share:.0%}" if share else "",
    ]


def print_footprint(console: Console, footprint: Footprint) -> None:
    """Memory and start."""
    table = _table(console, "Packhorse: start and memory", "what", "measured")
    starts = f"{min(footprint.ready):.2f} to {max(footprint.ready):.2f} s over {len(footprint.ready)} starts"
    table.add_row("from exec to ready, median", f"{footprint.ready_median:.2f} s ({starts})")
    table.add_row("CPU used by then, median", f"{footprint.ready_cpu_median:.2f} s")
    table.add_row("resident, idle", f"{footprint.idle / 1e6:.1f} MB")
    half = footprint.sessions // 2
    table.add_row(f"resident after {half:,} one-shot sessions of 8 KB", f"{footprint.half / 1e6:.1f} MB")
    table.add_row(f"resident after {footprint.sessions:,}", f"{footprint.after / 1e6:.1f} MB")
    console.print(table)
    if footprint.error:
        console.print(f"the sessions are not all there: {footprint.error}")
    console.print()


def print_forms(console: Console, sums: dict[str, Sums], source: str) -> None:
    """Bytes of each form, and the share of raw."""
    heads = [f"{kind}\ndocuments: {each.documents}\nturns: {each.turns:,}" for kind, each in sums.items()]
    table = _table(console, f"Bytes of all turns, from {source}", "form", *heads)
    for form, label in FORMS.items():
        cells = [f"{each.sizes[form]:,} {each.sizes[form] / max(1, each.sizes['raw']):7.2%}" for each in sums.values()]
        table.add_row(label, *cells)
    console.print(table)
    console.print("Deltas are against the turn before; the first turn of a document has none and goes plain (or as gzip).")
    console.print()


def print_targets(console: Console, targets: list[Target]) -> None:
    """What was set out for, and whether it was reached in this run."""
    table = _table(console, "Targets", "what", "target", "measured", "reached")
    for target in targets:
        table.add_row(target.what, target.target, target.measured, target.reached)
    console.print(table)


def machine() -> dict[str, Any]:
    """Where it ran."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
    }


def as_json(
    traffic: Traffic | None, footprint: Footprint | None, sums: dict[str, Sums] | None, targets: list[Target]
) -> dict[str, Any]:
    """Everything, the single rounds too."""
    document: dict[str, Any] = {"machine": machine()}
    if traffic is not None:
        document["traffic"] = [cell.summary() for cell in traffic.cells.values() if cell.windows]
        document["skipped"], document["errors"] = traffic.skipped, traffic.errors
    if footprint is not None:
        document["footprint"] = asdict(footprint)
    if sums is not None:
        document["forms"] = {kind: asdict(each) for kind, each in sums.items()}
    document["targets"] = [_finite(asdict(target)) for target in targets]
    return document


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """NaN is no JSON."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in fields.items()}
