"""Field lists as RFC 9110 5.6 reads them, and the names that have a meaning for a gateway."""

from collections.abc import Iterable

from multidict import CIMultiDict

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "te", "trailer", "upgrade"}
    | {"proxy-authorization", "proxy-authenticate", "proxy-authentication-info", "http2-settings"}
)
"""RFC 9110 7.6.1; the proxy credentials are for us alone (11.7)."""

OWN_REQUEST = frozenset(
    {"packhorse-session", "packhorse-link", "packhorse-debug", "packhorse-key", "ctxpack-accept", "ctxpack-base"}
    | {"available-dictionary", "dictionary-id", "expect"}
)
"""What a client says to the gateway and not to the upstream (contract 2; Expect is answered here)."""

COOKIE = "packhorse_session"
"""Our session cookie; it ends here too."""

FORWARDING = frozenset(
    {"forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-real-ip"}
    | {"x-forwarded-server", "x-forwarded-prefix", "x-forwarded-by", "x-forwarded-ssl"}
)
"""Proxy fields that tell of the client."""


def tokens(values: Iterable[str]) -> list[str]:
    """The members of a comma-separated list over any number of lines, lower-cased, empty ones left out."""
    return [token for value in values for part in value.split(",") if (token := part.strip().lower())]


def drop(headers: CIMultiDict[str], names: frozenset[str]) -> None:
    """Take out every field of these (lower-case) names."""
    for name in names.intersection(map(str.lower, headers)):
        headers.popall(name, None)


def drop_hop_by_hop(headers: CIMultiDict[str], also: frozenset[str] = frozenset()) -> None:
    """Take out the hop-by-hop fields and those that Connection names, and ``also`` those."""
    if "Connection" in headers:
        for name in tokens(headers.getall("Connection")):
            headers.popall(name, None)
    drop(headers, HOP_BY_HOP | also)


def drop_cookie(headers: CIMultiDict[str]) -> None:
    """Take our cookie out; the others keep their bytes."""
    lines = headers.getall("Cookie", ())
    if not any(COOKIE in line for line in lines):
        return
    kept = []
    for line in lines:
        pairs = [pair for pair in line.split(";") if pair.strip().partition("=")[0] != COOKIE]
        if pairs:
            kept.append(";".join(pairs).strip())
    headers.popall("Cookie", None)
    for line in kept:
        headers.add("Cookie", line)
