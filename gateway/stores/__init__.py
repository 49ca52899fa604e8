"""Where bases live: stores behind :class:`middleware.stores.BaseStore`, by kind."""

from config.schema import Configuration
from gateway.stores.bounds import Bounds
from gateway.stores.memory import MemoryStore
from gateway.stores.sqlite import SqliteStore
from middleware.stores import BaseStore

__all__ = ["Bounds", "MemoryStore", "SqliteStore", "open_store"]


def open_store(configuration: Configuration) -> BaseStore:
    """The store that ``store.kind`` names, empty; await its ``open()`` before the first request and ``close()`` after the last."""
    bounds = Bounds(
        keep=configuration.bases.keep,
        session_bytes=configuration.bases.max_bytes,
        total_bytes=configuration.bases.total_bytes,
        ttl=configuration.bases.ttl,
        sessions=configuration.sessions.max,
    )
    if configuration.store.kind == "memory":
        return MemoryStore(bounds)
    return SqliteStore(configuration.store.path, bounds, configuration.store.memory)
