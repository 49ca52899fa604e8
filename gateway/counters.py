"""The Prometheus side of the gateway: what is counted where, and the page a scrape reads.

Theory of operation. Totals are plain numbers in dicts of ours, one dict a metric and route, keyed by the other label values;
prometheus_client is handed them as families at scrape time, through a registry of our own. So an increment costs a dict write
instead of a lock, no ``_created`` twin appears, and PROMETHEUS_MULTIPROC_DIR, which makes that library's own metric classes
keep their values in shared files, has nothing to act on: two gateways on a host never share, wipe or inherit a counter.

Every label value is looked up in a fixed set of gateway/metric_table.py and is ``other`` where it is not there; the route's
name comes from the settings and is made printable. Series are never removed: a route that a reload took away keeps its
totals, since a counter that vanishes and returns would read as a reset.

Counting belongs to the event loop's thread. Only the comparison's two methods, the page and the savings may be asked for
from any thread; the three compared series are written and read under one lock, so a scrape sees whole triples or none.
"""

import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from gateway import metric_table as table
from gateway.metric_table import Metric
from gateway.route_counters import DIRECTION, LOOKUP, RouteCounters, Totals
from gateway.version import VERSION
from middleware.stores import StoreSizes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the exposition. Set as a field: aiohttp's ``content_type=`` argument refuses a charset."""


class Watched(Protocol):
    """What the gauges ask of a base store."""

    kind: str
    """The ``store`` label."""

    def sizes(self) -> StoreSizes:
        """What it holds."""
        ...

    def degraded(self) -> str | None:
        """What does not work, or None."""
        ...


class Counters(Collector):
    """All of a gateway's counters. One for a process's life: a reload keeps it."""

    def __init__(self, version: str = VERSION) -> None:
        """``version`` as build_info shows it."""
        self._routes: dict[str, RouteCounters] = {}
        self._lookups: Totals = {(d, r): 0 for d in table.DIRECTIONS for r in table.LOOKUPS}
        self._build = (_printable(version), platform.python_version())
        self._store: Watched | None = None
        self._in_flight: Callable[[], float] = int
        self._reloaded = True
        self._triples = threading.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def route(self, name: str) -> RouteCounters:
        """The counters of a route, begun at zero the first time it is named. ``name`` is one of the settings', or ``none``."""
        found = self._routes.get(name)
        if found is None:
            found = self._routes.setdefault(_printable(name), RouteCounters(self._triples))
        return found

    def base_lookup(self, direction: str, result: str) -> None:
        """A client named a base."""
        key = (DIRECTION.get(direction, "other"), LOOKUP.get(result, "other"))
        self._lookups[key] = self._lookups.get(key, 0) + 1

    def watch(self, store: Watched, in_flight: Callable[[], float]) -> None:
        """What the gauges read at each scrape: a store's sizes and health, and the exchanges under way."""
        self._store = store
        self._in_flight = in_flight

    def reloaded(self, successful: bool) -> None:
        """The settings file was read again."""
        self._reloaded = successful

    def exposition(self) -> tuple[bytes, str]:
        """The page a scrape reads, and its Content-Type."""
        return generate_latest(self.registry), CONTENT_TYPE

    def describe(self) -> Iterable[Family]:
        """Every family, without samples."""
        return [_family(metric) for metric in table.METRICS]

    def savings(self) -> dict[str, object]:
        """The link's bytes and the comparison with gzip, as numbers for a person's screen. From any thread."""
        with self._triples:
            routes = [counters.savings() | {"route": name} for name, counters in list(self._routes.items())]
        return {"routes": routes}

    def collect(self) -> Iterator[Family]:
        """Every family with its samples now."""
        routes = list(self._routes.items())
        gauges = self._read_gauges()
        with self._triples:
            held = {
                metric.name: [
                    ((route, *key), value)
                    for route, counters in routes
                    for key, value in list(counters.totals[metric.name].items())
                ]
                for metric in table.METRICS
                if metric.kind == "counter"
            }
        held[table.BASE_LOOKUPS.name] = list(self._lookups.items())
        for metric in table.METRICS:
            family = _family(metric)
            if isinstance(family, HistogramMetricFamily):
                for route, counters in routes:
                    family.add_metric([route], *counters.distributions[metric.name].buckets())
            else:
                for key, value in held.get(metric.name) or gauges.get(metric.name, []):
                    family.add_metric(key, value)
            yield family

    def _read_gauges(self) -> dict[str, list[tuple[tuple[str, ...], float]]]:
        store = self._store
        gauges: dict[str, list[tuple[tuple[str, ...], float]]] = {
            table.IN_FLIGHT.name: [((), _read(self._in_flight))],
            table.BUILD_INFO.name: [(self._build, 1)],
            table.RELOADED.name: [((), self._reloaded)],
            table.DEGRADED.name: [((), 0 if store is None else _read(lambda: store.degraded() is not None))],
        }
        if store is not None:
            for metric, read in (
                (table.BASES, lambda: store.sizes().bases),
                (table.BASE_BYTES, lambda: store.sizes().base_bytes),
                (table.SESSIONS, lambda: store.sizes().sessions),
            ):
                gauges[metric.name] = [((_printable(store.kind),), _read(read))]
        return gauges


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    match metric.kind:
        case "counter":
            return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "gauge":
            return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "histogram":
            return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def _read(read: Callable[[], float]) -> float:
    """A gauge's value; not a number where it cannot be read, since the rest of the page is worth having."""
    try:
        return float(read())
    except Exception:
        return float("nan")


def _printable(name: str) -> str:
    """A label value that no scrape can trip over: printable ASCII, bounded."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name[: table.ROUTE_NAME_LENGTH])
