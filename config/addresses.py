"""Addresses to listen on: ``host:port``, ``[v6]:port``, ``unix:/path``."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

_FORM = "host:port, [v6]:port or unix:/path"
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\Z")
_UNIX_LONGEST = 107  # bytes of sun_path on Linux, without its NUL


@dataclass(frozen=True, slots=True)
class Listen:
    """Either ``host`` and ``port`` (0: any free one), or ``path`` of a unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it. A unix socket is; a name other than ``localhost`` is taken not to be."""
        if self.path is not None:
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def conflicts(self, other: "Listen") -> bool:
        """Whether both cannot be listened on at once: the same path, or the same port of the same or of every address."""
        if self.path is not None or other.path is not None:
            return self.path == other.path
        everywhere = ("0.0.0.0", "::")  # noqa: S104  compared with, not bound
        same_host = self.host == other.host or self.host in everywhere or other.host in everywhere
        return self.port == other.port != 0 and same_host

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Listen:
    """The address that ``text`` names; raises :class:`ValueError` that says what was expected."""
    if text.startswith("unix:"):
        return Listen(path=_unix_path(text.removeprefix("unix:")))
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"expected {_FORM}")
    if not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise ValueError("expected a port from 0 to 65535 after the last colon")
    return Listen(host=_host(host), port=int(port))


def _unix_path(path: str) -> str:
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError("expected the full path of a socket: unix:/path")
    if len(path.encode("utf-8", "surrogatepass")) > _UNIX_LONGEST:
        raise ValueError(f"expected a socket path of at most {_UNIX_LONGEST} bytes")
    return path


def _host(host: str) -> str:
    if host == "":
        raise ValueError("expected a host before the port; every address is 0.0.0.0 or [::]")
    if host.startswith("[") and host.endswith("]"):
        try:
            address = ip_address(host[1:-1])
        except ValueError:
            raise ValueError("expected an IPv6 address between the brackets") from None
        if address.version != 6:
            raise ValueError("brackets are for IPv6 addresses")
        return str(address)
    if ":" in host:
        raise ValueError("expected an IPv6 address in brackets: [v6]:port")
    if not _HOST.match(host):
        raise ValueError(f"expected {_FORM}")
    return host
