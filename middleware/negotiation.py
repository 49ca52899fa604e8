"""What a client takes and holds, read from its request fields.

Content negotiation (RFC 9110 12.5.3) and the fields of contract section 2. Every function here is total: a malformed member
counts as if it were not there, whatever characters it holds, and nothing is ever raised for what a peer sent.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import http_sf

_MEMBER = re.compile(
    # codings [ OWS ";" OWS "q=" qvalue ], lenient in the number of digits and in spaces around "=": a refusal that is
    # spelled sloppily is still a refusal.
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*(?:;[ \t]*[qQ][ \t]*=[ \t]*(0(?:\.[0-9]*)?|1(?:\.0*)?))?"
)
_ALIASES: Final = {"x-gzip": "gzip", "x-compress": "compress"}
_CACHED_LENGTH: Final = 512  # characters; longer values are parsed each time, so that the cache stays small
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HELD_AT_MOST: Final = 8

NO_BASE: Final = ("none",)
"""``Ctxpack-Base: none``: a client that speaks ctxpack and holds nothing yet."""


def opt_in(coding: str) -> bool:
    """Whether a (lower-case) coding is used only where it is named: it needs a base, so neither ``*`` nor silence offers it."""
    return coding in ("dcz", "dcb") or coding.startswith("ctxpack.")


def _canonical(name: str) -> str:
    name = name.lower()
    return _ALIASES.get(name, name)  # RFC 9110 8.4.1.1, 8.4.1.3


@dataclass(frozen=True, slots=True)
class AcceptEncoding:
    """An Accept-Encoding value (RFC 9110 12.5.3). Immutable; equal values share one.

    Where a coding is named twice, a refusal (``q=0``) wins, otherwise the first: the RFC is silent, and only a coding that the
    client refused somewhere can go wrong.
    """

    text: str | None
    """The field as it came, its lines joined; None where it is absent."""
    weights: Mapping[str, float]
    """Coding, lower-case and without aliases, to q-value."""

    @staticmethod
    def parse(values: Sequence[str]) -> "AcceptEncoding":
        """From the field's lines, in order (those of Ctxpack-Accept after them, where the client sent both)."""
        if not values:
            return _ABSENT
        text = values[0] if len(values) == 1 else ", ".join(values)
        return _cached(text) if len(text) <= _CACHED_LENGTH else _parse(text)

    @property
    def absent(self) -> bool:
        """No such field: any ordinary coding is acceptable (an empty one takes only identity)."""
        return self.text is None

    def q(self, coding: str) -> float:
        """The weight of a coding, 0 (refused, not offered) to 1. ``identity`` is 1 unless the field says otherwise."""
        weight = self.weights.get(coding)
        if weight is not None:
            return weight
        name = _canonical(coding)
        weight = self.weights.get(name)
        if weight is not None:
            return weight
        if opt_in(name):
            return 0.0
        return self.weights.get("*", 1.0 if self.text is None or name == "identity" else 0.0)

    def accepts(self, coding: str) -> bool:
        """Whether a body in this coding (or ``identity``) is acceptable."""
        return self.q(coding) > 0.0

    def without(self, predicate: Callable[[str], bool]) -> str | None:
        """The field to send on, without the codings (lower-case, ``*`` among them) for which ``predicate`` is true.

        What stays keeps its spelling and order; where nothing is taken away the value is as it came (None: absent). Where
        what stays would accept nothing, ``identity``: the one who asks undoes what the client could not be sent.
        """
        if self.text is None:
            return None
        members = self.text.split(",")
        kept = [member for member in members if not predicate(_canonical(member.partition(";")[0].strip(" \t")))]
        if len(kept) == len(members):
            return self.text
        rest = ", ".join(stripped for member in kept if (stripped := member.strip(" \t")))
        remaining = AcceptEncoding.parse([rest])
        if rest and (remaining.accepts("identity") or any(remaining.weights.values())):
            return rest
        return "identity"

    def forwarded(self, decodable: frozenset[str] | None = None) -> str | None:
        """The field for the upstream (fault C16): never ``dcz``, ``dcb`` or ``ctxpack.*``, else as the client wrote it.

        With ``decodable`` only those codings are offered (``*`` is not); refusals stay.
        """
        if self.text is None:
            return None
        if len(self.text) <= _CACHED_LENGTH:
            return _forwarded_cached(self.text, decodable)
        return _forwarded(self, decodable)


