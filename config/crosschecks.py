"""What the schema cannot see: settings that do not go together, and files that are not what they should be.

Reads files, opens no socket and writes nothing, so that ``check-config`` is safe anywhere.
"""

import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from config.addresses import Listen, parse_listen
from config.document import KeyPath
from config.errors import Problem, dotted, shown
from config.keys import find, leaves
from config.schema import Configuration, Tls

OFF = "off"
"""``admin.listen`` of a gateway without an operator's listener."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110 5.6.2
_NEVER_SESSION = {
    *("authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "packhorse-key", "cookie", "host"),
    *("connection", "content-length", "content-type", "te", "trailer", "transfer-encoding", "upgrade"),
}
"""Fields that carry credentials, or that every request of a client has alike."""

Found = Iterator[tuple[KeyPath, str, str | None]]
"""Path, fault and what was given."""


def crosscheck(configuration: Configuration, place: Callable[[KeyPath], str | None], failed: set[str]) -> list[Problem]:
    """All that does not go together. What concerns a section that ``failed`` before is left out."""
    found: list[Problem] = []
    for check in (_listeners, _secrets, _certificates, _authorities, _session_headers, _origins):
        for path, fault, given in check(configuration):
            if path[0] not in failed:
                found.append(Problem(dotted(path), fault, given, place=place(path)))
    if "listen" in failed or "admin" in failed:
        found = [problem for problem in found if not problem.fault.startswith("cannot listen where")]
    return found


def admin_listen(configuration: Configuration) -> Listen | None:
    """Where the operator's listener is, or None when it is off. Raises :class:`ValueError` for a bad address."""
    return None if configuration.admin.listen == OFF else parse_listen(configuration.admin.listen)


def _listeners(configuration: Configuration) -> Found:
    try:
        listen: Listen | None = parse_listen(configuration.listen)
    except ValueError as error:
        listen = None
        yield ("listen",), str(error), shown(configuration.listen)
    try:
        admin = admin_listen(configuration)
    except ValueError as error:
        yield ("admin", "listen"), str(error), shown(configuration.admin.listen)
        return
    if admin is None:
        return
    if not admin.is_loopback and configuration.admin.token is None:
        fault = "needs admin.token, because other machines reach it"
        yield ("admin", "listen"), fault, shown(configuration.admin.listen)
    if listen is not None and listen.conflicts(admin):
        yield ("admin", "listen"), "cannot listen where listen does", shown(configuration.admin.listen)


def _secrets(configuration: Configuration) -> Found:
    for path, value in leaves(configuration):
        option = find(path)
        if option is not None and option.secret and isinstance(value, str) and not value.strip():
            yield path, "expected a secret, but it is empty", None


def _certificates(configuration: Configuration) -> Found:
    tls: Tls | None = configuration.tls
    if tls is None:
        return
    unreadable = [(name, fault) for name in ("certificate", "key") if (fault := _unreadable(getattr(tls, name)))]
    for name, fault in unreadable:
        yield ("tls", name), fault, shown(str(getattr(tls, name)))
    if unreadable:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            yield ("tls", "key"), "is not the key of tls.certificate", shown(str(tls.key))
        else:
            yield ("tls",), "expected a PEM certificate chain and its unencrypted PEM key", None
    except (OSError, ValueError):
        yield ("tls",), "expected a PEM certificate chain and its unencrypted PEM key", None


def _authorities(configuration: Configuration) -> Found:
    for index, route in enumerate(configuration.routes):
        path = ("routes", index, "tls")
        if route.tls.ca is None and route.tls.server_name is None:
            continue
        if not route.upstream.startswith("https:"):
            yield path, "is for https upstreams only", None
        if route.tls.ca is None:
            continue
        if fault := _unreadable(route.tls.ca):
            yield (*path, "ca"), fault, shown(str(route.tls.ca))
            continue
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(route.tls.ca)
        except (OSError, ValueError):
            yield (*path, "ca"), "expected PEM certificates", shown(str(route.tls.ca))


def _session_headers(configuration: Configuration) -> Found:
    seen: set[str] = set()
    for index, name in enumerate(configuration.session.headers):
        path = ("session", "headers", index)
        if not _TOKEN.match(name):
            yield path, "expected the name of a header field", shown(name)
        elif name.lower() in _NEVER_SESSION:
            yield path, "cannot carry a session id", shown(name)
        elif name.lower() in seen:
            yield path, "given twice", shown(name)
        seen.add(name.lower())


def _origins(configuration: Configuration) -> Found:
    for index, origin in enumerate(configuration.cors.origins):
        if origin != "*" and not _is_origin(origin):
            yield ("cors", "origins", index), "expected an origin such as https://app.example, or *", shown(origin)


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and text == f"{parts.scheme}://{parts.netloc}"
        and "@" not in text
    )


def _unreadable(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        return f"cannot be read: {(error.strerror or 'unknown reason').lower()}"
    return None
