"""The one thread that touches the disk.

Theory of operation. States, and what moves them:

    OPENING --opened--> WORKING --error--> FAILING --opened and a little written--> WORKING
       \\---error------------------------------/^                   any --stop--> ENDED

* a *busy* file (another process writes it) moves nothing: what is to be written waits, and is tried again; it is said when it
  takes long;
* a *damaged* file is moved aside and a new one made; what is to be written goes into the new one;
* anything else that fails (full, read-only, gone, some other program's file) closes the file and makes it FAILING: what is
  to be written is dropped and nothing new is taken until the disk works again, which is tried every second.

`trouble` says in words what is wrong, or is None; it, `sizes` and `state` are written here only and may be read by any thread.
Nothing is raised to anyone and each change is logged once. Callers hear of results by callback, on this thread.

This file must never know how bases are used, nor which of them are in memory.
"""

import contextlib
import enum
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.stores import ledger
from gateway.stores.bounds import Bounds
from gateway.stores.ledger import Ledger
from gateway.stores.mailbox import Mail, Mailbox
from gateway.stores.records import Kept, Remembered
from gateway.stores.sqlite_file import BUSY, Damaged, Foreign, SqliteFile, code_of, is_damage
from gateway.stores.trouble import in_words
from middleware.stores import StoreSizes

log = logging.getLogger("packhorse.store")

_WAITING_BYTES = 32 * 2**20
_TRANSACTION_BYTES = 4 * 2**20
_RECENT_BYTES = 32 * 2**20
_RECENT_SECONDS = 0.5
_TIDY_AFTER = 2.0
_PATIENCE = 1.0  # seconds that another process may write before it is said
_BUSY_PAUSE = 0.05
_DAMAGE_PAUSE = 10.0  # a file that is damaged again within this time is a disk that fails
_EXPIRE_AT_ONCE = 200
_LONGEST_SWEEP_INTERVAL = 30.0
_TROUBLES = (sqlite3.Error, OSError, Damaged, Foreign)

State = enum.Enum("State", "OPENING WORKING FAILING ENDED")


