"""What ``packhorse doctor`` asks of this machine: store, codings, ports, descriptors."""

import errno
import http.client
import os
import resource
import shutil
import socket
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from config.addresses import Listen, parse_listen
from config.crosschecks import admin_listen
from config.schema import Configuration
from gateway.commands.findings import Finding
from gateway.commands.upstream_probe import reason
from gateway.principals import key_path


def probe_machine(configuration: Configuration) -> list[Finding]:
    """Everything but the upstreams. What is written is a file of a few bytes beside the store, and it is removed."""
    return [*_store(configuration), *_codings(), *_ports(configuration), *_descriptors(configuration)]


def _store(configuration: Configuration) -> Iterator[Finding]:
    if configuration.store.kind == "memory":
        yield Finding("store", "ok", "in memory: forgotten at a restart")
        return
    file = configuration.store.path
    folder = file.parent
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"packhorse doctor")
            probe.flush()
    except OSError as error:
        yield Finding("store", "degraded", f"{folder}: {reason(error)}", "bases stay in memory until it can be written to")
    else:
        yield Finding("store", "ok", f"{folder} can be written to")
    yield _space(configuration, folder)
    if file.exists():
        yield _mode("store: mode", file, "it holds people's text")
        yield _sound(file)
    if key_path(file).exists():
        yield _mode("store: key", key_path(file), "who has it can tell whose bases are whose")


def _space(configuration: Configuration, folder: Path) -> Finding:
    free, wanted = shutil.disk_usage(folder).free, configuration.bases.total_bytes
    detail = f"{free // 2**20} MiB free, up to {wanted // 2**20} MiB of bases"
    if free < wanted:
        return Finding("store: space", "degraded", detail, "free some, or lower bases.total_bytes")
    return Finding("store: space", "ok", detail)


def _mode(what: str, file: Path, why: str) -> Finding:
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        return Finding(what, "degraded", f"{mode:04o}", f"{why}: chmod 600 {file}")
    return Finding(what, "ok", f"{mode:04o}")


def _sound(file: Path) -> Finding:
    """Whether SQLite can read it. Opened read-only: a running gateway is not disturbed."""
    connection = None
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1)
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error as error:
        return Finding("store: file", "degraded", str(error), "the gateway moves a broken file aside and starts anew")
    finally:
        if connection is not None:
            connection.close()
    return Finding("store: file", "ok", f"{file.stat().st_size // 2**10} KiB, {tables} tables")


def _codings() -> Iterator[Finding]:
    sample = b"a packhorse carries loads where the road is bad " * 20
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        prefix = zstd.ZstdDict(sample, is_raw=True).as_prefix
        coded = zstd.compress(sample, zstd_dict=prefix)
        good = zstd.decompress(coded, zstd_dict=prefix) == sample and len(coded) < 64
    except ImportError:
        yield Finding("coding zstd", "failed", "not installed", "pip install backports.zstd")
    else:
        state = "with dictionaries" if good else "does not restore what it coded"
        yield Finding("coding zstd", "ok" if good else "failed", state, "" if good else "reinstall backports.zstd")
    try:
        import brotli  # type: ignore[import-untyped]
    except ImportError:
        yield Finding("coding br", "degraded", "not installed: br bodies pass undecoded", "pip install brotli")
    else:
        good = brotli.decompress(brotli.compress(sample)) == sample
        yield Finding("coding br", "ok" if good else "failed", "decoding", "" if good else "reinstall brotli")


def _ports(configuration: Configuration) -> Iterator[Finding]:
    admin = admin_listen(configuration)
    running = admin is not None and _is_live(admin)
    for key, listen in (("listen", parse_listen(configuration.listen)), ("admin.listen", admin)):
        if listen is not None:
            yield _port(key, listen, running)


def _port(key: str, listen: Listen, running: bool) -> Finding:
    fault = _bind(listen)
    if fault is None:
        return Finding(key, "ok", f"{listen} is free")
    if fault.errno == errno.EADDRINUSE and running:
        return Finding(key, "ok", f"{listen} is in use by a gateway that is up")
    advice = f"stop what listens there, or change {key}" if fault.errno == errno.EADDRINUSE else f"change {key}"
    return Finding(key, "failed", f"{listen}: {reason(fault)}", advice)


def _bind(listen: Listen) -> OSError | None:
    """Bind and let go. A unix socket is not bound, since that would leave a file: someone answering there is in use."""
    try:
        if listen.path is not None:
            return _bind_unix(listen.path)
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def _bind_unix(path: str) -> OSError | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        if probe.connect_ex(path) == 0:
            return OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    folder = Path(path).parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return OSError(errno.EACCES, os.strerror(errno.EACCES))
    return None


def _is_live(admin: Listen) -> bool:
    if admin.path is not None or admin.port == 0:
        return False
    connection = http.client.HTTPConnection(admin.host, admin.port, timeout=1)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _descriptors(configuration: Configuration) -> Iterator[Finding]:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * configuration.limits.in_flight + 64
    if most != resource.RLIM_INFINITY and most < wanted:
        advice = f"ulimit -n {wanted}, or limits.in_flight at most {max(1, (most - 64) // 2)}"
        yield Finding("open files", "degraded", f"{most}, limits.in_flight may need {wanted}", advice)
    else:
        yield Finding("open files", "ok", f"up to {most}")
