"""Whether an upstream can be reached, step by step: name, connection, certificate, one HEAD.

A HEAD costs nothing at any provider. No credential is sent, nothing is retried, and any answer counts: a 401 or 404 is a
server that speaks HTTP.
"""

import asyncio
import os
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

from config.schema import Route
from gateway.commands.findings import Finding

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_SOON = 14 * 86400
_DEFAULT_PORTS = {"http": 80, "https": 443}


async def probe_route(route: Route, *, patience: float, head_limit: int, others: int = 0) -> list[Finding]:
    """The findings for one route, up to the first step that failed. Each step may take ``patience`` seconds.

    ``others`` is the number of further routes that the same findings speak of.
    """
    found: list[Finding] = []
    label = f"route {route.name}" + (f" and {others} more" if others else "")
    async for finding in _steps(label, route, patience, head_limit):
        found.append(finding)
        if finding.state == "failed":
            break
    return found


async def _steps(label: str, route: Route, patience: float, head_limit: int) -> AsyncIterator[Finding]:
    if route.upstream.startswith("unix:"):
        path = route.upstream.removeprefix("unix:")
        try:
            streams = await asyncio.wait_for(asyncio.open_unix_connection(path), patience)
        except (OSError, TimeoutError) as error:
            yield Finding(
                f"{label}: socket", "failed", f"{path}: {reason(error)}", "is the service running, and may we write to it?"
            )
            return
        yield Finding(f"{label}: socket", "ok", path)
        yield await _head(label, route, *streams, patience, head_limit)
        return
    parts = urlsplit(route.upstream)
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
    yield await _name(label, host, port, patience)
    connected = await _connect(label, host, port, patience)
    if isinstance(connected, Finding):
        yield connected
        return
    reader, writer, milliseconds = connected
    yield Finding(f"{label}: connection", "ok", f"{host}:{port} in {milliseconds:.0f} ms")
    if parts.scheme == "https":
        secured = await _secure(label, route, host, writer, patience)
        yield secured
        if secured.state == "failed":
            writer.close()
            return
    yield await _head(label, route, reader, writer, patience, head_limit)


async def _name(label: str, host: str, port: int, patience: float) -> Finding:
    what = f"{label}: name"
    try:
        found = await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo(host, port), patience)
    except (OSError, UnicodeError, TimeoutError) as error:
        return Finding(what, "failed", f"{host}: {reason(error)}", "check the host in upstream, and this machine's DNS")
    return Finding(what, "ok", f"{host} is {', '.join(sorted({str(entry[4][0]) for entry in found}))}")


async def _connect(
    label: str, host: str, port: int, patience: float
) -> Finding | tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
    started = time.perf_counter()
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), patience)
    except (OSError, TimeoutError) as error:
        advice = "is the service running, and does a firewall stand between?"
        return Finding(f"{label}: connection", "failed", f"{host}:{port}: {reason(error)}", advice)
    return reader, writer, (time.perf_counter() - started) * 1000


async def _secure(label: str, route: Route, host: str, writer: asyncio.StreamWriter, patience: float) -> Finding:
    what, name = f"{label}: certificate", route.tls.server_name or host
    context = ssl.create_default_context(cafile=str(route.tls.ca) if route.tls.ca else None)
    try:
        await asyncio.wait_for(writer.start_tls(context, server_hostname=name), patience)
    except ssl.SSLCertVerificationError as error:
        advice = "name its authority as tls.ca, or the name it is made for as tls.server_name"
        return Finding(what, "failed", f"{name}: {error.verify_message}", advice)
    except (OSError, ValueError, TimeoutError) as error:
        return Finding(what, "failed", f"{name}: {reason(error)}", "does the port speak TLS? for plain HTTP write http://")
    certificate = writer.get_extra_info("peercert") or {}
    until = certificate.get("notAfter")
    if until and ssl.cert_time_to_seconds(until) - time.time() < _SOON:
        return Finding(what, "degraded", f"{name}: verified, but it ends {until}", "have the upstream renew it")
    return Finding(what, "ok", f"{name}: verified, {writer.get_extra_info('ssl_object').version()}")


async def _head(
    label: str, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float, head_limit: int
) -> Finding:
    what = f"{label}: HEAD"
    parts = urlsplit(route.upstream)
    unix = parts.scheme == "unix"
    host, path = route.host or (parts.netloc if not unix else "localhost"), (parts.path if not unix else "") or "/"
    try:
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: */*\r\n\r\n".encode())
        head = await asyncio.wait_for(_read_head(reader, head_limit), patience)
    except TimeoutError:
        return Finding(what, "degraded", f"{path}: no answer within {patience:g} s", "it may only be slow to answer HEAD")
    except (OSError, UnicodeError) as error:
        return Finding(what, "failed", f"{path}: {reason(error)}", "the service drops connections")
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), patience)
    return _judge(what, path, head, head_limit)


async def _read_head(reader: asyncio.StreamReader, limit: int) -> bytes:
    """Bytes up to the end of a head, or of the stream, or ``limit`` of them."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) <= limit:
        piece = await reader.read(2**14)
        if not piece:
            break
        head += piece
    return head.partition(b"\r\n\r\n")[0]


def _judge(what: str, path: str, head: bytes, head_limit: int) -> Finding:
    status = _STATUS.match(head)
    if status is None:
        return Finding(what, "failed", f"{path}: the answer is not HTTP/1", "check scheme and port of upstream")
    detail = f"{path}: status {int(status[1])}, head of {len(head)} bytes"
    if len(head) > head_limit:
        return Finding(what, "failed", detail, "larger than limits.headers: raise it")
    if len(head) * 2 > head_limit:
        return Finding(what, "degraded", detail, "over half of limits.headers: raise it")
    if status[1].startswith(b"5"):
        return Finding(what, "degraded", detail, "the service answers, but with an error of its own")
    return Finding(what, "ok", detail)


def reason(error: BaseException) -> str:
    """What the system says is wrong, without addresses or paths."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failed").replace("_", " ").lower()
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()  # asyncio's own text names the address
    if isinstance(error, OSError) and not error.strerror:
        return "refused or unreachable at every address"
    return (getattr(error, "strerror", None) or type(error).__name__).lower()
