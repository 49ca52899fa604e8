"""What must not grow: file descriptors and threads over turns (E17), memory and disk over sessions (E18); nor take long."""

import os
import resource
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from support.stores import KINDS, Clock, base, opened, owner, settled, sqlite_at, until

from gateway.stores import Bounds, MemoryStore, SqliteStore

SESSIONS = 50_000
MEGABYTE = 2**20


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("kind", KINDS)
async def test_e17_two_thousand_turns_leave_descriptors_and_threads_as_they_were(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        store.keep(owner(), "prepare", [base("first")])
        await settled(store)
        before = descriptors(), threading.active_count()
        for turn in range(2000):
            store.keep(owner(f"s{turn % 20}"), "prepare", [base(f"turn {turn} " * 50)])
            store.fetch("alice", [f"sha256:{turn}"])
            if turn % 100 == 0:
                await settled(store)
        assert (descriptors(), threading.active_count()) == before
    assert threading.active_count() <= before[1]


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def one_shot(store: MemoryStore | SqliteStore, number: int) -> None:
    store.keep(owner(f"session {number}", f"scope {number}"), "prepare", [base(f"request {number} " * 30)])


def test_e18_memory_is_flat_over_one_shot_sessions() -> None:
    store = MemoryStore(Bounds(sessions=2000, total_bytes=2 * MEGABYTE), Clock())
    for number in range(5000):
        one_shot(store, number)
    tracemalloc.start()
    for number in range(5000, 10_000):
        one_shot(store, number)
    level = tracemalloc.get_traced_memory()[0]
    for number in range(10_000, SESSIONS // 2):
        one_shot(store, number)
    grown = tracemalloc.get_traced_memory()[0] - level
    tracemalloc.stop()
    assert grown < 100_000
    assert store.sizes().sessions <= 2000


async def test_e18_memory_and_disk_are_flat_over_fifty_thousand_one_shot_sessions(tmp_path: Path) -> None:
    store = sqlite_at(tmp_path, Bounds(sessions=2000, total_bytes=2 * MEGABYTE))
    await store.open()
    levels = []
    for number in range(SESSIONS):
        one_shot(store, number)
        if number % 1000 == 999:
            await store.settled()
            levels.append((resident(), on_disk(tmp_path)))
    sizes = store.sizes()
    await store.close()
    assert sizes.sessions == 2000
    assert sizes.base_bytes <= 2 * MEGABYTE
    settled_memory, settled_disk = levels[len(levels) // 4]
    assert levels[-1][0] - settled_memory < 8 * MEGABYTE
    assert max(disk for _, disk in levels) < 1.5 * settled_disk
    assert on_disk(tmp_path) < 8 * MEGABYTE


async def test_disk_shrinks_when_sessions_expire(tmp_path: Path) -> None:
    clock = Clock()
    store = sqlite_at(tmp_path, Bounds(ttl=0.2), clock)
    await store.open()
    for number in range(500):
        store.keep(owner(f"s{number}"), "prepare", [base(f"{number} " * 2000)])
    await store.settled()
    full = on_disk(tmp_path)
    clock.now += 1
    deadline = time.monotonic() + 10
    while on_disk(tmp_path) > full / 8:
        assert time.monotonic() < deadline
        await store.settled()
    assert store.sizes().bases == 0
    await store.close()


def test_a_keep_that_would_evict_very_many_sessions_gives_up_in_bounded_time() -> None:
    store = MemoryStore(Bounds(total_bytes=100_000), Clock())
    for number in range(10_000):
        store.keep(owner(f"s{number}"), "prepare", [base(f"{number:010}")])
    assert store.sizes().sessions == 10_000
    attempts = 0
    while store.find("alice", base("x" * 90_000).names[0]) is None:
        held = store.sizes().sessions
        store.keep(owner("large"), "prepare", [base("x" * 90_000)])
        assert held - store.sizes().sessions <= 500
        assert store.sizes().base_bytes <= 100_000
        attempts += 1
    assert attempts > 1


def test_an_operation_expires_a_bounded_number_of_sessions() -> None:
    clock = Clock()
    store = MemoryStore(Bounds(ttl=10), clock)
    for number in range(1000):
        store.keep(owner(f"s{number}"), "prepare", [base("the same everywhere")])
    clock.now += 10
    assert store.find("alice", base("the same everywhere").names[0]) is None
    assert store.sizes().sessions >= 990
    while store.sweep(100):
        pass
    assert store.sizes().sessions == store.sizes().bases == 0


async def test_an_idle_store_sweeps_by_itself() -> None:
    store = MemoryStore(Bounds(ttl=0.05))
    store.keep(owner(), "prepare", [base("text")])
    await store.open()
    await until(lambda: store.sizes().sessions == 0)
    await store.close()
