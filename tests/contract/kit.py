"""What the contract's examiners hold: an upstream in threads, the gateway as a process, and raw sockets between them.

Nothing here knows how the gateway is made. The upstream serves many tests at once: each takes paths of its own
(:func:`fresh`) and says what is answered there (:meth:`Upstream.at`). All waits are bounded.
"""

import contextlib
import hashlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from support.client import request_bytes
from support.messages import FieldsLike, Request, Response, as_fields, members, parse_fields, parse_response_head, values
from support.packs import decoded
from support.scrapes import Scrape, parse
from support.upstream import Reply, closed_port

from ctxpack import ContextPack

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 8.0
SPOKEN = "ctxpack.delta.v1, ctxpack.pack.v1, gzip, zstd"
OWN_REQUEST_FIELDS = (
    "ctxpack-accept", "available-dictionary", "ctxpack-base", "packhorse-session", "packhorse-link", "packhorse-debug",
)  # fmt: skip
_numbers = itertools.count(1)


def fresh(prefix: str = "") -> str:
    """A path nobody else uses."""
    return f"{prefix}/x{os.getpid()}-{next(_numbers)}"


def name(stem: str = "s") -> str:
    """A session id, token or key nobody else uses."""
    return f"{stem}-{os.getpid()}-{next(_numbers)}-{int(time.time())}"


def digest(text: str | bytes) -> str:
    """Pack digest of that content."""
    return ContextPack.from_content(text.decode() if isinstance(text, bytes) else text).digest


def digest_by_hand(text: bytes, chunks: list[bytes]) -> str:
    """The same, from chunks and RFC 4648 alone."""
    import base64

    assert b"".join(chunks) == text
    encoded = ",".join(f'"{base64.b64encode(chunk).decode()}"' for chunk in chunks)
    return "sha256:" + hashlib.sha256(f'{{"chunk_bytes":[{encoded}],"schema":"ctxpack.pack.v1"}}'.encode()).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------- sockets


class Cut(Exception):
    """The peer closed before what was waited for had come."""


class Wire:
    """A socket that counts."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(PATIENCE)
        self.buffer = bytearray()
        self.sent = self.received = 0
        self.transcript = bytearray()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)
        self.sent += len(data)

    def _more(self) -> bool:
        data = self.socket.recv(262144)
        self.received += len(data)
        self.buffer += data
        if len(self.transcript) < 1 << 20:
            self.transcript += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        start = 0
        while (at := self.buffer.find(mark, start)) < 0:
            start = max(0, len(self.buffer) - len(mark) + 1)
            if not self._more():
                raise Cut(bytes(self.buffer[-300:]))
        return self.take(at + len(mark))

    def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            if not self._more():
                raise Cut(bytes(self.buffer[-300:]))
        return self.take(count)

    def to_end(self) -> bytes:
        while self._more():
            pass
        return self.take(len(self.buffer))

    def take(self, count: int) -> bytes:
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def ends(self, within: float = PATIENCE) -> bool:
        """Whether the peer closes, with nothing more said."""
        self.socket.settimeout(within)
        try:
            return self.to_end() == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(PATIENCE)

    def reset(self) -> None:
        """RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def chunks(self, response: Response | None = None) -> tuple[bytes, list[bytes], list[tuple[bytes, bytes]]]:
        raw, pieces = bytearray(), [] if response is None else response.chunks
        while True:
            line = self.until(b"\r\n")
            raw += line
            size = int(line[:-2].split(b";")[0], 16)
            if not size:
                break
            data = self.exactly(size + 2)
            assert data.endswith(b"\r\n")
            raw += data
            pieces.append(data[:-2])
        lines = []
        while (line := self.until(b"\r\n")) != b"\r\n":
            raw += line
            lines.append(line[:-2])
        return bytes(raw + b"\r\n"), pieces, parse_fields(lines)


