"""The servers that are measured, each started as a user would, on a core of its own, and stopped by its process id."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import family

ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 15.0
"""Seconds a server has to come up, or to go."""

_NGINX = """
{user}worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 600s; types {{}} default_type text/markdown;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream service {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 100000000; }}
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffers 32 16k; proxy_max_temp_file_size 0;
  gzip_types *; gzip_proxied any; gzip_min_length 256;
  server {{ listen 127.0.0.1:{plain}; location / {{ proxy_pass http://service; }} }}
  server {{ listen 127.0.0.1:{gzip1}; gzip on; gzip_comp_level 1; location / {{ proxy_pass http://service; }} }}
  server {{ listen 127.0.0.1:{gzip6}; gzip on; gzip_comp_level 6; location / {{ proxy_pass http://service; }} }}
}}
"""


class CannotStart(Exception):
    """A server did not come up; the message has the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that is up."""

    pid: int
    ports: Mapping[str, int]
    pids: tuple[int, ...]
    """Itself and its workers."""


def nginx_binary() -> str | None:
    """Where nginx is, if it is installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def process(command: Sequence[str], folder: Path, core: int | None, ready: Callable[[], bool]) -> Iterator[int]:
    """A process on one core, ready when this gives its id. Raises CannotStart."""
    log = folder / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PACKHORSE_LOG__ACCESS": "off"}
    with log.open("ab") as output:
        started = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        if core is not None:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(started.pid, {core})
        _wait(started, ready, log)
        yield started.pid
    finally:
        started.terminate()
        try:
            started.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _wait(started: "subprocess.Popen[bytes]", ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not ready():
        if started.poll() is not None or time.monotonic() > deadline:
            raise CannotStart(log.read_text("utf-8", "replace")[-600:] or "it said nothing")
        time.sleep(0.002)


def listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers_200(port: int, path: str) -> bool:
    """Whether a GET there is answered 200 now."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode())
        return connection.recv(64).startswith(b"HTTP/1.1 200")
    return False


@contextlib.contextmanager
def upstream(folder: Path, core: int | None) -> Iterator[Server]:
    """The service itself."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.upstream", str(port)]
    with process(command, folder, core, lambda: listening(port)) as pid:
        yield Server(pid, {"direct": port}, (pid,))


@contextlib.contextmanager
def nginx(folder: Path, core: int | None, behind: int) -> Iterator[Server]:
    """One worker; a port each for plain, gzip 1 and gzip 6."""
    binary = nginx_binary()
    if binary is None:
        raise CannotStart("nginx is not installed")
    plain, gzip1, gzip6 = free_ports(3)
    user = "user root;\n" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(user=user, folder=folder, upstream=behind, plain=plain, gzip1=gzip1, gzip6=gzip6))
    command = [binary, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
    with process(command, folder, core, lambda: listening(gzip6)) as pid:
        time.sleep(0.1)  # it listens before it has its worker
        pids = family(pid)
        if core is not None:
            for each in pids:
                os.sched_setaffinity(each, {core})
        yield Server(pid, {"nginx": plain, "nginx gzip 1": gzip1, "nginx gzip 6": gzip6}, pids)


@contextlib.contextmanager
def bare_proxy(folder: Path, core: int | None, behind: int) -> Iterator[Server]:
    """aiohttp and nothing else."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.bare_proxy", str(port), str(behind)]
    with process(command, folder, core, lambda: listening(port)) as pid:
        yield Server(pid, {"bare aiohttp": port}, (pid,))


@contextlib.contextmanager
def packhorse(folder: Path, core: int | None, behind: int) -> Iterator[Server]:
    """The gateway as it is with no settings file, but for the access log, which the others do not write either."""
    port, admin = free_ports(2)
    command = [
        sys.executable, "-m", "gateway", "serve", "--upstream", f"http://127.0.0.1:{behind}",
        "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}",
    ]  # fmt: skip
    with process(command, folder, core, lambda: answers_200(admin, "/readyz")) as pid:
        yield Server(pid, {"packhorse": port, "packhorse passing": port, "admin": admin}, (pid,))
