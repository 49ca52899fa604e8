"""Opening listeners: TCP on IPv4 and IPv6, unix sockets, TLS, and a clear word where a port is taken."""

import errno
import socket
import ssl
from pathlib import Path

from aiohttp import web

from config.addresses import Listen
from config.schema import Tls


class CannotListen(Exception):
    """The address cannot be listened on; the text says which, why, and what to do."""


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The listener's TLS, or None for plain HTTP."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["http/1.1"])
    return context


async def listen_on(runner: web.BaseRunner, address: Listen, context: ssl.SSLContext | None, what: str) -> web.BaseSite:
    """A site of ``runner`` on an address. Raises CannotListen."""
    site: web.BaseSite
    try:
        if address.path is not None:
            _remove_stale(address.path)
            site = web.UnixSite(runner, address.path, ssl_context=context)
        else:
            site = web.TCPSite(runner, address.host, address.port, ssl_context=context, reuse_address=True, backlog=1024)
        await site.start()
    except OSError as error:
        raise CannotListen(_sentence(address, what, error)) from error
    return site


def _sentence(address: Listen, what: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{what}: {address} is taken by another program; stop that one, or choose another address (port 0: any free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{what}: no permission to listen on {address}; ports under 1024 need a privilege"
    return f"{what}: cannot listen on {address}: {error.strerror or 'not an address of this machine'}"


def _remove_stale(path: str) -> None:
    """A socket file that nobody answers on is left from a process that was killed; one that lives raises OSError."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            Path(path).unlink(missing_ok=True)
            return
        except OSError:  # busy: it lives
            pass
    raise OSError(errno.EADDRINUSE, "in use")