class Client(Wire):
    """Connected to the gateway (or to any port of loopback)."""

    def __init__(self, port: Any) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port if isinstance(port, int) else port.port), PATIENCE))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def head(self, method: str = "GET") -> Response:
        interim = []
        while True:
            response = parse_response_head(self.until(b"\r\n\r\n"))
            if response.status >= 200 or response.status == 101:
                break
            interim.append(response)
        response.interim = interim
        if method == "HEAD" or response.status in (101, 204, 304):
            response.framing = "none"
        elif response.values("transfer-encoding"):
            response.framing = "chunked"
        elif response.values("content-length"):
            response.framing = "length"
        else:
            response.framing = "close"
        return response

    def body_of(self, response: Response) -> Response:
        try:
            if response.framing == "chunked":
                try:
                    response.raw_body, _, response.trailers = self.chunks(response)
                finally:
                    response.body = b"".join(response.chunks)
            elif response.framing == "length":
                response.body = response.raw_body = self.exactly(int(response.values("content-length")[0]))
            elif response.framing == "close":
                response.body = response.raw_body = self.to_end()
        except (Cut, ConnectionResetError):
            return response
        response.complete = True
        return response

    def response(self, method: str = "GET") -> Response:
        return self.body_of(self.head(method))

    def ask(self, method: str, target: str | bytes, fields: FieldsLike = (), body: bytes = b"", **more: Any) -> Response:
        self.send(request_bytes(method, target, fields, body, **more))
        return self.response(method)


def ask(where: Any, method: str, target: str | bytes, fields: FieldsLike = (), body: bytes = b"", **more: Any) -> Response:
    """One exchange on a connection of its own."""
    with Client(where) as client:
        return client.ask(method, target, fields, body, **more)


def get(where: Any, target: str, fields: FieldsLike = ()) -> Response:
    return ask(where, "GET", target, fields)


def raw(where: Any, data: bytes, method: str = "GET") -> Response:
    """The answer to exactly those bytes."""
    with Client(where) as client:
        client.send(data)
        return client.response(method)


def problem(response: Response, status: int, code: str) -> dict[str, Any]:
    """The response is that problem of RFC 9457, and nothing else."""
    assert response.status == status, (response.raw_head, response.body[:300])
    assert response.text("content-type").split(";")[0] == "application/problem+json"
    said = json.loads(response.body)
    assert said["type"] == f"urn:packhorse:{code}", said
    assert said.get("status", status) == status
    return said


# ---------------------------------------------------------------- upstream


