"""What the store tests share: a clock that is moved by hand, bases named by their hash, and stores of each kind."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.stores import Bounds, MemoryStore, SqliteStore
from middleware.stores import Base, BaseStore, Owner

KINDS = ("memory", "sqlite")


class Clock:
    """Seconds, moved by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def base(text: str, *further: str) -> Base:
    """A base of that text, named by its hash and by further names."""
    content = text.encode()
    return Base(content, (name_of(content), *further))


def name_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def owner(session: str = "s", scope: str = "alice") -> Owner:
    return Owner(scope, session)


@asynccontextmanager
async def opened(
    kind: str, folder: Path, bounds: Bounds | None = None, clock: Callable[[], float] | None = None
) -> AsyncIterator[BaseStore]:
    """A store of that kind, open; closed at the end."""
    store: BaseStore
    if kind == "memory":
        store = MemoryStore(bounds or Bounds(), clock or time.monotonic)
    else:
        store = sqlite_at(folder, bounds, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def sqlite_at(folder: Path, bounds: Bounds | None = None, clock: Callable[[], float] | None = None) -> SqliteStore:
    """A store on ``folder/bases.sqlite3`` that tries a failed disk again after 50 ms."""
    return SqliteStore(folder / "bases.sqlite3", bounds or Bounds(), 64 * 2**20, clock=clock or time.time, retry=0.05)


async def settled(store: BaseStore) -> None:
    """Wait until what was kept is also on the disk, where there is one."""
    if isinstance(store, SqliteStore):
        await store.settled()


async def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something another thread or process does; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)
