"""What passes between the event loop and the disk thread: values, never touched again by whoever handed them over."""

from collections.abc import Sequence
from dataclasses import dataclass

from middleware.stores import Base, Owner


@dataclass(frozen=True, slots=True)
class Kept:
    """An exchange to be written: whose, for which route, when (seconds of the store's clock), and its bases."""

    owner: Owner
    route: str
    used: float
    bases: Sequence[Base]

    @property
    def size(self) -> int:
        """Bytes of content, and some for the record itself."""
        return 512 + sum(len(base.content) for base in self.bases)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Names that a client of ``scope`` uses and memory lacks."""

    scope: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Bases read from the disk, whole and as they were written, with the session that kept them last."""

    owner: Owner
    bases: Sequence[Base]


@dataclass(frozen=True, slots=True)
class Remembered:
    """A whole session read from the disk: last used when, and its exchanges by route, oldest first."""

    owner: Owner
    used: float
    exchanges: Sequence[tuple[str, Sequence[Base]]]
