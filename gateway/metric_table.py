"""Every metric the gateway exports, as a table, and the fixed sets their label values come from.

A label value never comes from a peer: whatever is not in its set becomes ``other``, so the number of series has a bound that
traffic cannot move. Counters hold totals since the start; bytes and seconds are the units everywhere.
"""

from dataclasses import dataclass
from typing import Literal

ROUTE_NAME_LENGTH = 40
"""Longest route label, as the settings schema has it."""

METHODS = (
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "ACL", "BASELINE-CONTROL", "BIND", "CHECKIN",
    "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE",
    "MOVE", "ORDERPATCH", "PRI", "PROPFIND", "PROPPATCH", "QUERY", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK",
    "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
)  # fmt: skip
"""The methods of IANA's registry (RFC 9110 16.1)."""
STATUSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")
"""``none``: nothing was answered, as when the client left before the head."""
OUTCOMES = ("ok", "client_gone", "upstream_cut", "refused", "failed")
DIRECTIONS = ("down", "up")
LINKS = ("weak", "metered", "normal")
PARTS = ("body", "head")
CODINGS = ("identity", "dcz", "ctxpack.pack.v1", "ctxpack.delta.v1", "ctxpack.delta.v2", "zstd", "gzip", "br", "deflate")
"""A stack such as ``ctxpack.delta.v1, gzip`` is labelled by its first coding: what was made of the body, whatever is around."""
WHYS = (
    "delta", "pack", "unchanged", "no-base", "unknown-base", "not-smaller", "too-small", "too-large", "link-normal",
    "no-transform", "not-acceptable", "partial", "already-coded", "not-text", "streamed",
)  # fmt: skip
LOOKUPS = ("hit", "unknown", "foreign")
UPSTREAM_ERRORS = ("connect", "connect-timeout", "tls", "first-byte-timeout", "idle-timeout", "cut", "malformed")
SKIPS = ("busy", "budget", "too-large", "stream", "cut", "not-read", "failed")
"""Why a body was not compared with gzip: ``busy`` (too many wait), ``budget`` (CPU share spent), ``too-large``, ``stream``
(passed on as it came), ``cut`` (not written out whole), ``not-read`` (never decoded here), ``failed`` (no memory for it)."""

WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds. From a cached answer to the longest model's: 300 and 600 are the default first-byte and idle timeouts."""
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0015, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Seconds. Dense below 2.5 ms; the promised 1.5 ms is a bound, so that it can be read off exactly. 0.5: ``deltas.wait``."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. ``labels`` in the order their values are held; ``buckets`` are upper bounds in seconds, for histograms."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


REQUESTS = Metric(
    "packhorse_requests_total",
    "counter",
    ("route", "method", "status", "outcome"),
    "Exchanges that ended, refused ones included.",
)
REQUEST_SECONDS = Metric(
    "packhorse_request_seconds",
    "histogram",
    ("route",),
    "From the request's head read to the response's last byte.",
    WAIT_BUCKETS,
)
OVERHEAD_SECONDS = Metric(
    "packhorse_overhead_seconds",
    "histogram",
    ("route",),
    "What the gateway added before the response's head.",
    OVERHEAD_BUCKETS,
)
FIRST_BYTE_SECONDS = Metric(
    "packhorse_first_byte_seconds",
    "histogram",
    ("route",),
    "From the request's head read to the response's head.",
    WAIT_BUCKETS,
)
LINK_BYTES = Metric(
    "packhorse_link_bytes_total",
    "counter",
    ("route", "direction", "link", "part"),
    "Bytes that crossed the client's link: body after transfer decoding, head all the rest of the message, TLS not counted.",
)
LINK_ORIGINAL_BYTES = Metric(
    "packhorse_link_original_bytes_total",
    "counter",
    ("route", "direction", "link"),
    "The bodies of packhorse_link_bytes_total, uncoded.",
)
BODIES = Metric(
    "packhorse_bodies_total",
    "counter",
    ("route", "direction", "coding", "why"),
    "Bodies by the coding they crossed the client's link in, and the one word for why.",
)
COMPARED_ORIGINAL = Metric(
    "packhorse_gzip_compared_original_bytes_total",
    "counter",
    ("route", "direction"),
    "The bodies compared with gzip, uncoded.",
)
COMPARED_SENT = Metric(
    "packhorse_gzip_compared_sent_bytes_total",
    "counter",
    ("route", "direction"),
    "The same bodies, as they were sent.",
)
COMPARED_GZIP = Metric(
    "packhorse_gzip_compared_gzip_bytes_total",
    "counter",
    ("route", "direction"),
    "The same bodies, as gzip alone would have sent them.",
)
COMPARISONS_SKIPPED = Metric(
    "packhorse_gzip_comparisons_skipped_total",
    "counter",
    ("route", "reason"),
    "Bodies that were not compared with gzip.",
)
BASE_LOOKUPS = Metric(
    "packhorse_base_lookups_total",
    "counter",
    ("direction", "result"),
    "What became of the bases clients named: held, not held, or held for another principal only.",
)
BASES = Metric("packhorse_bases", "gauge", ("store",), "Bases held.")
BASE_BYTES = Metric("packhorse_base_bytes", "gauge", ("store",), "Content bytes of the bases held.")
SESSIONS = Metric("packhorse_sessions", "gauge", ("store",), "Sessions remembered.")
UPSTREAM_SECONDS = Metric(
    "packhorse_upstream_seconds",
    "histogram",
    ("route",),
    "From the request sent upstream to the head of the upstream's answer.",
    WAIT_BUCKETS,
)
UPSTREAM_ERRORS_TOTAL = Metric(
    "packhorse_upstream_errors_total", "counter", ("route", "reason"), "Exchanges the upstream failed, by what went wrong."
)
IN_FLIGHT = Metric("packhorse_in_flight", "gauge", (), "Exchanges under way.")
DEGRADED = Metric("packhorse_degraded", "gauge", (), "Parts that do not work now; /readyz names them.")
BUILD_INFO = Metric("packhorse_build_info", "gauge", ("version", "python"), "1; what runs.")
RELOADED = Metric(
    "packhorse_config_last_reload_successful",
    "gauge",
    (),
    "1 if the settings file was taken the last time it was read, else 0.",
)

METRICS = (
    REQUESTS, REQUEST_SECONDS, OVERHEAD_SECONDS, FIRST_BYTE_SECONDS, LINK_BYTES, LINK_ORIGINAL_BYTES, BODIES, COMPARED_ORIGINAL,
    COMPARED_SENT, COMPARED_GZIP, COMPARISONS_SKIPPED, BASE_LOOKUPS, BASES, BASE_BYTES, SESSIONS, UPSTREAM_SECONDS,
    UPSTREAM_ERRORS_TOTAL, IN_FLIGHT, DEGRADED, BUILD_INFO, RELOADED,
)  # fmt: skip
"""In the order they are exported."""
