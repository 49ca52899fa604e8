"""What waits for the disk thread.

Theory of operation. The event loop puts, the disk thread takes; a put never waits and the box never holds more than its bytes:
the oldest exchange not yet taken makes way for the newest (it costs bytes later, never correctness). Exchanges are let gather
for a moment, so that one transaction writes many; everything else is *urgent* and is taken at once. The thread is woken only
when it waits for anything at all, or for something urgent, because waking it costs the event loop.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gateway.stores.records import Found, Kept, Wanted

Reading = tuple[Wanted, Callable[[Sequence[Found]], None]]

_GATHER = 0.05  # seconds
_ENOUGH = 2**20  # bytes that are worth a transaction of their own
_MOST_READINGS = 64
_MOST_TOUCHES = 10_000


@dataclass(slots=True)
class Mail:
    """What was taken at one time."""

    kept: list[Kept] = field(default_factory=list)
    touched: dict[tuple[str, str], float] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    settled: list[Callable[[], None]] = field(default_factory=list)
    stopping: bool = False


class Mailbox:
    """A bounded box between two threads. ``most`` is bytes of content; one exchange always fits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._kept: deque[Kept] = deque()
        self._bytes = 0
        self._touched: dict[tuple[str, str], float] = {}
        self._readings: list[Reading] = []
        self._settled: list[Callable[[], None]] = []
        self._stopping = False
        self._waits_for_any = False

    def put(self, kept: Kept) -> int:
        """An exchange to write. Returns how many older ones made way."""
        dropped = 0
        with self._changed:
            self._kept.append(kept)
            self._bytes += kept.size
            while self._bytes > self._most and len(self._kept) > 1:
                self._bytes -= self._kept.popleft().size
                dropped += 1
            if self._waits_for_any or self._bytes >= _ENOUGH:
                self._changed.notify()
        return dropped

    def touch(self, scope: str, session: str, used: float) -> None:
        """A session was used at that time. Written with the next exchange."""
        with self._changed:
            if len(self._touched) < _MOST_TOUCHES:
                self._touched[scope, session] = used
                if self._waits_for_any:
                    self._changed.notify()

    def read(self, reading: Reading) -> bool:
        """Names to look for. False, and nothing done, when too many wait already."""
        with self._changed:
            if len(self._readings) >= _MOST_READINGS:
                return False
            self._readings.append(reading)
            self._changed.notify()
        return True

    def settle(self, done: Callable[[], None]) -> None:
        """Have ``done`` called, by the thread, when all that was put before was dealt with."""
        with self._changed:
            self._settled.append(done)
            self._changed.notify()

    def stop(self) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def take(self, timeout: float, *, exchanges: bool = True) -> Mail:
        """What is there, after at most ``timeout`` seconds; without the ``exchanges`` while earlier ones are not written."""
        with self._changed:
            self._waits_for_any = exchanges
            self._changed.wait_for(lambda: self._urgent() or (exchanges and bool(self._kept or self._touched)), timeout)
            self._waits_for_any = False
            if exchanges and self._kept:
                self._changed.wait_for(lambda: self._urgent() or self._bytes >= _ENOUGH, _GATHER)
            mail = Mail(readings=self._readings, settled=self._settled, stopping=self._stopping)
            self._readings, self._settled = [], []
            if exchanges:
                mail.kept, mail.touched = list(self._kept), self._touched
                self._kept.clear()
                self._touched = {}
                self._bytes = 0
        return mail

    def _urgent(self) -> bool:
        return bool(self._readings or self._settled or self._stopping)
