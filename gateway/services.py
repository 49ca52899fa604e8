"""What all routes share for the life of the process: made once at start, closed once at the end, untouched by a reload."""

from dataclasses import dataclass

from config.schema import Configuration
from gateway.clients import Clients
from gateway.comparison import GzipComparison
from gateway.counters import Counters
from gateway.principals import Principals, load_principals
from gateway.recorder import Recorder
from gateway.stores import open_store
from gateway.version import VERSION
from middleware.conditional import TagMemory
from middleware.limits import InFlight
from middleware.stores import BaseStore


@dataclass(frozen=True, slots=True)
class Services:
    """The shared parts."""

    counters: Counters
    comparison: GzipComparison
    recorder: Recorder
    store: BaseStore
    principals: Principals
    clients: Clients
    in_flight: InFlight
    tags: TagMemory

    def retune(self, configuration: Configuration) -> None:
        """Take over what a reload may change here."""
        self.in_flight.most = configuration.limits.in_flight
        self.comparison.tune(configuration.gzip_comparison.level, configuration.gzip_comparison.cpu_share)
        self.recorder.assumed_link = configuration.link.assume

    async def close(self) -> None:
        """Let go of everything, in the reverse order of use."""
        await self.clients.close()
        self.comparison.close()
        await self.store.close()


async def make_services(configuration: Configuration) -> Services:
    """Open the store, the upstream sessions and the counters of one process."""
    counters = Counters(VERSION)
    comparison = GzipComparison(
        configuration.gzip_comparison.level,
        configuration.gzip_comparison.cpu_share,
        on_result=lambda route, direction, original, sent, gzip: counters.route(route).gzip_compared(
            direction, original, sent, gzip
        ),
        on_skip=lambda route, reason: counters.route(route).gzip_skipped(reason),
    )
    store = open_store(configuration)
    await store.open()
    in_flight = InFlight(configuration.limits.in_flight)
    services = Services(
        counters=counters,
        comparison=comparison,
        recorder=Recorder(counters, comparison, configuration.link.assume),
        store=store,
        principals=load_principals(configuration.store),
        clients=Clients(configuration.limits.headers),
        in_flight=in_flight,
        tags=TagMemory(),
    )
    counters.watch(store=store, in_flight=lambda: in_flight.now)
    return services
