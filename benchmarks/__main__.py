"""``python -m benchmarks``: measure, print the tables, and say which targets were reached. See README.md for how to read them."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import corpora, footprint, forms, report, servers, traffic
from benchmarks.documents import SIZES
from benchmarks.processes import two_cores
from benchmarks.targets import targets
from benchmarks.traffic import Pace

PARTS = ("traffic", "footprint", "forms", "ctxpack")
_FULL, _QUICK = Pace(rounds=5, warm=0.15, seconds=0.8), Pace(rounds=2, warm=0.1, seconds=0.3)
_TWO_CORES = "Server under test on one core, load and upstream on another."
_ONE_CORE = "One core only: server, load and upstream share it, so figures are not comparable with those of other machines."
_WIDTH = 120
"""Least width of the tables; a narrower terminal folds them."""


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Packhorse beside what people use instead.")
    parser.add_argument("--quick", action="store_true", help="about a minute: fewer and shorter rounds, a part of the corpora")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything there")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="NAME", help=f"one of {', '.join(PARTS)}; repeatable")
    parser.add_argument("--size", action="append", choices=list(SIZES), help="sizes of the traffic, in KB; repeatable")
    return parser.parse_args()


@contextmanager
def steps(console: Console, title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; else a line at the beginning, so that a log stays short."""
    if not console.is_terminal:
        console.print(f"{title} ...")
        yield lambda _step: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda step: progress.update(task, advance=1, description=f"{title}: {step}")


def main() -> int:
    """Exit 0 when everything asked for was measured, 1 where a server of ours could not be started, 2 for misuse."""
    options = arguments()
    out, bars = Console(), Console(stderr=True)
    out.width = max(out.width, _WIDTH)
    parts = options.only or [part for part in PARTS if part != "ctxpack"]
    cores = two_cores()
    if "traffic" in parts or "footprint" in parts:
        out.print(_TWO_CORES if cores else _ONE_CORE)
    sizes = options.size or list(SIZES)
    pace = _QUICK if options.quick else _FULL
    try:
        found_traffic = _traffic(out, bars, sizes, pace, cores) if "traffic" in parts else None
        found_footprint = _footprint(out, bars, options.quick, cores) if "footprint" in parts else None
    except servers.CannotStart as error:
        sys.stderr.write(f"benchmarks: a server did not start: {error}\n")
        return 1
    sums = _forms(out, bars, options.quick) if "forms" in parts else None
    if "ctxpack" in parts:
        subprocess.run([sys.executable, str(Path(__file__).with_name("bench_ctxpack.py"))], check=False, timeout=300)
    reached = targets(found_traffic, found_footprint)
    if reached:
        report.print_targets(out, reached)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        document = report.as_json(found_traffic, found_footprint, sums, reached)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _traffic(out: Console, bars: Console, sizes: list[str], pace: Pace, cores: tuple[int, int] | None) -> traffic.Traffic:
    total = pace.rounds * len(sizes) * len(traffic.CONNECTIONS) * len(traffic.PEERS)
    with steps(bars, "traffic", total) as progress:
        found = traffic.measure(sizes, pace, cores, progress)
    report.print_traffic(out, found)
    return found


def _footprint(out: Console, bars: Console, quick: bool, cores: tuple[int, int] | None) -> footprint.Footprint:
    starts, sessions = (3, 4_000) if quick else (5, 10_000)
    with steps(bars, "start and memory", starts + 2) as progress:
        found = footprint.measure(starts, sessions, cores, progress)
    report.print_footprint(out, found)
    return found


def _forms(out: Console, bars: Console, quick: bool) -> dict[str, forms.Sums]:
    documents = corpora.documents(quick)
    with steps(bars, "bytes of each form", len(documents)) as progress:
        sums = forms.measure(documents, progress)
    source = "the project's test corpora" if corpora.folder() else "the samples the project ships (no corpora were found)"
    report.print_forms(out, sums, source + (", every fourth document" if quick and corpora.folder() else ""))
    return sums


if __name__ == "__main__":
    sys.exit(main())
