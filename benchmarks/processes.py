"""Processes as Linux sees them: CPU time, memory, children, cores."""

import os
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def cpu_seconds(pids: Iterable[int], *, main_only: bool = False) -> float:
    """CPU time that all threads of these processes, or their main ones, have used so far; what has ended counts as nothing."""
    total = 0
    for pid in pids:
        try:
            for task in (str(pid),) if main_only else os.listdir(_PROC / str(pid) / "task"):
                total += int((_PROC / str(pid) / "task" / task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has no VmRSS")


def family(pid: int) -> tuple[int, ...]:
    """A process and its children (nginx works in a child)."""
    children = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if parent == str(pid):
                children.append(int(entry.name))
    return (pid, *children)


def cores() -> list[int]:
    """The cores this process may use."""
    return sorted(os.sched_getaffinity(0))


def two_cores() -> tuple[int, int] | None:
    """The core for the server and the one for load and upstream; None where there is but one."""
    found = cores()
    return (found[0], found[1]) if len(found) > 1 else None
