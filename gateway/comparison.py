"""What gzip would have sent, measured after the response within a budget of CPU time.

Theory of operation. :meth:`GzipComparison.offer` is called with a body that has been sent, and returns at once with one of
three ends for it, each told exactly once to one of two callbacks:

    compared   its three sizes go to ``on_result`` together, so that the three series always speak of the same bodies
    skipped    one word of a fixed set goes to ``on_skip``: what was not compared is counted, never guessed
    queued     the worker thread takes it, and it ends as one of the above

A size that is already known (the gateway made gzip itself, at this level) is compared at once and costs nothing. The rest wait
in a queue bounded by count and bytes for the one worker thread, which is started with the first of them.

The budget is a token bucket of CPU seconds: it fills with ``cpu_share`` a second up to ``BURST`` seconds' worth, is charged
with the thread's own CPU time (time.thread_time) after each body, and may be overdrawn by one body, whose debt then has to
refill before the next. Over any span of T seconds the worker so uses at most ``cpu_share * (T + BURST)`` and one body. zlib
lets go of the interpreter's lock while it works, so the traffic runs on; bodies are fed in pieces, so that
:meth:`GzipComparison.close` is heard within a piece.

A skipped body is in none of the three series: their ratios are those of a sample, and the count of skipped ones says how large
the rest is. When the budget is spent the sample leans towards bodies whose gzip size was known, which are those that deltas did
not make very small: it then shows the gateway as worse than it is, never as better.

It knows nothing of requests, links or codings, and never changes what is sent.
"""

import os
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

TOO_LARGE = 16 * 2**20
"""Bytes. Larger bodies are not compared: one of them would spend the budget of seconds."""
QUEUE_BYTES = 32 * 2**20
"""Most bytes of bodies that wait."""
QUEUE_COUNT = 256
"""Most bodies that wait."""
BURST = 5.0
"""Seconds of ``cpu_share`` that may be saved up while there is little to compare."""
_PIECE = 256 * 2**10
_GZIP = 31
"""zlib's window bits for a gzip header and trailer around the largest window."""

OnResult = Callable[[str, str, int, int, int], None]
"""Route, direction, and the body's sizes in bytes: as it was, as it was sent, as gzip would have sent it."""
OnSkip = Callable[[str, str], None]
"""Route, and why: one of ``gateway.metric_table.SKIPS``."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    route: str
    direction: str
    original: bytes
    sent: int


class GzipComparison:
    """Compares bodies with gzip. The callbacks come from the caller's thread or from the worker's, and must not raise."""

    def __init__(
        self,
        level: int,
        cpu_share: float,
        on_result: OnResult,
        on_skip: OnSkip,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """``level`` 1 to 9; ``cpu_share`` of one core, 0 to 1; ``clock`` in seconds, ``cpu_clock`` of the worker's thread."""
        self._level = level
        self._on_result = on_result
        self._on_skip = on_skip
        self._cpu_clock = cpu_clock
        self._budget = _Budget(cpu_share, clock)
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._closing = False
        self._working = False
        self._worker: threading.Thread | None = None

    def offer(self, route: str, direction: str, original: bytes, sent: int, gzip: int | None) -> None:
        """Compare a body that was sent in ``sent`` bytes. ``gzip``: its size at this level, if known. Never waits."""
        if gzip is not None:
            self._on_result(route, direction, len(original), sent, gzip)
            return
        with self._changed:
            refusal = self._refusal(len(original))
            if refusal is None:
                self._queue.append(_Waiting(route, direction, original, sent))
                self._queued_bytes += len(original)
                self._start()
                self._changed.notify_all()
        if refusal is not None:
            self._on_skip(route, refusal)

    def tune(self, level: int, cpu_share: float) -> None:
        """Go on with other settings, as a reload does. Bodies that wait are compared at the new level."""
        self._level = level
        self._budget.share(cpu_share)

    def drained(self, seconds: float) -> bool:
        """Wait until nothing is queued or being compared; False if it took longer. For tests and reports, not for traffic."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._working, seconds)

    def close(self, seconds: float = 1.0) -> None:
        """Stop; what still waits is skipped as ``busy``. Returns within ``seconds``, whatever the worker does."""
        with self._changed:
            self._closing = True
            left, self._queue = list(self._queue), deque()
            self._queued_bytes = 0
            self._changed.notify_all()
        for waiting in left:
            self._on_skip(waiting.route, "busy")
        if self._worker is not None:
            self._worker.join(seconds)

    def _refusal(self, size: int) -> str | None:
        if size > TOO_LARGE:
            return "too-large"
        if not self._budget.solvent():
            return "budget"
        if self._closing or len(self._queue) >= QUEUE_COUNT or self._queued_bytes + size > QUEUE_BYTES:
            return "busy"
        return None

    def _start(self) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="gzip-comparison", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        _step_back()
        while True:
            with self._changed:
                self._working = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue or self._closing)
                if self._closing:
                    return
                waiting = self._queue.popleft()
                self._queued_bytes -= len(waiting.original)
                self._working = True
            if self._budget.solvent():
                self._compare(waiting)
            else:
                self._on_skip(waiting.route, "budget")

    def _compare(self, waiting: _Waiting) -> None:
        begun = self._cpu_clock()
        try:
            size = self._gzip_size(waiting.original)
        except MemoryError:
            self._on_skip(waiting.route, "failed")
            return
        finally:
            self._budget.charge(self._cpu_clock() - begun)
        if size is None:
            self._on_skip(waiting.route, "busy")
        else:
            self._on_result(waiting.route, waiting.direction, len(waiting.original), waiting.sent, size)

    def _gzip_size(self, original: bytes) -> int | None:
        """Bytes gzip makes of it, header and trailer included; None if closed meanwhile."""
        gzip = zlib.compressobj(self._level, zlib.DEFLATED, _GZIP)
        size = 0
        view = memoryview(original)
        for start in range(0, len(view), _PIECE):
            if self._closing:
                return None
            size += len(gzip.compress(view[start : start + _PIECE]))
        return size + len(gzip.flush())


class _Budget:
    """A token bucket of CPU seconds. Read from the event loop's thread, charged from the worker's."""

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._lock = threading.Lock()
        self._left = share * BURST
        self._filled_at = clock()

    def solvent(self) -> bool:
        """Whether anything is left to spend."""
        with self._lock:
            self._fill()
            return self._left > 0

    def share(self, share: float) -> None:
        """Fill at another rate from now on; what was saved up or owed stays, within the new burst."""
        with self._lock:
            self._fill()
            self._share = share

    def charge(self, seconds: float) -> None:
        """That much was used."""
        with self._lock:
            self._left -= seconds

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._share * BURST, self._left + self._share * (now - self._filled_at))
        self._filled_at = now


def _step_back() -> None:
    """Let the calling thread have a core only when nothing else wants it: its bursts would take whole slices from the loop.

    Linux gives each thread a nice value of its own; elsewhere it is the process's, which must stay as it is.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
