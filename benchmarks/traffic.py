"""Latency and throughput: every peer in turn, round after round, and the medians of the rounds."""

import contextlib
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.jobs import Found, Job
from benchmarks.servers import ROOT, Server

PEERS = ("direct", "nginx", "nginx gzip 1", "nginx gzip 6", "bare aiohttp", "packhorse passing", "packhorse")
"""In the order of the tables. ``packhorse passing``: the client says its link is normal."""
CONNECTIONS = (1, 16)
_SPEND = 1.0
"""Seconds of further warm-up for packhorse: its comparison with gzip saves up to half a second of CPU while it idles, and
would spend it within the window, where steady traffic gives it a tenth."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long it all takes: rounds, and the seconds of one window before and while it is measured."""

    rounds: int
    warm: float
    seconds: float


@dataclass(slots=True)
class Cell:
    """One peer with one size and number of connections: its windows, one a round."""

    peer: str
    size: str
    connections: int
    windows: list[Found] = field(default_factory=list)

    def median(self, read: Callable[[Found], float]) -> float:
        """The median of the rounds."""
        return statistics.median(map(read, self.windows)) if self.windows else float("nan")

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        names = ("p50_ms", "p95_ms", "rate", "server_cpu_ms", "server_main_ms", "server_busy", "load_busy", "body_bytes")
        medians = {name: self.median(lambda found, name=name: getattr(found, name)) for name in names}  # type: ignore[misc]
        counts = {name: sum(getattr(found, name) for found in self.windows) for name in ("requests", "deltas", "verified")}
        rounds = [{"p50_ms": each.p50_ms, "p95_ms": each.p95_ms, "rate": each.rate} for each in self.windows]
        return {"peer": self.peer, "size": self.size, "connections": self.connections, **medians, **counts, "rounds": rounds}


class Traffic:
    """The cells of one run."""

    def __init__(self, sizes: Sequence[str], skipped: dict[str, str]) -> None:
        self.cells = {
            (peer, size, count): Cell(peer, size, count)
            for size in sizes
            for count in CONNECTIONS
            for peer in PEERS
            if peer not in skipped
        }
        self.skipped = skipped
        """Peers that could not be measured, and why."""
        self.errors: list[str] = []

    def cell(self, peer: str, size: str, connections: int) -> Cell | None:
        """A cell, if it was measured."""
        found = self.cells.get((peer, size, connections))
        return found if found is not None and found.windows else None

    def added(self, cell: Cell, read: Callable[[Found], float]) -> float:
        """The median of what a peer added to direct in the same round, in the unit of ``read``."""
        direct = self.cells["direct", cell.size, cell.connections].windows
        pairs = zip(cell.windows, direct, strict=False)
        return statistics.median([read(own) - read(other) for own, other in pairs] or [float("nan")])

    def ratio(self, one: str, other: str, size: str, connections: int) -> float:
        """The median over the rounds of the quotient of two peers' rates."""
        first, second = self.cell(one, size, connections), self.cell(other, size, connections)
        if first is None or second is None:
            return float("nan")
        pairs = zip(first.windows, second.windows, strict=False)
        return statistics.median([a.rate / b.rate for a, b in pairs if b.rate] or [float("nan")])


class LoadProcess:
    """The process that makes the load."""

    def __init__(self, folder: Path, core: int | None) -> None:
        self._folder, self._core = folder, core

    def __enter__(self) -> "LoadProcess":
        command = [sys.executable, "-m", "benchmarks.load"]
        if self._core is not None:
            command = ["taskset", "-c", str(self._core), *command]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def do(self, job: Job) -> Found:
        """One window. A process that does not answer is a failed window, not a hang."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job.line() + "\n")
        readable, _, _ = select.select([process.stdout], [], [], job.warm + job.seconds + 20)
        line = process.stdout.readline() if readable else ""
        return Found.read(line) if line else Found(error="the load process did not answer")


@contextlib.contextmanager
def everyone(server_core: int | None, load_core: int | None) -> Iterator[tuple[dict[str, Server], dict[str, str], LoadProcess]]:
    """All servers up at once (idle ones cost nothing), those that are not there with the reason, and the load."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="packhorse-bench-")))
        behind = stack.enter_context(servers.upstream(folder, load_core))
        up, skipped = dict.fromkeys(behind.ports, behind), {}
        port = behind.ports["direct"]
        for names, start in (
            (PEERS[1:4], servers.nginx), (PEERS[4:5], servers.bare_proxy), (PEERS[5:], servers.packhorse),
        ):  # fmt: skip
            try:
                up.update(dict.fromkeys(names, stack.enter_context(start(folder, server_core, port))))
            except (servers.CannotStart, OSError) as error:
                skipped.update(dict.fromkeys(names, str(error)))
        yield up, skipped, stack.enter_context(LoadProcess(folder, load_core))


def measure(sizes: Sequence[str], pace: Pace, cores: tuple[int, int] | None, progress: Callable[[str], None]) -> Traffic:
    """All cells, interleaved: a round goes through all peers before the next begins. ``progress`` is told of each window."""
    server_core, load_core = cores or (None, None)
    with everyone(server_core, load_core) as (up, skipped, load):
        traffic = Traffic(sizes, skipped)
        for number in range(pace.rounds):
            for (peer, size, connections), cell in _order(traffic, number):
                server = up[peer]
                job = Job(
                    port=server.ports[peer], size=size, connections=connections,
                    warm=pace.warm + (_SPEND if peer == "packhorse" else 0.0), seconds=pace.seconds,
                    name=f"r{number}.{size}.{connections}.{peer.replace(' ', '-')}", normal_link=peer == "packhorse passing",
                    pids=server.pids, load_pids=() if peer == "direct" else up["direct"].pids,
                )  # fmt: skip
                found = load.do(job)
                if found.error:
                    traffic.errors.append(f"{peer}, {size} KB, {connections} connections, round {number + 1}: {found.error}")
                else:
                    cell.windows.append(found)
                progress(f"round {number + 1}: {peer}, {size} KB, {connections} at once")
    return traffic


def _order(traffic: Traffic, number: int) -> Iterator[tuple[tuple[str, str, int], Cell]]:
    """Every second round backwards, so that no peer always comes after the same one."""
    items = list(traffic.cells.items())
    yield from items if number % 2 == 0 else reversed(items)
