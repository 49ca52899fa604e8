"""Base stores (first cut: memory; sqlite follows)."""

from config.schema import Configuration
from gateway.stores.bounds import Bounds
from gateway.stores.memory import MemoryStore


def open_store(configuration: Configuration) -> MemoryStore:
    """The store of the settings."""
    bases = configuration.bases
    return MemoryStore(
        Bounds(bases.keep, bases.max_bytes, bases.total_bytes, bases.ttl, configuration.sessions.max)
    )
