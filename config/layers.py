"""Settings of several origins laid over each other, with where each value came from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from config.document import KeyPath


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value that overrides the file's: ``path`` of the key, ``value``, and its ``place`` in words."""

    path: KeyPath
    value: Any
    place: str


@dataclass(slots=True)
class Layers:
    """``values`` as they stand after all layers; ``places``, where each key and list item was given."""

    values: Any
    places: dict[KeyPath, str] = field(default_factory=dict)

    def lay(self, assignments: Iterable[Assignment]) -> None:
        """Put each value over what is there. One whose way is barred (by a section that is no mapping) is left out:
        the schema complains of the bar."""
        for assignment in assignments:
            if self._assign(assignment.path, assignment.value):
                self._forget(assignment.path)
                for path in paths_of(assignment.value, assignment.path):
                    self.places[path] = assignment.place

    def place(self, path: KeyPath) -> str | None:
        """Where the value at ``path`` was given, or the nearest section around it; None if nowhere."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return None

    def value(self, path: KeyPath) -> Any:
        """The value at ``path``, or None."""
        found = self.values
        for part in path:
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return None
        return found

    def _assign(self, path: KeyPath, value: Any) -> bool:
        holder = self.values
        for part, following in zip(path, [*path[1:], None], strict=True):
            fresh: Any = value if following is None else [] if isinstance(following, int) else {}
            if isinstance(holder, dict) and isinstance(part, str):
                if following is None or holder.get(part) is None:
                    holder[part] = fresh
            elif isinstance(holder, list) and isinstance(part, int) and part <= len(holder):
                if part == len(holder):
                    holder.append(fresh)
                elif following is None:
                    holder[part] = fresh
            else:
                return False
            holder = holder[part]
        return True

    def _forget(self, path: KeyPath) -> None:
        for known in [known for known in self.places if known[: len(path)] == path]:
            del self.places[known]


def paths_of(value: Any, prefix: KeyPath) -> Iterator[KeyPath]:
    """``prefix`` and the path of everything in ``value``."""
    yield prefix
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, (*prefix, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from paths_of(inner, (*prefix, index))
