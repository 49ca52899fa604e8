"""Entity tags and the conditions that carry them (RFC 9110 8.8.3, 13.1).

A body coded here is another representation than the one the upstream tagged, so a strong ETag is weakened on the way down
(contract 2) and mapped back on the way up. Field lines are cut at commas outside quotes; a member that is no entity tag is
passed on as it is, whatever it holds. Nothing here raises.

Theory of operation of TagMemory. It holds digests of (route, tag) pairs that came strong from the upstream and left weak, the
least recently used forgotten first. It is a cache: a forgotten tag goes up weak, which If-None-Match does not mind and
If-Match answers with 412. It never holds bodies, and a weak tag of the upstream's own is never in it.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MEMBER = re.compile(r'(?:[^,"]++|"[^"]*+"|")++')  # a quote without its pair is an ordinary character
_TAG = re.compile(r'(W/)?("[^"]*")')  # any character between the quotes: servers do send spaces and UTF-8
_OWN = re.compile(r'W/"sha256-[0-9a-f]{32}"')

Known = Callable[[str], bool]
"""Whether we weakened this opaque tag (with its quotes) of the route at hand: ``TagMemory.known(route)``."""


def own_tag(digest: str) -> str:
    """The tag of our own making for a body without one, from its pack digest ``sha256:<64 hex>``."""
    return f'W/"sha256-{digest.removeprefix("sha256:")[:32]}"'


def weaken(etag: str) -> str:
    """The weak form of an entity tag; one that is weak already, or malformed, is returned as it is."""
    stripped = etag.strip(" \t")
    match = _TAG.fullmatch(stripped)
    return etag if match is None or match[1] else f"W/{stripped}"


class TagMemory:
    """Which strong tags of the upstream we sent to clients as weak ones: at most ``limit``, 16 bytes each."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def weaken(self, route: str, etag: str) -> str:
        """The weak form of an upstream's tag, remembered if it was strong."""
        weak = weaken(etag)
        if weak != etag:
            key = _key(route, weak[2:])
            self._seen[key] = None
            self._seen.move_to_end(key)
            if len(self._seen) > self._limit:
                self._seen.popitem(last=False)
        return weak

    def known(self, route: str) -> Known:
        """The test ``to_upstream`` takes, for one route."""

        def test(opaque: str) -> bool:
            key = _key(route, opaque)
            if key not in self._seen:
                return False
            self._seen.move_to_end(key)
            return True

        return test


def _key(route: str, opaque: str) -> bytes:
    # Hashed, so that long tags cost no more than short ones. No separator can be forged: the route's length leads.
    text = f"{len(route)}:{route}{opaque}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Condition:
    """If-None-Match or If-Match for the upstream."""

    values: tuple[str, ...]
    """The field's lines; none: the field is not sent."""
    own: tuple[str, ...] = ()
    """Tags of our own making that were taken out, as the client sent them."""


def if_none_match(values: Sequence[str], known: Known) -> Condition:
    """RFC 9110 13.1.2: tags we weakened become strong again, tags of our own making are taken out.

    All else, ``*`` too, stays byte for byte; a line of which nothing is left is dropped.
    """
    lines: list[str] = []
    own: list[str] = []
    for line in values:
        restored = _restored(line, known)
        taken = [member for member in _members(restored) if _OWN.fullmatch(member)]
        if not taken:
            lines.append(restored)
            continue
        own += taken
        rest = [raw for raw in _MEMBER.findall(restored) if not _OWN.fullmatch(raw.strip(" \t"))]
        kept = ",".join(rest).strip(" \t")
        if any(raw.strip(" \t") for raw in rest):
            lines.append(kept)
    return Condition(tuple(lines), tuple(own))


def if_match(values: Sequence[str], known: Known) -> Condition:
    """RFC 9110 13.1.1: tags we weakened become strong again, so that the upstream's strong comparison can succeed.

    A tag of our own making stays: it is weak, matches nothing, and the upstream's 412 is the right answer. (Without it, the
    request would become unconditional.)
    """
    return Condition(tuple(_restored(line, known) for line in values))


def if_range_is_ours(value: str, known: Known) -> bool:
    """Whether If-Range carries a tag that we weakened or made (RFC 9110 13.1.5).

    Then drop it, and Range with it: the client holds a part of a body coded here, and Range alone would fetch a part of
    another one.
    """
    stripped = value.strip(" \t")
    match = _TAG.fullmatch(stripped)
    if match is None or match[1] is None:
        return False
    return known(match[2]) or _OWN.fullmatch(stripped) is not None


def matches(values: Sequence[str], own: str) -> bool:
    """Whether an entity-tag list names the tag ``own``, by weak comparison (RFC 9110 8.8.3.2).

    ``*`` does not match here: it asks whether anything exists, which is the upstream's to answer.
    """
    sought = own.strip(" \t").removeprefix("W/")
    return any(member.removeprefix("W/") == sought for line in values for member in _members(line))


def _members(line: str) -> list[str]:
    return [stripped for raw in _MEMBER.findall(line) if (stripped := raw.strip(" \t"))]


def _restored(line: str, known: Known) -> str:
    if "W/" not in line:
        return line

    def restore(found: re.Match[str]) -> str:
        raw = found[0]
        tag = _TAG.fullmatch(raw.strip(" \t"))
        return raw.replace("W/", "", 1) if tag and tag[1] and known(tag[2]) else raw

    return _MEMBER.sub(restore, line)
