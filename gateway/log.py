"""Log lines on standard error, for people or for machines. Never a body, a key, a query string or a field's value.

Lines are handed to a thread of their own, so a slow terminal or a full pipe delays no request. Where the thread falls behind by
more than a few thousand lines, further ones are dropped and the number of them is said.
"""

import logging
import queue
import sys
import time
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import orjson

from config.schema import Log

_MOST_WAITING = 10_000


class _Dropping(QueueHandler):
    """Hands a record over as it is: formatting is the thread's work."""

    dropped = 0

    def prepare(self, record: logging.LogRecord) -> Any:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


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


def start(log: Log) -> QueueListener:
    """Begin to write; ``stop()`` of what is returned writes what waits."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if log.format == "json" else Console())
    waiting: queue.Queue[Any] = queue.Queue(_MOST_WAITING)
    listener = QueueListener(waiting, handler)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(_Dropping(waiting))
    root.setLevel(log.level.upper())
    logging.getLogger("packhorse.access").setLevel("INFO" if log.access == "on" else "WARNING")
    logging.getLogger("asyncio").setLevel("ERROR")
    listener.start()
    return listener
