"""What an exchange leaves behind: counters, a log line, and material for the comparison with gzip.

Everything here happens after the fact and returns at once. The figures of the client's link come from the connection
(:meth:`Recorder.crossed`), everything else from how the exchange ended (:meth:`Recorder.ended`).
"""

import logging
import time

from gateway.comparison import GzipComparison
from gateway.counters import Counters
from middleware.exchange import Exchange
from middleware.metrics import Ended

access_log = logging.getLogger("packhorse.access")

NO_ROUTE = "none"
"""Label of exchanges that no route took."""


class Recorder:
    """Implements what :mod:`middleware.metrics` and :mod:`gateway.server` report to."""

    def __init__(self, counters: Counters, comparison: GzipComparison, assumed_link: str) -> None:
        self._counters = counters
        self._comparison = comparison
        self.assumed_link = assumed_link

    def crossed(self, exchange: Exchange | None, direction: str, head: int, body: int) -> None:
        """Bytes of the client's link, as the connection counted them."""
        route, link = (NO_ROUTE, self.assumed_link) if exchange is None else (exchange.route, exchange.link)
        counters = self._counters.route(route)
        if head:
            counters.link_bytes(direction, link, "head", head)
        if body:
            counters.link_bytes(direction, link, "body", body)
            if direction == "up":
                counters.original_bytes("up", link, body)

    def malformed(self, status: int) -> None:
        """A request the HTTP parser refused: it never had a method or a route."""
        self._counters.route(NO_ROUTE).request("other", status, "refused", 0.0, None, None)

    def ended(self, exchange: Exchange, ended: Ended) -> None:
        """The exchange is over."""
        counters = self._counters.route(exchange.route)
        counters.request(ended.method, ended.status, ended.outcome, ended.seconds, ended.overhead, ended.first_byte)
        if exchange.upstream_seconds:
            counters.upstream(exchange.upstream_seconds)
        if exchange.upstream_error is not None:
            counters.upstream_error(exchange.upstream_error)
        for result in exchange.lookups:
            self._counters.base_lookup("down", result)
        self._down(exchange, ended)
        if ended.upload is not None:
            counters.body("up", ended.upload, "streamed")  # as the client sent it; deltas go down only
        self._up(exchange)
        if access_log.isEnabledFor(logging.INFO):
            access_log.info("exchange", extra={"exchange": _line(exchange, ended)})

    def _down(self, exchange: Exchange, ended: Ended) -> None:
        counters = self._counters.route(exchange.route)
        whole = ended.outcome in ("ok", "refused", "failed")
        original = exchange.original if whole and exchange.original is not None else ended.sent
        if original:
            counters.original_bytes("down", exchange.link, original)
        if not ended.sent and not original:
            return
        if exchange.refusal is not None:  # an answer of our own: nothing was chosen
            return
        counters.body("down", ended.coding, exchange.why)
        if not whole:
            counters.gzip_skipped("cut")
        elif exchange.decoded is None:
            counters.gzip_skipped("stream" if exchange.why == "streamed" else "not-read")
        else:
            self._comparison.offer(exchange.route, "down", exchange.decoded, ended.sent, exchange.gzip_size)

    def _up(self, exchange: Exchange) -> None:
        sent, decoded = exchange.request_body, exchange.request_decoded
        if sent is None or decoded is None or not sent:
            return
        counters = self._counters.route(exchange.route)
        if len(decoded) > len(sent):  # the connection counted them as they were sent
            counters.original_bytes("up", exchange.link, len(decoded) - len(sent))
        self._comparison.offer(exchange.route, "up", decoded, len(sent), None)


def _line(exchange: Exchange, ended: Ended) -> dict[str, object]:
    """What an access line says: no query, no field, no body."""
    return {
        "id": exchange.id,
        "time": time.time(),
        "route": exchange.route,
        "method": ended.method,
        "path": ended.target,
        "status": ended.status,
        "outcome": ended.outcome,
        "refusal": exchange.refusal,
        "error": exchange.upstream_error,
        "ms": round(ended.seconds * 1000, 2),
        "added_ms": round(ended.overhead * 1000, 2),
        "sent": ended.sent,
        "original": exchange.original,
        "coding": ended.coding,
        "why": exchange.why,
        "link": exchange.link,
    }
