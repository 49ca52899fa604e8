"""What the gateway takes before it is of use to anyone: time until it is ready, memory idle and after many sessions."""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import servers
from benchmarks.jobs import Job
from benchmarks.processes import cpu_seconds, resident_bytes
from benchmarks.traffic import LoadProcess

_SETTLE = 1.0
"""Seconds between what was done and the look at memory."""
_AT_MOST = 60.0
"""Seconds that one half of the sessions may take."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of resident memory, and seconds."""

    ready: tuple[float, ...]
    """From exec to the first 200 of ``/readyz``, one a start."""
    ready_cpu: tuple[float, ...]
    """CPU time it had used by then: what the start would take on a machine that has nothing else to do."""
    idle: int
    """After a start, before any request."""
    sessions: int
    """How many one-shot sessions of an 8 KB document were served."""
    half: int
    """Resident memory after half of them."""
    after: int
    """And after all."""
    error: str = ""

    @property
    def ready_median(self) -> float:
        """Seconds."""
        return statistics.median(self.ready)

    @property
    def ready_cpu_median(self) -> float:
        """Seconds of CPU."""
        return statistics.median(self.ready_cpu)


def measure(starts: int, sessions: int, cores: tuple[int, int] | None, progress: Callable[[str], None]) -> Footprint:
    """Start it a few times, then serve ``sessions`` one-shot sessions with the last."""
    server_core, load_core = cores or (None, None)
    with tempfile.TemporaryDirectory(prefix="packhorse-bench-") as made:
        folder = Path(made)
        times, cpu = [], []
        with servers.upstream(folder, load_core) as behind:
            port = behind.ports["direct"]
            for number in range(1, starts):
                begun = time.perf_counter()
                with servers.packhorse(folder, server_core, port) as gateway:
                    times.append(time.perf_counter() - begun)
                    cpu.append(cpu_seconds(gateway.pids))
                progress(f"start {number}")
            begun = time.perf_counter()
            with servers.packhorse(folder, server_core, port) as gateway, LoadProcess(folder, load_core) as load:
                times.append(time.perf_counter() - begun)
                cpu.append(cpu_seconds(gateway.pids))
                time.sleep(_SETTLE)
                idle = resident_bytes(gateway.pid)
                progress(f"start {starts}")
                sizes, error = [], ""
                for half in ("first", "second"):
                    job = Job(gateway.ports["packhorse"], "8", 16, 0.0, _AT_MOST, half, requests=sessions // 2)
                    found = load.do(job)
                    if found.requests < sessions // 2:
                        error = error or found.error or f"only {found.requests} of {sessions // 2} sessions in {_AT_MOST:g} s"
                    time.sleep(_SETTLE)
                    sizes.append(resident_bytes(gateway.pid))
                    progress(f"{half} half of the sessions")
    return Footprint(tuple(times), tuple(cpu), idle, sessions, sizes[0], sizes[1], error)
