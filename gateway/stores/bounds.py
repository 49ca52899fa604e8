"""How much a store may hold, and which bases of an exchange fit at all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from middleware.stores import Base


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one store. Bytes are bytes of content, times are seconds."""

    keep: int = 4
    """Exchanges of each session and route that stay."""
    session_bytes: int = 64 * 2**20
    """Content a session may hold; what it holds twice counts once. Never more than ``total_bytes``."""
    total_bytes: int = 256 * 2**20
    """Content of all sessions together; what a scope holds twice counts once."""
    ttl: float = 7200.0
    """A session unused for this long is forgotten."""
    sessions: int = 100_000
    """Most sessions."""

    def __post_init__(self) -> None:
        if self.keep < 1 or self.sessions < 1:
            raise ValueError("a store keeps at least one exchange of one session")
        object.__setattr__(self, "session_bytes", min(self.session_bytes, self.total_bytes))

    def within(self, memory: int) -> "Bounds":
        """The same limits for a part that may hold ``memory`` bytes in all."""
        return replace(self, total_bytes=min(self.total_bytes, memory))


def fitting(bases: Sequence[Base], limit: int) -> list[Base]:
    """Those bases that fit ``limit`` bytes together, taken in the order given. What is too large is passed over."""
    taken: list[Base] = []
    left = limit
    for base in bases:
        if base.names and len(base.content) <= left:
            taken.append(base)
            left -= len(base.content)
    return taken
