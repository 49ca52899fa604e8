"""A client that speaks Context Pack: it keeps what it holds, says so, and rebuilds and verifies every body."""

import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import brotli
from backports import zstd
from support.client import Client, connect
from support.messages import FieldsLike, Response, as_fields

from ctxpack import ContextPack, ContextPackDelta, apply_delta

SPOKEN = "ctxpack.delta.v1, ctxpack.pack.v1, gzip, zstd"


@dataclass
class Turn:
    """One exchange: what came, how it was coded, and what it was."""

    response: Response
    codings: list[str]
    """Content-Encoding, outermost last; empty for identity."""
    content: bytes

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def delta(self) -> bool:
        return self.codings[:1] == ["ctxpack.delta.v1"]

    @property
    def why(self) -> str | None:
        return self.response.text("packhorse-why")


def undo(coding: str, data: bytes, held: dict[str, ContextPack]) -> bytes:
    """The body under one coding; wrong, cut or trailing bytes raise."""
    match coding:
        case "gzip" | "x-gzip":
            undone = zlib.decompressobj(31)
            out = undone.decompress(data) + undone.flush()
            assert undone.eof, "gzip is cut"
            assert not undone.unused_data, "gzip runs on"
            return out
        case "deflate":
            return zlib.decompress(data)
        case "br":
            return brotli.decompress(data)
        case "zstd":
            return zstd.decompress(data)
        case "ctxpack.pack.v1":
            return ContextPack.from_bytes(data).content.encode()
        case "ctxpack.delta.v1":
            delta = ContextPackDelta.from_bytes(data)
            assert delta.base_digest in held, "a delta against a base this client never named"
            return apply_delta(held[delta.base_digest], delta).content.encode()
        case "identity":
            return data
    raise AssertionError(f"unknown coding {coding!r}")


def decoded(response: Response, held: dict[str, ContextPack] | None = None) -> bytes:
    """The body with every Content-Encoding undone."""
    data = response.body
    for coding in reversed(response.members("content-encoding")):
        data = undo(coding, data, held or {})
    return data


class PackClient:
    """``fields`` go with every request. ``held`` are packs by digest, newest last."""

    def __init__(self, client: Client, session: str | None, accept: str, fields: FieldsLike) -> None:
        self.client = client
        self.session = session
        self.accept = accept
        self.fields = as_fields(fields)
        self.held: dict[str, ContextPack] = {}

    def request_fields(self) -> list[tuple[bytes, bytes]]:
        out = [(b"Accept-Encoding", self.accept.encode())] if self.accept else []
        if self.session is not None:
            out.append((b"Packhorse-Session", self.session.encode()))
        if self.held:
            out.append((b"Ctxpack-Base", ", ".join(list(self.held)[:-9:-1]).encode()))
        out.append((b"Packhorse-Debug", b"1"))
        return [*out, *self.fields]

    async def ask(self, method: str, target: str, body: bytes = b"", fields: FieldsLike = (), **more: Any) -> Turn:
        given = as_fields(fields)
        names = {name.lower() for name, _ in given}
        own = [pair for pair in self.request_fields() if pair[0].lower() not in names]
        response = await self.client.ask(method, target, [*own, *given], body, **more)
        return self.read(response)

    def read(self, response: Response) -> Turn:
        """Rebuild, verify, remember."""
        assert response.complete, "the body is cut"
        content = decoded(response, self.held)
        digest = response.text("ctxpack-digest")
        if response.status == 200 and content:
            with contextlib.suppress(UnicodeDecodeError):
                pack = ContextPack.from_content(content.decode())
                if digest is not None:
                    assert digest == pack.digest, "Ctxpack-Digest is not that of the body"
                self.held.pop(pack.digest, None)
                self.held[pack.digest] = pack
        return Turn(response, response.members("content-encoding"), content)


@contextlib.asynccontextmanager
async def pack_client(
    where: Any, session: str | None = "session-1", *, accept: str = SPOKEN, fields: FieldsLike = ()
) -> AsyncIterator[PackClient]:
    async with connect(where) as client:
        yield PackClient(client, session, accept, fields)


def gzipped(data: bytes, level: int = 6) -> bytes:
    return gzip.compress(data, level, mtime=0)
