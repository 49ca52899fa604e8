"""Bases that survive a restart: a bounded memory in front of a SQLite file.

Theory of operation. What was used lately is in memory (`hot`, a :class:`MemoryStore` of its own bounds), and only that is ever
found. What is kept goes into memory at once and to the disk thread's mailbox, which writes it behind. At a start the sessions
used last are read back, for half a second and 32 MiB at most. A name that memory lacks can be fetched: the thread looks for it
and what it finds enters memory as an exchange of its session, on a route of its own, in time for this answer or the next. There
is no index of the disk in memory: it would cost more than it tells, and be wrong where several processes share the file.

A disk that fails costs bytes after a restart and nothing else. This file must never wait for it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.stores.bounds import Bounds, fitting
from gateway.stores.disk_thread import DiskThread, State
from gateway.stores.memory import MemoryStore
from gateway.stores.records import Found, Kept, Remembered, Wanted
from middleware.stores import Base, Lookup, Owner, SessionSummary, StoreSizes

_FETCHED = ""  # the route of what came from disk: no configured route has this name
_OPEN_WITHIN = 1.5  # seconds a start waits for what is remembered; later, it is taken when it comes
_CLOSE_WITHIN = 5.0


class SqliteStore:
    """A :class:`middleware.stores.BaseStore`. ``memory`` is bytes of content; ``clock`` gives seconds that outlive a restart."""

    kind = "sqlite"

    def __init__(
        self, path: Path, bounds: Bounds, memory: int, *, clock: Callable[[], float] = time.time, retry: float = 1.0
    ) -> None:
        self._clock = clock
        self._within = bounds.within(memory)
        self._hot = MemoryStore(self._within, clock, on_use=self._used)
        self._disk = DiskThread(path, bounds, clock, retry)
        self._reading: set[tuple[str, str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._disk.state.name.lower()} hot={self._hot!r}>"

    # Asking

    def find(self, scope: str, name: str) -> Base | None:
        """The base of that name in that scope if it is in memory, and counts as a use of its session."""
        return self._hot.find(scope, name)

    def lookup(self, scope: str, name: str) -> Lookup:
        """``hit`` where :meth:`find` would find it: what only the disk holds is not a hit until it was fetched."""
        return self._hot.lookup(scope, name)

    def fetch(self, scope: str, names: Sequence[str]) -> None:
        """Start to load. ``names`` come best first; none behind one that is in memory is worth the disk's time."""
        if self._loop is None or self._disk.state is not State.WORKING:
            return
        missing = []
        for name in names:
            if self._hot.lookup(scope, name) == "hit":
                break
            if (scope, name) not in self._reading:
                missing.append(name)
        if not missing:
            return
        wanted = Wanted(scope, tuple(missing))
        if self._disk.mail.read((wanted, lambda found: self._post(self._arrived, wanted, found))):
            self._reading.update((scope, name) for name in missing)

    def sizes(self) -> StoreSizes:
        """What the file held after the last write, whoever wrote it; what memory holds where there is no file."""
        return self._disk.sizes if self._disk.sizes is not None else self._hot.sizes()

    def sessions(self, limit: int) -> list[SessionSummary]:
        """The most recently used sessions, newest first, with what of theirs is in memory."""
        return self._hot.sessions(limit)

    def degraded(self) -> str | None:
        """What is wrong with the disk, or None."""
        return self._disk.trouble

    # Keeping

    def keep(self, owner: Owner, route: str, bases: Sequence[Base]) -> None:
        """Into memory now, to the disk in a moment. What does not fit into memory is not written either."""
        bases = fitting(bases, self._within.session_bytes)
        self._hot.keep(owner, route, bases)
        if bases and self._loop is not None:
            self._disk.write(Kept(owner, route, self._clock(), bases))

    # Starting and ending

    async def open(self) -> None:
        """Start the disk thread and take in what it remembers. Never raises for a disk; waits for one a second and a half."""
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        await self._hot.open()
        known = self._loop.create_future()
        self._disk.start(
            lambda remembered: self._post(self._remember, known, remembered),
            lambda: self._post(_resolve, self._ended),
            self._within.total_bytes,
        )
        await asyncio.wait((known,), timeout=_OPEN_WITHIN)

    async def settled(self) -> None:
        """Wait until what was kept so far is written (or given up), and what was deleted is gone from the file."""
        if self._loop is not None and self._disk.state is not State.ENDED:
            done = self._loop.create_future()
            self._disk.mail.settle(lambda: self._post(_resolve, done))
            await asyncio.wait((done, self._ended), return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]

    async def close(self) -> None:
        """Write what waits, for five seconds at most, and let go of the file and of memory."""
        if self._ended is not None:
            self._disk.mail.stop()
            await asyncio.wait((self._ended,), timeout=_CLOSE_WITHIN)
            self._disk.join(0.1)
        self._loop = self._ended = None
        await self._hot.close()

    # From the disk thread

    def _post(self, call: Callable[..., None], *arguments: object) -> None:
        """Have the event loop call; on the disk thread. A loop that has ended needs no answer."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *arguments)

    def _remember(self, known: "asyncio.Future[None]", remembered: Sequence[Remembered]) -> None:
        for session in remembered:
            if not self._hot.restore(session.owner, session.used, session.exchanges):
                break
        _resolve(known)

    def _arrived(self, wanted: Wanted, found: Sequence[Found]) -> None:
        self._reading.difference_update((wanted.scope, name) for name in wanted.names)
        for each in found:
            new = [base for base in each.bases if self._hot.lookup(wanted.scope, base.names[0]) != "hit"]
            if new:
                self._hot.keep(each.owner, _FETCHED, new)

    def _used(self, scope: str, session: str) -> None:
        self._disk.mail.touch(scope, session, self._clock())


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