class Peer(Wire):
    """The gateway as the upstream sees it."""

    index = 0

    def request_head(self) -> Request | None:
        try:
            head = self.until(b"\r\n\r\n")
        except (Cut, OSError):
            return None
        first, *lines = head[:-4].split(b"\r\n")
        method, target, version = first.split(b" ")
        return Request(head, method, target, version, parse_fields(lines), connection=self.index)

    def request_body(self, request: Request) -> None:
        if members(request.fields, "transfer-encoding"):
            assert not values(request.fields, "content-length")
            request.raw_body, pieces, request.trailers = self.chunks()
            request.body = b"".join(pieces)
        elif length := request.value("content-length"):
            request.body = request.raw_body = self.exactly(int(length))

    def begin(self, fields: FieldsLike = (), status: int = 200) -> None:
        lines = [b"HTTP/1.1 %d OK" % status, *(n + b": " + v for n, v in as_fields(fields)), b"Transfer-Encoding: chunked"]
        self.send(b"\r\n".join(lines) + b"\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self) -> None:
        self.send(b"0\r\n\r\n")

    def gone(self, within: float = PATIENCE) -> bool:
        """Whether the gateway closes the connection within that time."""
        return self.ends(within)


Script = Callable[[Peer, Request], None]


class Raw:
    """An answer that is a script: it sends what it likes. ``head_only``: it is called when the head is there."""

    def __init__(self, script: Script, *, head_only: bool = False) -> None:
        self.script, self.head_only = script, head_only


class Upstream:
    """Answers by path. ``log[path]`` holds the requests that came."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self._listener.getsockname()[1]
        self.authority = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.authority}"
        self._answers: dict[str, Any] = {}
        self.log: dict[str, list[Request]] = {}
        self.connections = 0
        self._lock = threading.Lock()
        self._peers: set[Peer] = set()
        self._stopping = False
        threading.Thread(target=self._accept, daemon=True).start()

    def at(self, path: str, answer: Any) -> str:
        """From now on: a Reply, raw bytes, a Raw script, or a function from request to one of those."""
        self._answers[path] = answer
        self.log.setdefault(path, [])
        return path

    def seen(self, path: str) -> list[Request]:
        return self.log.get(path, [])

    def last(self, path: str) -> Request:
        return self.log[path][-1]

    def _accept(self) -> None:
        while not self._stopping:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Peer(connected)
            peer.socket.settimeout(120)
            with self._lock:
                self._peers.add(peer)
                peer.index = self.connections
                self.connections += 1
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError, Cut):
            while (request := peer.request_head()) is not None:
                path = request.target.decode("latin-1").split("?")[0]
                answer = self._answers.get(path)
                head_only = isinstance(answer, Raw) and answer.head_only
                self.log.setdefault(path, []).append(request)
                if not head_only:
                    peer.request_body(request)
                if not self._answer(peer, request, answer):
                    break
        with contextlib.suppress(OSError):
            peer.close()
        with self._lock:
            self._peers.discard(peer)

    def _answer(self, peer: Peer, request: Request, answer: Any) -> bool:
        if callable(answer) and not isinstance(answer, Raw):
            answer = answer(request)
        match answer:
            case None:
                peer.send(Reply(404, [("Content-Type", "text/plain")], b"nothing here").to_bytes())
            case Raw():
                answer.script(peer, request)
            case bytes():
                peer.send(answer)
            case Reply():
                data = answer.to_bytes()
                if request.method == b"HEAD":
                    data = data[: data.index(b"\r\n\r\n") + 4]
                peer.send(data)
                return answer.framing != "close"
        return peer.socket.fileno() >= 0

    def close(self) -> None:
        self._stopping = True
        self._listener.close()
        with self._lock:
            for peer in self._peers:
                with contextlib.suppress(OSError):
                    peer.socket.shutdown(socket.SHUT_RDWR)


def text_reply(body: str | bytes, *fields: tuple[str, str], status: int = 200, **more: Any) -> Reply:
    body = body.encode() if isinstance(body, str) else body
    return Reply(status, [("Content-Type", "text/plain; charset=utf-8"), *fields], body, **more)


# ---------------------------------------------------------------- gateway


class Gateway:
    """``port``, ``admin`` (its port), ``pid``, ``log``; see :func:`gateway`."""

    def __init__(self, folder: Path, port: int, admin: int, config: Path) -> None:
        self.folder, self.port, self.admin, self.config = folder, port, admin, config
        self.log_file = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: list[str], environment: dict[str, str] | None, wait: bool = True) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith("PACKHORSE_")}
        env |= {"PYTHONPATH": str(ROOT), **(environment or {})}
        with self.log_file.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway", *arguments], cwd=self.folder, env=env, stdout=output, stderr=output
            )
        if wait:
            self.ready()

    def again(self, environment: dict[str, str] | None = None) -> None:
        """Start it anew with the same file."""
        self.start(["serve", "--config", str(self.config)], environment)

    def ready(self, within: float = 25.0) -> None:
        until(lambda: self.alive() and self.status("/readyz") == 200, within)

    def alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the gateway ended: {self.log[-3000:]}"
        return True

    def status(self, path: str) -> int:
        try:
            return get(self.admin, path).status
        except (OSError, Cut):
            return 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", "replace")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, within: float = 15.0) -> int:
        assert self.process is not None
        return self.process.wait(within)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def memory(self, field: str = "VmRSS") -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(field)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def metrics(self) -> Scrape:
        response = get(self.admin, "/metrics")
        assert response.status == 200
        return Scrape(response, parse(response.body.decode()))

    def counted(self, metric: str, at_least: float = 1, **labels: str) -> Scrape:
        """A scrape in which that sum is reached."""
        last: list[Scrape] = []

        def reached() -> bool:
            last[:] = [self.metrics()]
            return last[0].total(metric, **labels) >= at_least

        until(reached)
        return last[0]

    def rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the settings file."""
        document = yaml.safe_load(self.config.read_text())
        change(document)
        self.config.write_text(yaml.safe_dump(document))


def settings(
    up: Upstream | str, *, kind: str = "prepare", route: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """One route ``r``, memory store; sections override or extend."""
    url = up if isinstance(up, str) else up.url
    document: dict[str, Any] = {
        "store": {"kind": "memory"},
        "drain": "5s",
        "routes": [{"name": "r", "match": "/", "upstream": url, "kind": kind, **(route or {})}],
    }
    for key, value in sections.items():
        document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
    return document


@contextlib.contextmanager
def gateway(
    up: Upstream | str,
    *,
    environment: dict[str, str] | None = None,
    wait: bool = True,
    folder: Path | None = None,
    **more: Any,
) -> Iterator[Gateway]:
    """The gateway in a process of its own, ready; killed at the end."""
    document = settings(up, **more)
    with tempfile.TemporaryDirectory(prefix="phc") as made:
        where = folder or Path(made)
        port, admin = closed_port(), closed_port()
        document.setdefault("listen", f"127.0.0.1:{port}")
        document["admin"] = {"listen": f"127.0.0.1:{admin}", **document.get("admin", {})}
        config = where / "packhorse.yaml"
        config.write_text(yaml.safe_dump(document))
        made_gateway = Gateway(where, port, admin, config)
        try:
            made_gateway.start(["serve", "--config", str(config)], environment, wait)
            yield made_gateway
        finally:
            made_gateway.kill()


_zygotes: list[subprocess.Popen[str]] = []


def packhorse(*arguments: str, environment: dict[str, str] | None = None, cwd: Any = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, in a process of its own (see zygote.py)."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PACKHORSE_")}
    env |= {"PYTHONPATH": str(ROOT), **(environment or {})}
    if not _zygotes:
        script = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
        made = subprocess.Popen(script, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        _zygotes.append(made)
    zygote = _zygotes[0]
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    zygote.stdin.write(json.dumps({"arguments": arguments, "environment": env, "cwd": str(cwd) if cwd else None}) + "\n")
    zygote.stdin.flush()
    told = json.loads(zygote.stdout.readline())
    return subprocess.CompletedProcess(arguments, told["code"], told["stdout"], told["stderr"])


def end_zygote() -> None:
    """At the end of a session."""
    for zygote in _zygotes:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        zygote.stdin.close()
        zygote.stdout.close()
        zygote.wait(10)
    _zygotes.clear()


def until(true: Callable[[], Any], within: float = PATIENCE) -> Any:
    """The first true value of what is asked again and again."""
    deadline = time.monotonic() + within
    while True:
        value = true()
        if value or time.monotonic() > deadline:
            assert value, "it never came true"
            return value
        time.sleep(0.02)


# ---------------------------------------------------------------- a client that speaks Context Pack


class Holder:
    """Keeps what it holds, says so, rebuilds and verifies. ``fields`` go with every request."""

    def __init__(
        self,
        where: Any,
        session: str | None = "new",
        *,
        accept: str | None = SPOKEN,
        fields: FieldsLike = (),
        debug: bool = True,
    ) -> None:
        self.where = where
        self.session = name() if session == "new" else session
        self.accept = accept
        self.fields = as_fields(fields)
        self.held: dict[str, ContextPack] = {}
        self.debug = debug

    def hold(self, text: str | bytes) -> str:
        pack = ContextPack.from_content(text.decode() if isinstance(text, bytes) else text)
        self.held.pop(pack.digest, None)
        self.held[pack.digest] = pack
        return pack.digest

    def request_fields(self) -> list[tuple[bytes, bytes]]:
        fields: list[tuple[str, str]] = []
        if self.accept is not None:
            fields.append(("Accept-Encoding", self.accept))
        if self.session is not None:
            fields.append(("Packhorse-Session", self.session))
        if self.held:
            fields.append(("Ctxpack-Base", ", ".join(list(self.held)[:-9:-1])))
        if self.debug:
            fields.append(("Packhorse-Debug", "1"))
        return [*as_fields(fields), *self.fields]

    def ask(self, method: str, target: str, body: bytes = b"", fields: FieldsLike = (), **more: Any) -> Response:
        given = as_fields(fields)
        names = {key.lower() for key, _ in given}
        own = [pair for pair in self.request_fields() if pair[0].lower() not in names]
        return self.read(ask(self.where, method, target, [*own, *given], body, **more))

    def get(self, target: str, *fields: tuple[str, str]) -> Response:
        return self.ask("GET", target, fields=fields)

    def read(self, response: Response) -> Response:
        """Rebuild, verify, remember; the response's ``body`` stays as it came, ``response.content`` is what it was."""
        assert response.complete, response.raw_head
        content = decoded(response, self.held) if response.body else b""
        response.content = content  # type: ignore[attr-defined]
        if response.status == 200 and content:
            with contextlib.suppress(UnicodeDecodeError):
                made = self.hold(content)
                if (said := response.text("ctxpack-digest")) is not None:
                    assert said == made
        return response


def is_delta(response: Response) -> bool:
    return response.members("content-encoding")[:1] == ["ctxpack.delta.v1"]


def why(response: Response) -> str | None:
    return response.text("packhorse-why")


def stop(gw: Gateway, number: int = signal.SIGTERM) -> int:
    gw.signal(number)
    return gw.wait()
