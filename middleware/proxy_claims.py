"""What a trusted proxy says of the way a request came: Forwarded (RFC 7239) or X-Forwarded-*. Pure.

Only addresses are taken from a claim, and they are written anew: what goes on upstream holds no byte of a client's own making.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = re.compile(rf'[ \t]*({_WORD})=({_WORD}|"(?:[^"\\]|\\.)*")[ \t]*(;|,|\Z)')
_EMPTY = re.compile(r"[ \t]*(?:,|\Z)")
_ESCAPED = re.compile(r"\\(.)")
_PORT = re.compile(r":[0-9]{1,5}\Z")
_SCHEMES = ("http", "https")


class Claims(NamedTuple):
    """What was said. ``addresses`` of the hops, farthest first, None where one was not told or is no address; the scheme that the
    nearest proxy saw, or None."""

    addresses: tuple[str | None, ...] = ()
    scheme: str | None = None


def parse_address(text: str | None) -> IPv4Address | IPv6Address | None:
    """An address without brackets, port or zone; an IPv4 address mapped into IPv6 is the former. None for anything else."""
    try:
        parsed = ip_address(text or "")
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address) and parsed.scope_id is not None:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _node(text: str) -> str | None:
    """The address of ``1.2.3.4``, ``1.2.3.4:80``, ``2001:db8::1``, ``[2001:db8::1]`` or ``[2001:db8::1]:80``."""
    text = text.strip(" \t")
    if text.startswith("["):
        inner, bracket, port = text[1:].partition("]")
        text = inner if bracket and (not port or _PORT.match(port)) else ""
    elif text.count(":") == 1:
        text = _PORT.sub("", text)
    parsed = parse_address(text)
    return None if parsed is None else str(parsed)


def forwarded_claims(lines: Sequence[str]) -> Claims:
    """Those of Forwarded. A malformed field says nothing at all."""
    text, position = ",".join(lines), 0
    addresses: list[str | None] = []
    element: dict[str, str] = {}
    scheme = ""
    while position < len(text):
        empty = _EMPTY.match(text, position)
        if empty is not None and not element:
            position = empty.end()
            continue
        pair = _PAIR.match(text, position)
        if pair is None or pair[1].lower() in element:
            return Claims()
        element[pair[1].lower()] = _unquoted(pair[2])
        position = pair.end()
        if pair[3] != ";":
            scheme = element.get("proto", "").lower()
            addresses.append(_node(element.get("for", "")))
            element = {}
    return Claims() if element else Claims(tuple(addresses), scheme if scheme in _SCHEMES else None)


def _unquoted(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value


def x_forwarded_claims(addresses: Sequence[str], schemes: Sequence[str]) -> Claims:
    """Those of X-Forwarded-For and X-Forwarded-Proto."""
    nodes = [part for part in ",".join(addresses).split(",") if part.strip(" \t")]
    said = ",".join(schemes).rpartition(",")[2].strip(" \t").lower()
    return Claims(tuple(_node(node) for node in nodes), said if said in _SCHEMES else None)
