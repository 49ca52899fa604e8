"""What a middleware knows of a base store: a Protocol and the values that cross it.

Nothing here waits. ``find`` looks in memory; ``fetch`` starts to bring from disk what only the disk holds, so that it may be
there by the time the upstream has answered; ``keep`` hands over and returns. Losing a base costs bytes, never correctness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ctxpack import ContextPack

Lookup = Literal["hit", "unknown", "foreign"]
"""What became of a name: held, held by nobody, or held by another principal only (a client is never told the difference)."""


@dataclass(frozen=True, slots=True)
class Base:
    """A body both sides hold. ``content`` is the decoded body, ``names`` what a client may call it (pack digest, ...)."""

    content: bytes
    names: tuple[str, ...]
    pack: ContextPack | None = None
    """Kept with its digest state, so that the next turn's pack continues it. Rebuilt from ``content`` when absent."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose bases: ``scope`` bounds who may look one up (the principal), ``session`` is what is evicted together."""

    scope: str
    session: str


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """What the store holds now: counts, and bytes of content."""

    bases: int
    base_bytes: int
    sessions: int


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session as ``/api/sessions`` shows it. ``key`` is a hash, never what the client called it."""

    key: str
    bases: int
    base_bytes: int
    idle_seconds: float


class BaseStore(Protocol):
    """Bases by scope and name. Every method returns at once; none raises for a full, locked or broken disk."""

    kind: str
    """``memory``, ``sqlite``: the ``store`` label."""

    def find(self, scope: str, name: str) -> Base | None:
        """The base of that name in that scope if it is in memory, and counts as a use of its session."""
        ...

    def lookup(self, scope: str, name: str) -> Lookup:
        """What became of a name, for the counters alone: ``hit`` where :meth:`find` finds it at this moment."""
        ...

    def fetch(self, scope: str, names: Sequence[str]) -> None:
        """Start to load what only the disk holds. Names come best first; none behind one that is in memory is loaded."""
        ...

    def keep(self, owner: Owner, route: str, bases: Sequence[Base]) -> None:
        """The bases of one exchange, most useful first: a base too large for what is left of the session's bytes is passed over.

        The last ``bases.keep`` exchanges of a session and route stay, within the bounds. Names must be hashes of the content:
        a scope holds one content a name. With no bases it is only a use of the session.
        """
        ...

    def sizes(self) -> StoreSizes:
        """What it holds."""
        ...

    def sessions(self, limit: int) -> list[SessionSummary]:
        """The most recently used sessions, newest first."""
        ...

    def degraded(self) -> str | None:
        """What does not work, in words for a person, or None."""
        ...

    async def open(self) -> None:
        """Load what a start needs; a broken disk degrades, it never raises."""
        ...

    async def close(self) -> None:
        """Write what is waiting, for a bounded time, and let go of the disk."""
        ...
