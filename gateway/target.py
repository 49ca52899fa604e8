"""The request target, taken apart without decoding a byte of it (RFC 9112 3.2, RFC 3986 2.2)."""

import re
from dataclasses import dataclass

from middleware.problems import Problem

_ABSOLUTE = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://[^/?#]*")
_DOT = re.compile("%2[eE]")
_SLASH = re.compile(r"/|\\|%2[fF]|%5[cC]")


@dataclass(frozen=True, slots=True)
class Target:
    """``path`` and ``query`` as the client wrote them; ``query`` keeps its question mark and is empty where there is none."""

    path: str
    query: str


def split_target(raw: str) -> Target:
    """Path and query of an origin-form or absolute-form target; the authority of the latter is ignored.

    Only configured upstreams are ever contacted, so nothing a client writes here chooses a host. Raises Problem.
    """
    match = _ABSOLUTE.match(raw)
    if match:
        raw = raw[match.end() :]
        if not raw.startswith("/"):
            raw = "/" + raw
    if not raw.startswith("/"):
        raise Problem("bad-request", "the request target is neither a path nor an http URL")
    if "#" in raw:
        raise Problem("bad-request", "the request target holds a fragment")
    path, mark, query = raw.partition("?")
    return Target(path, mark + query)


def under(path: str, prefix: str) -> bool:
    """Whether ``prefix`` (with or without a closing slash) covers ``path`` in whole segments."""
    stem = prefix.rstrip("/")
    return path.startswith(stem) and (len(path) == len(stem) or path[len(stem)] == "/")


def climbs_out(path: str, prefix: str) -> bool:
    """Whether dot segments would take the path out of the prefix once an upstream resolves them.

    Upstreams differ in what they decode and merge, so the reading is the one that climbs most: ``%2e`` is a dot, ``%2f`` and a
    backslash are slashes, and an empty segment is none.
    """
    if ".." not in path and "%2" not in path:
        return False
    depth = 0
    floor = len([part for part in prefix.split("/") if part])
    for part in _SLASH.split(_DOT.sub(".", path)):
        if part == "..":
            depth -= 1
            if depth < floor:
                return True
        elif part not in ("", "."):
            depth += 1
    return False
