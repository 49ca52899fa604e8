"""Log lines on standard error, for people or for machines. Never a body, a key, a query string or a field's value.

Lines are handed to a thread of their own, so a slow terminal or a full pipe delays no request. Where the thread falls behind by
more than a few thousand lines, further ones are dropped and the number of them is said.
"""

import logging
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from logging.handlers import QueueHandler
from typing import Any

import orjson

from config.schema import Log

_MOST_WAITING = 10_000


class _Handing(QueueHandler):
    """Hands a record over as it is: formatting is the thread's work. Counts what found no place."""

    dropped = 0

    def prepare(self, record: logging.LogRecord) -> Any:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class _Writing(logging.Handler):
    """Writes on the thread; says when lines are missing."""

    def __init__(self, handing: _Handing) -> None:
        super().__init__()
        self._handing = handing
        self._told = 0

    def createLock(self) -> None:  # noqa: N802  logging's own name
        """No lock: only the thread comes here, and logging's own shutdown must not wait for it while it is blocked."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        _write(self.format(record))
        missing = self._handing.dropped - self._told
        if missing:
            self._told += missing
            _write(self.format(_said(f"{missing} lines were dropped: nothing took them fast enough")))


def _said(text: str) -> logging.LogRecord:
    return logging.LogRecord("packhorse.log", logging.WARNING, __file__, 0, text, None, None)


def _write(line: str) -> None:
    """Straight to the descriptor where there is one: a buffer's lock held by a blocked thread would hang the exit."""
    try:
        os.write(sys.stderr.fileno(), (line + "\n").encode("utf-8", "backslashreplace"))
    except (OSError, ValueError, AttributeError):
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")


class Lines:
    """The thread that writes. ``stop`` waits a bounded time: a pipe that nobody reads must not keep the process alive."""

    def __init__(self, waiting: "queue.Queue[Any]", writing: logging.Handler) -> None:
        self._waiting = waiting
        self._writing = writing
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._writing.handle(record)

    def stop(self, seconds: float = 2.0) -> None:
        """Write what waits, for at most that long."""
        deadline = time.monotonic() + seconds
        with suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(max(0.0, deadline - time.monotonic()))


class Console(logging.Formatter):
    """One line for a person."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = getattr(record, "exchange", None)
        if facts is None:
            text = f"{stamp} {record.levelname.lower():7} {record.getMessage()}"
            return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text
        saved = f" of {facts['original']}" if facts["original"] not in (None, facts["sent"]) else ""
        notes = " ".join(word for word in (facts["refusal"], facts["error"]) if word)
        how = f"{facts['coding']} ({facts['why']})"
        return (
            f"{stamp} {facts['status'] or '---'} {facts['method']} {printable(facts['path'])} {facts['route']} {facts['ms']:.1f} ms, "
            f"{facts['sent']}{saved} bytes {how} {facts['outcome']} {notes}".rstrip()
        )


class Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower(), "logger": record.name}
        facts = getattr(record, "exchange", None)
        if facts is None:
            line["message"] = record.getMessage()
        else:
            line |= facts
            line["path"] = printable(facts["path"])
        if record.exc_info:
            line["fault"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def printable(text: str) -> str:
    """Without control characters and lone surrogates, and not longer than a line."""
    return text[:300].encode("ascii", "backslashreplace").decode() if text.isprintable() else ascii(text[:300])[1:-1]


def start(log: Log) -> Lines:
    """Begin to write; ``stop()`` of what is returned writes what waits."""
    waiting: queue.Queue[Any] = queue.Queue(_MOST_WAITING)
    handing = _Handing(waiting)
    writing = _Writing(handing)
    writing.setFormatter(Json() if log.format == "json" else Console())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handing)
    root.setLevel(log.level.upper())
    logging.getLogger("packhorse.access").setLevel("INFO" if log.access == "on" else "WARNING")
    logging.getLogger("asyncio").setLevel("ERROR")
    return Lines(waiting, writing)