class DiskThread:
    """Owns the file from :meth:`start` to the end. ``clock`` is the store's, ``retry`` the seconds between attempts."""

    def __init__(self, path: Path, bounds: Bounds, clock: Callable[[], float], retry: float = 1.0) -> None:
        self.mail = Mailbox(_WAITING_BYTES)
        self.state = State.OPENING
        self.trouble: str | None = None
        self.sizes: StoreSizes | None = None
        self._path = path
        self._bounds = bounds
        self._clock = clock
        self._retry = retry
        self._file = SqliteFile(path, ledger.SCHEMA, ledger.VERSION)
        self._ledger: Ledger | None = None
        self._pending: list[Kept] = []
        self._settled: list[Callable[[], None]] = []
        self._expire_at = self._tidy_at = self._retry_at = 0.0
        self._busy_since = 0.0
        self._moved_at = -_DAMAGE_PAUSE
        self._untidy = False
        self._thread: threading.Thread | None = None

    def start(self, remembered: Callable[[Sequence[Remembered]], None], ended: Callable[[], None], memory: int) -> None:
        """Open the file, report the sessions used last (at most ``memory`` bytes), then serve the mailbox until stopped."""
        self._thread = threading.Thread(target=self._run, args=(remembered, ended, memory), name="packhorse-store", daemon=True)
        self._thread.start()

    def write(self, kept: Kept) -> None:
        """Hand over an exchange; dropped while the disk does not work."""
        if self.state in (State.OPENING, State.WORKING) and self.mail.put(kept):
            log.debug("the disk is slower than the traffic: an exchange was not written")

    def join(self, seconds: float) -> bool:
        """Wait for the end, after :meth:`Mailbox.stop`; False if it has not come by then."""
        if self._thread is not None:
            self._thread.join(seconds)
            return not self._thread.is_alive()
        return True

    # The thread

    def _run(self, remembered: Callable[[Sequence[Remembered]], None], ended: Callable[[], None], memory: int) -> None:
        try:
            remembered(self._begin(min(memory, _RECENT_BYTES)))
            while not self._serve(self.mail.take(self._pause(), exchanges=not self._pending)):
                pass
        except Exception:
            log.exception("a fault of the store's own: bases are in memory only")
            self.trouble = "bases are in memory only: a fault of the store's own, see the log"
        finally:
            self.state = State.ENDED
            self._close()
            for done in self._settled:
                done()
            ended()

    def _begin(self, memory: int) -> Sequence[Remembered]:
        try:
            self._open()
            assert self._ledger is not None
            return self._ledger.recent(self._clock(), memory, _RECENT_SECONDS)
        except _TROUBLES as error:
            self._meet(error)
            return ()

    def _serve(self, mail: Mail) -> bool:
        """Deal with what was taken; True when it is time to end."""
        self._pending += mail.kept
        self._settled += mail.settled
        try:
            self._ensure_open()
            if self._ledger is not None:
                self._work(self._ledger, mail)
        except _TROUBLES as error:
            self._meet(error)
        for _, done in mail.readings:
            done(())
        if not self._pending:
            for settle in self._settled:
                settle()
            self._settled.clear()
        return mail.stopping

    def _work(self, ledger: Ledger, mail: Mail) -> None:
        while mail.readings:
            wanted, done = mail.readings[0]
            found = ledger.read(wanted, self._clock())
            del mail.readings[0]
            done(found)
        touched = [(scope, name, used) for (scope, name), used in mail.touched.items()]
        while self._pending or touched:
            count = _how_many(self._pending, _TRANSACTION_BYTES)
            self.sizes = ledger.write(self._pending[:count], touched)
            del self._pending[:count]
            touched, self._untidy = [], True
        self._recovered()
        now = time.monotonic()
        if now >= self._expire_at:
            gone = ledger.expire(self._clock(), _EXPIRE_AT_ONCE)
            self._untidy = self._untidy or gone > 0
            self._expire_at = now if gone == _EXPIRE_AT_ONCE else now + min(self._bounds.ttl / 4, _LONGEST_SWEEP_INTERVAL)
            self.sizes = ledger.sizes()
        if self._untidy and (now >= self._tidy_at or self._settled or mail.stopping):
            self._untidy = not ledger.tidy()
            self._tidy_at = time.monotonic() + _TIDY_AFTER

    def _pause(self) -> float:
        """Seconds until there is something to do without mail."""
        now = time.monotonic()
        if self._ledger is None:
            return max(self._retry_at - now, _BUSY_PAUSE)
        if self._pending:
            return _BUSY_PAUSE
        due = min(self._expire_at, self._tidy_at) if self._untidy else self._expire_at
        return max(due - now, 0.0)

    # The file

    def _ensure_open(self) -> None:
        if self._ledger is not None and not self._file.in_place():
            log.warning("the store's file was moved or deleted: starting a new one at %s", self._path)
            self._close()
            self._retry_at = 0.0
        if self._ledger is None and time.monotonic() >= self._retry_at:
            self._open()

    def _open(self) -> None:
        try:
            self._opened(self._file.open())
        except (Damaged, sqlite3.Error) as error:
            if not is_damage(error):
                raise
            self._close()
            self._move_aside(error)
            self._opened(self._file.open())

    def _opened(self, connection: sqlite3.Connection) -> None:
        self._ledger = Ledger(connection, self._bounds)
        if self.state is State.FAILING:
            self._ledger.probe()
        self.sizes = self._ledger.sizes()
        self.state = State.WORKING
        self._recovered()

    def _close(self) -> None:
        if self._ledger is not None:
            with contextlib.suppress(sqlite3.Error):
                self._ledger.close()
            self._ledger = None

    def _move_aside(self, error: BaseException) -> None:
        self._moved_at = time.monotonic()
        aside = self._file.move_aside()
        if aside is not None:
            log.error("the store's file is damaged (%s): moved to %s, starting a new one", error, aside)

    # Trouble

    def _meet(self, error: BaseException) -> None:
        """Go on after an error: wait, start a new file, or do without the disk."""
        if isinstance(error, sqlite3.Error) and code_of(error) in BUSY and self.state is not State.FAILING:
            self._busy_since = self._busy_since or time.monotonic()
            if time.monotonic() - self._busy_since > _PATIENCE:
                self._say("bases are not written: another process keeps the store's file locked")
            return
        self._close()
        self._retry_at = time.monotonic() + self._retry
        if is_damage(error) and time.monotonic() > self._moved_at + _DAMAGE_PAUSE:
            try:
                self._move_aside(error)
                self._retry_at = 0.0
                return
            except OSError as cannot:
                error = cannot
        self.state = State.FAILING
        self._pending.clear()
        self._say(f"bases are in memory only: {in_words(error)} ({self._path})")

    def _say(self, words: str) -> None:
        if self.trouble != words:
            self.trouble = words
            log.warning("degraded: %s", words)

    def _recovered(self) -> None:
        self._busy_since = 0.0
        if self.trouble is not None:
            self.trouble = None
            log.info("the store works again: %s", self._path)


def _how_many(kept: Sequence[Kept], most: int) -> int:
    """How many of the first make ``most`` bytes; at least one."""
    size = 0
    for count, each in enumerate(kept):
        size += each.size
        if size > most:
            return max(count, 1)
    return len(kept)
