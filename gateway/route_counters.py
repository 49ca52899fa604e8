"""What is counted for one route: totals by bounded labels, and how long things took. See gateway/counters.py for the theory."""

import threading
from bisect import bisect_left
from itertools import accumulate

from gateway import metric_table as table

Totals = dict[tuple[str, ...], float]
"""Totals of one metric, by the label values that vary."""


def _same(*words: str) -> dict[str, str]:
    return {word: word for word in words}


_METHOD, _OUTCOME, DIRECTION, _LINK, _PART = (
    _same(*words) for words in (table.METHODS, table.OUTCOMES, table.DIRECTIONS, table.LINKS, table.PARTS)
)
_CODING = {**_same(*table.CODINGS), "": "identity", "x-gzip": "gzip"}
_WHY, LOOKUP, _ERROR, _SKIP = (_same(*words) for words in (table.WHYS, table.LOOKUPS, table.UPSTREAM_ERRORS, table.SKIPS))
_STATUS = dict(enumerate(("none", *table.STATUSES[:5])))
"""By the status divided by a hundred."""


def coding_label(content_encoding: str) -> str:
    """The ``coding`` label of a Content-Encoding value: its first coding if that is one of ours, else ``other``."""
    first = content_encoding.partition(",")[0].strip().lower()
    return _CODING.get(first, "other")


class Distribution:
    """A histogram: observations by the first bucket they fit in, and their sum. Seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """One more; a bucket's bound belongs to it (``le``)."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, and the sum."""
        names = (*map(str, self.bounds), "+Inf")
        return list(zip(names, map(float, accumulate(self.counts)), strict=True)), self.total


class RouteCounters:
    """What is counted for one route. Arguments are what the exchange knows; labels are bounded here."""

    def __init__(self, triples: threading.Lock) -> None:
        self._triples = triples
        self.totals: dict[str, Totals] = {metric.name: {} for metric in table.METRICS if metric.kind == "counter"}
        self.distributions = {
            metric.name: Distribution(metric.buckets) for metric in table.METRICS if metric.kind == "histogram"
        }
        totals = self.totals
        self._requests = totals[table.REQUESTS.name]
        self._link_bytes = totals[table.LINK_BYTES.name]
        self._original_bytes = totals[table.LINK_ORIGINAL_BYTES.name]
        self._bodies = totals[table.BODIES.name]
        self._compared = tuple(totals[m.name] for m in (table.COMPARED_ORIGINAL, table.COMPARED_SENT, table.COMPARED_GZIP))
        self._skipped = totals[table.COMPARISONS_SKIPPED.name]
        self._upstream_errors = totals[table.UPSTREAM_ERRORS_TOTAL.name]
        self._seconds, self._overhead, self._first_byte, self._upstream = (
            self.distributions[m.name].observe
            for m in (table.REQUEST_SECONDS, table.OVERHEAD_SECONDS, table.FIRST_BYTE_SECONDS, table.UPSTREAM_SECONDS)
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Small sets exist from the start, so that the first increment is one that ``rate()`` sees."""
        for direction in table.DIRECTIONS:
            for series in self._compared:
                series[direction,] = 0
            for link in table.LINKS:
                self._original_bytes[direction, link] = 0
                for part in table.PARTS:
                    self._link_bytes[direction, link, part] = 0
        self._skipped.update({(reason,): 0 for reason in table.SKIPS})
        self._upstream_errors.update({(reason,): 0 for reason in table.UPSTREAM_ERRORS})

    def request(
        self, method: str, status: int, outcome: str, seconds: float, overhead: float | None, first_byte: float | None
    ) -> None:
        """An exchange ended. ``status`` 0 where nothing was answered; times in seconds, None where there was no head."""
        key = (_METHOD.get(method, "other"), _STATUS.get(status // 100, "other"), _OUTCOME.get(outcome, "other"))
        self._requests[key] = self._requests.get(key, 0) + 1
        self._seconds(seconds)
        if overhead is not None:
            self._overhead(overhead)
        if first_byte is not None:
            self._first_byte(first_byte)

    def link_bytes(self, direction: str, link: str, part: str, count: int) -> None:
        """Bytes crossed the client's link."""
        key = (DIRECTION.get(direction, "other"), _LINK.get(link, "other"), _PART.get(part, "other"))
        self._link_bytes[key] = self._link_bytes.get(key, 0) + count

    def original_bytes(self, direction: str, link: str, count: int) -> None:
        """The uncoded size of a body that crossed."""
        key = (DIRECTION.get(direction, "other"), _LINK.get(link, "other"))
        self._original_bytes[key] = self._original_bytes.get(key, 0) + count

    def body(self, direction: str, coding: str, why: str) -> None:
        """A body crossed; ``coding`` is its Content-Encoding, or ``identity``."""
        key = (DIRECTION.get(direction, "other"), _CODING.get(coding) or coding_label(coding), _WHY.get(why, "other"))
        self._bodies[key] = self._bodies.get(key, 0) + 1

    def gzip_compared(self, direction: str, original: int, sent: int, gzip: int) -> None:
        """One body in three sizes. From any thread."""
        key = (DIRECTION.get(direction, "other"),)
        with self._triples:
            for series, count in zip(self._compared, (original, sent, gzip), strict=True):
                series[key] = series.get(key, 0) + count

    def gzip_skipped(self, reason: str) -> None:
        """A body was not compared. From any thread."""
        key = (_SKIP.get(reason, "other"),)
        with self._triples:
            self._skipped[key] = self._skipped.get(key, 0) + 1

    def upstream(self, seconds: float) -> None:
        """The upstream's head came this long after the request was sent."""
        self._upstream(seconds)

    def upstream_error(self, reason: str) -> None:
        """The upstream failed an exchange."""
        key = (_ERROR.get(reason, "other"),)
        self._upstream_errors[key] = self._upstream_errors.get(key, 0) + 1

    def savings(self) -> dict[str, object]:
        """The link's bytes and the comparison with gzip, of links and directions that saw any."""
        links = [
            {
                "direction": direction,
                "link": link,
                "original_bytes": original,
                "body_bytes": self._link_bytes.get((direction, link, "body"), 0),
                "head_bytes": self._link_bytes.get((direction, link, "head"), 0),
            }
            for (direction, link), original in list(self._original_bytes.items())
        ]
        compared = [
            dict(zip(("original_bytes", "sent_bytes", "gzip_bytes"), (series[key] for series in self._compared), strict=True))
            | {"direction": key[0]}
            for key in list(self._compared[0])
        ]
        return {
            "links": [each for each in links if each["body_bytes"] or each["head_bytes"]],
            "gzip_compared": [each for each in compared if each["original_bytes"]],
            "gzip_skipped": {reason: count for (reason,), count in self._skipped.items() if count},
        }
