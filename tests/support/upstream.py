"""An upstream that does exactly what a test says, on a real socket.

A script is ``async def script(peer)``, run for each connection: it reads requests, sends bytes, waits, closes or resets. Most
tests need less: :func:`each` makes a script from ``async def answer(peer, request)``, and :class:`Reply` is what a plain answer
looks like. What arrived is kept: ``upstream.requests``, ``upstream.peers``.
"""

import asyncio
import contextlib
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.channel import PATIENCE, Channel, Ended, eventually
from support.messages import FieldsLike, Request, as_fields, chunked, head_bytes, read_request_body, read_request_head

Script = Callable[["Peer"], Awaitable[None]]


@dataclass
class Reply:
    """A complete answer. ``feed`` is how it is written: ``whole`` in one write, ``bytes`` one by one."""

    status: int = 200
    fields: FieldsLike = field(default_factory=list)
    body: bytes = b""
    feed: str = "whole"
    framing: str = "length"
    """length, chunked (a chunk), close, or none (fields say all)"""
    reason: str = "Whatever"

    def to_bytes(self) -> bytes:
        fields = as_fields(self.fields)
        body = self.body
        if self.framing == "length" and self.status >= 200 and self.status not in (204, 304):
            fields.append((b"Content-Length", str(len(body)).encode()))
        elif self.framing == "chunked":
            fields.append((b"Transfer-Encoding", b"chunked"))
            body = chunked(body)
        elif self.framing == "close":
            fields.append((b"Connection", b"close"))
        return head_bytes(f"HTTP/1.1 {self.status} {self.reason}", fields) + body


class Peer(Channel):
    """The gateway, seen from the upstream."""

    def __init__(self, upstream: "Upstream") -> None:
        super().__init__(upstream._connected)
        self.upstream = upstream
        self.index = -1
        self.error: BaseException | None = None
        """What the script raised."""

    async def head(self) -> Request | None:
        """The next request's head, or None when the peer closed between requests."""
        try:
            request = await read_request_head(self)
        except (Ended, TimeoutError):
            return None
        request.connection = self.index
        self.upstream.requests.append(request)
        return request

    async def request(self) -> Request | None:
        """The next request with its body."""
        request = await self.head()
        if request is not None:
            await read_request_body(self, request)
        return request

    async def reply(self, reply: Reply) -> None:
        data = reply.to_bytes()
        if reply.feed == "bytes":
            await self.trickle(data)
        else:
            await self.send(data)
        if reply.framing == "close":
            self.close()

    async def respond(self, status: int = 200, fields: FieldsLike = (), body: bytes = b"", **more: Any) -> None:
        await self.reply(Reply(status, fields, body, **more))

    async def begin(self, fields: FieldsLike, status: int = 200) -> None:
        """Head of a chunked answer."""
        await self.send(head_bytes(f"HTTP/1.1 {status} OK", [*as_fields(fields), (b"Transfer-Encoding", b"chunked")]))

    async def chunk(self, data: bytes) -> None:
        await self.send(chunked(data, end=False))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def stream(self, chunks: list[bytes], fields: FieldsLike = (("Content-Type", "text/event-stream"),)) -> None:
        await self.begin(fields)
        for piece in chunks:
            await self.chunk(piece)
        await self.end()


class Upstream:
    """See the module."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.peers: list[Peer] = []
        self.url = ""
        self.port = 0
        self.authority = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def _connected(self, peer: Channel) -> None:
        assert isinstance(peer, Peer)
        peer.index = len(self.peers)
        self.peers.append(peer)
        task = asyncio.ensure_future(self._run(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, peer: Peer) -> None:
        try:
            await self.script(peer)
        except asyncio.CancelledError:
            raise
        except (ConnectionError, Ended):
            pass
        except Exception as error:
            peer.error = error

    @property
    def last(self) -> Request:
        return self.requests[-1]

    async def seen(self, count: int) -> Request:
        """Wait until that many requests' heads have come; the last of them."""
        await eventually(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def all_gone(self, within: float = PATIENCE) -> None:
        """Wait until every connection was closed by the gateway."""
        async with asyncio.timeout(within):
            for peer in self.peers:
                await peer.closed.wait()

    def targets(self) -> list[bytes]:
        return [request.target for request in self.requests]

    async def _stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for peer in self.peers:
            if not peer.lost.is_set():
                peer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.peers:
            async with asyncio.timeout(PATIENCE):
                await peer.lost.wait()
        errors = [peer.error for peer in self.peers if peer.error is not None]
        if errors:
            raise errors[0]


Answer = Callable[[Peer, Request], Awaitable[None]]


def each(answer: Answer | Reply | Callable[[Request], Reply]) -> Script:
    """A script that answers request after request on a connection."""

    async def script(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            if isinstance(answer, Reply):
                await peer.reply(answer)
                continue
            answered = answer(peer, request) if asyncio.iscoroutinefunction(answer) else answer(request)  # type: ignore[call-arg,arg-type]
            if isinstance(answered, Reply):
                await peer.reply(answered)
            else:
                await answered
            if peer.transport.is_closing():
                return

    return script


@contextlib.asynccontextmanager
async def upstream(
    script: Script | Reply | Callable[[Request], Reply], *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Upstream]:
    """Listen on ``host`` (``127.0.0.1``, ``localhost``: both families, ``::1``, or ``unix``) at a port of the system's choice.

    ``script`` may also be a Reply or a function from request to Reply. What a script raises fails the test at the end.
    """
    up = Upstream(script if _is_script(script) else each(script))  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    servers = []
    scheme = "https" if tls else "http"
    with contextlib.ExitStack() as stack:
        if host == "unix":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ph"))
            path = Path(folder) / "up.sock"
            servers.append(await loop.create_unix_server(lambda: Peer(up), str(path), ssl=tls))
            up.url, up.authority = f"unix:{path}", "localhost"
        else:
            first = "127.0.0.1" if host == "localhost" else host
            servers.append(await loop.create_server(lambda: Peer(up), first, 0, ssl=tls, backlog=512))
            up.port = servers[0].sockets[0].getsockname()[1]
            if host == "localhost":
                with contextlib.suppress(OSError):
                    servers.append(await loop.create_server(lambda: Peer(up), "::1", up.port, ssl=tls))
            shown = f"[{host}]" if ":" in host else host
            up.authority = f"{shown}:{up.port}"
            up.url = f"{scheme}://{up.authority}"
        try:
            yield up
        finally:
            for server in servers:
                server.close()
            await up._stop()


def _is_script(script: Any) -> bool:
    return asyncio.iscoroutinefunction(script) and not isinstance(script, Reply)


def closed_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
