"""Cache-Control (RFC 9111 5.2), as far as it decides what may be kept, shared or recoded here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_DIRECTIVE = re.compile(
    r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)  # token
        (?:[ \t]*=[ \t]*("[^"]*+"|[^\s,;"]*))?  # "=" token or quoted-string; escapes are not looked at
        [^,]*  # junk up to the next comma""",
    re.VERBOSE | re.DOTALL,
)
_CACHED_LENGTH = 512  # characters
_FOREVER = 2**31  # seconds: RFC 9111 1.2.2, what a larger number is taken for


@dataclass(frozen=True, slots=True)
class CacheControl:
    """The directives of one message, both spellings and any order; unknown ones are ignored. Times are seconds.

    A qualified ``private="field"`` or ``no-cache="field"`` counts as the whole directive, the cautious reading. A time that is
    no number is 0, stale (RFC 9111 4.2.1); of two, the first holds.
    """

    no_store: bool = False
    no_cache: bool = False
    no_transform: bool = False
    private: bool = False
    public: bool = False
    max_age: int | None = None
    s_maxage: int | None = None
    stale_while_revalidate: int | None = None

    @staticmethod
    def parse(values: Sequence[str]) -> "CacheControl":
        """From the field's lines; never raises."""
        if not values:
            return _NOTHING
        text = values[0] if len(values) == 1 else ", ".join(values)
        return _cached(text) if len(text) <= _CACHED_LENGTH else _parse(text)


def _seconds(argument: str | None) -> int:
    digits = (argument or "").strip('"').strip(" \t")
    if not (digits.isascii() and digits.isdigit()):
        return 0
    return _FOREVER if len(digits.lstrip("0")) > 10 else min(int(digits[-11:]), _FOREVER)


def _parse(text: str) -> CacheControl:
    said: dict[str, str | None] = {}
    for match in _DIRECTIVE.finditer(text):
        said.setdefault(match[1].lower(), match[2])

    def seconds(name: str) -> int | None:
        return _seconds(said[name]) if name in said else None

    return CacheControl(
        no_store="no-store" in said,
        no_cache="no-cache" in said,
        no_transform="no-transform" in said,
        private="private" in said,
        public="public" in said,
        max_age=seconds("max-age"),
        s_maxage=seconds("s-maxage"),
        stale_while_revalidate=seconds("stale-while-revalidate"),
    )


_NOTHING = CacheControl()
_cached = lru_cache(maxsize=1024)(_parse)