def _parse(text: str) -> AcceptEncoding:
    weights: dict[str, float] = {}
    for member in text.split(","):
        match = _MEMBER.fullmatch(member.strip(" \t"))
        if match is None:
            continue
        name = _canonical(match[1])
        weight = 1.0 if match[2] is None else float(match[2])
        if weight == 0.0 or name not in weights:
            weights[name] = weight
    return AcceptEncoding(text, MappingProxyType(weights))


_ABSENT: Final = AcceptEncoding(None, MappingProxyType({}))
_cached = lru_cache(maxsize=1024)(_parse)


def _forwarded(accept: AcceptEncoding, decodable: frozenset[str] | None) -> str | None:
    def dropped(coding: str) -> bool:
        if opt_in(coding):
            return True
        if decodable is None or coding in decodable or coding in ("", "identity"):
            return False
        return accept.weights.get(coding) != 0.0

    return accept.without(dropped)


@lru_cache(maxsize=1024)
def _forwarded_cached(text: str, decodable: frozenset[str] | None) -> str | None:
    return _forwarded(_cached(text), decodable)


def parse_ctxpack_base(values: Sequence[str]) -> tuple[str, ...]:
    """The pack digests of Ctxpack-Base, newest first, at most 8 different ones; or NO_BASE; or () where it says nothing.

    ``none`` beside digests says nothing.
    """
    held: dict[str, None] = {}
    none = False
    for line in values:
        for member in line.split(","):
            name = member.strip(" \t")
            if _DIGEST.fullmatch(name):
                held[name] = None
                if len(held) == _HELD_AT_MOST:
                    return tuple(held)
            elif name.lower() == "none":
                none = True
    return tuple(held) or (NO_BASE if none else ())


def available_dictionary(values: Sequence[str]) -> bytes | None:
    """The SHA-256 (32 bytes) of Available-Dictionary (RFC 9842 2.2, an RFC 9651 Item); sent twice or malformed: None."""
    if len(values) != 1:
        return None
    try:
        parsed = http_sf.parse(values[0].encode("ascii"), tltype="item")
    except ValueError:  # StructuredFieldError and UnicodeEncodeError are both
        return None
    digest = parsed[0] if isinstance(parsed, tuple) else None
    return digest if isinstance(digest, bytes) and len(digest) == 32 else None


def delta_allowed(sec_fetch_site: str | None, sec_fetch_mode: str | None, origin: str | None, allow_origin: str | None) -> bool:
    """Whether a response may be coded against a base, so that its length tells a page nothing it may not read.

    RFC 9842, Security Considerations, "Server Responsibility": the first three are request fields, ``allow_origin`` is the
    response's Access-Control-Allow-Origin. Clients that are no browsers send no Sec-Fetch-Site.
    """
    if sec_fetch_site is None or sec_fetch_site.strip(" \t") in ("same-origin", "same-site", "none"):
        return True
    if sec_fetch_mode is None or sec_fetch_mode.strip(" \t") != "cors" or allow_origin is None:
        return False
    allowed = allow_origin.strip(" \t")
    return allowed == "*" or (origin is not None and allowed == origin.strip(" \t"))


def merge_vary(existing: Sequence[str], add: Sequence[str]) -> str | None:
    """One Vary value (RFC 9110 12.5.5): what was there in its own spelling, then what is new; ``*`` stands for all."""
    names: dict[str, str] = {}
    for line in (*existing, *add):
        for member in line.split(","):
            name = member.strip(" \t")
            if name == "*":
                return "*"
            if name:
                names.setdefault(name.lower(), name)
    return ", ".join(names.values()) or None
