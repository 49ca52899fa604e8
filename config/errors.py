"""What is wrong with the settings, in words for the person who wrote them. No secret is ever repeated."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

HIDDEN = "(hidden)"
"""Shown instead of a secret."""

_LONGEST = 80
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"[?#]\S*")
_PLAIN_NAME = re.compile(r"[\w.\-/()]{1,60}\Z")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: ``place: key: fault, given ...; the nearest is ...``."""

    key: str
    """Dotted key (``routes.1.upstream``), variable name or file name."""
    fault: str
    """What was expected, or what is not so."""
    given: str | None = None
    """What was found instead, already fit to be shown."""
    nearest: str | None = None
    """The known name closest to an unknown one."""
    place: str | None = None
    """``file:line``, ``environment`` or ``command line``."""

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.place, self.key, self.fault) if part)
        if self.given is not None:
            text += f", given {self.given}"
        if self.nearest is not None:
            text += f"; the nearest is {self.nearest}"
        return text


class ConfigError(Exception):
    """The settings cannot be used. ``problems`` holds all that was found, in the order of the file; one a line as text."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Sequence[str | int]) -> str:
    """``("routes", 1, "upstream")`` as ``routes.1.upstream``; a name no option could have is quoted and cut.

    What follows a colon is not shown: in ``{token:x}``, for want of a space, it is the value.
    """
    return ".".join(_name(str(part)) for part in path)


def shown(value: Any) -> str:
    """``value`` fit for an error line: short, printable, without the user, query or fragment of a URL."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return _cut(ascii(without_credentials(value)) if not value.isprintable() else repr(without_credentials(value)))
    return _cut(str(value)) if not isinstance(value, int) or value.bit_length() < 512 else "a huge number"


def without_credentials(text: str) -> str:
    """A URL without what may be secret in it (user information, query, fragment); any other text as it is."""
    if "://" not in text:
        return text
    return _QUERY.sub("?" + HIDDEN, _USER.sub(HIDDEN + "@", text))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` most likely meant, or None."""
    names = list(known)
    matches = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    if not matches and len(name) >= 3:
        matches = [known for known in names if known.startswith(name.lower())]
    return matches[0] if matches else None


def _name(part: str) -> str:
    if _PLAIN_NAME.match(part):
        return part
    head, colon, _ = part.partition(":")
    return _cut(ascii(head + ":..." if colon else part))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
