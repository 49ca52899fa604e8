"""HTTP/1.1 messages as a strict reader sees them: raw bytes kept, order and duplicates kept, framing checked (RFC 9112).

No leniency anywhere: what this parser refuses, some client somewhere refuses too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.channel import Channel, Ended

Fields = list[tuple[bytes, bytes]]
FieldsLike = Sequence[tuple[Any, Any]] | dict[str, str]
"""Names and values as text (latin-1) or bytes."""

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3}) ([\t\x20-\x7e\x80-\xff]*)\Z")
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)(;[^\r\n]*)?\Z")


class Malformed(Exception):
    """Not HTTP as the RFC has it."""


def parse_fields(lines: list[bytes]) -> Fields:
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.match(name):
            raise Malformed(f"field line {line!r}")
        value = value.strip(b" \t")
        if not _VALUE.match(value):
            raise Malformed(f"field value {line!r}")
        fields.append((name, value))
    return fields


def values(fields: Fields, name: str) -> list[bytes]:
    """Values of all lines with that name, in order."""
    wanted = name.lower().encode()
    return [value for key, value in fields if key.lower() == wanted]


def members(fields: Fields, name: str) -> list[str]:
    """Members of a comma-separated list over all its lines, lower-cased."""
    joined = b",".join(values(fields, name)).decode("latin-1")
    return [part.strip().lower() for part in joined.split(",") if part.strip()]


def head_bytes(first: str | bytes, fields: FieldsLike, end: bytes = b"\r\n\r\n") -> bytes:
    first = first.encode("latin-1") if isinstance(first, str) else first
    lines = [first, *(name + b": " + value for name, value in as_fields(fields))]
    return b"\r\n".join(lines) + end


def as_fields(given: FieldsLike | None) -> Fields:
    pairs = list(given.items()) if isinstance(given, dict) else list(given or [])
    return [(_bytes(name), _bytes(value)) for name, value in pairs]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """The pieces as chunks; with the terminator unless told otherwise."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece) + (b"0\r\n\r\n" if end else b"")


@dataclass
class Request:
    """What an upstream received."""

    raw_head: bytes
    method: bytes
    target: bytes
    version: bytes
    fields: Fields
    body: bytes = b""
    raw_body: bytes = b""
    """With the chunk framing, where there is any."""
    trailers: Fields = field(default_factory=list)
    connection: int = 0
    """Which of the upstream's connections brought it."""

    def values(self, name: str) -> list[bytes]:
        return values(self.fields, name)

    def value(self, name: str) -> bytes | None:
        found = self.values(name)
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None

    def names(self) -> list[str]:
        return [name.decode("latin-1").lower() for name, _ in self.fields]


@dataclass
class Response:
    """What a client received."""

    raw_head: bytes
    status: int
    reason: bytes
    fields: Fields
    framing: str = "none"
    """none, length, chunked, close"""
    body: bytes = b""
    raw_body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    trailers: Fields = field(default_factory=list)
    complete: bool = False
    """Whether its framing was satisfied. A close-delimited body is complete when the peer closed without RST."""
    interim: "list[Response]" = field(default_factory=list)
    """1xx that came before it."""

    def values(self, name: str) -> list[bytes]:
        return values(self.fields, name)

    def value(self, name: str) -> bytes | None:
        found = self.values(name)
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None

    def text(self, name: str) -> str | None:
        value = self.value(name)
        return None if value is None else value.decode("latin-1")

    def members(self, name: str) -> list[str]:
        return members(self.fields, name)

    def names(self) -> list[str]:
        return [name.decode("latin-1").lower() for name, _ in self.fields]


async def read_request_head(channel: Channel) -> Request:
    raw = await channel.until(b"\r\n\r\n")
    first, *lines = raw[:-4].split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3:
        raise Malformed(f"request line {first!r}")
    return Request(raw, parts[0], parts[1], parts[2], parse_fields(lines))


async def read_request_body(channel: Channel, request: Request) -> None:
    lengths, codings = request.values("content-length"), members(request.fields, "transfer-encoding")
    if lengths and codings:
        raise Malformed("Content-Length and Transfer-Encoding")
    if codings:
        if codings != ["chunked"]:
            raise Malformed(f"Transfer-Encoding {codings}")
        request.raw_body, chunks, request.trailers = await read_chunked(channel)
        request.body = b"".join(chunks)
    elif lengths:
        if len(lengths) > 1 or not lengths[0].isdigit():
            raise Malformed(f"Content-Length {lengths}")
        request.body = request.raw_body = await channel.exactly(int(lengths[0]))


async def read_chunked(channel: Channel, into: Response | None = None) -> tuple[bytes, list[bytes], Fields]:
    """Raw bytes, chunks and trailers. ``into`` is filled as they come, so that a cut leaves what had come."""
    raw, chunks = bytearray(), []
    while True:
        line = await channel.until(b"\r\n")
        match = _CHUNK.match(line[:-2])
        if not match:
            raise Malformed(f"chunk line {line!r}")
        size = int(match[1], 16)
        raw += line
        if not size:
            break
        data = await channel.exactly(size + 2)
        if not data.endswith(b"\r\n"):
            raise Malformed("a chunk runs on")
        raw += data
        chunks.append(data[:-2])
        if into is not None:
            into.chunks.append(data[:-2])
    lines = []
    while (line := await channel.until(b"\r\n")) != b"\r\n":
        raw += line
        lines.append(line[:-2])
    raw += b"\r\n"
    return bytes(raw), chunks, parse_fields(lines)


def parse_response_head(raw: bytes) -> Response:
    first, *lines = raw[:-4].split(b"\r\n")
    match = _STATUS_LINE.match(first)
    if not match:
        raise Malformed(f"status line {first!r}")
    response = Response(raw, int(match[2]), match[3], parse_fields(lines))
    lengths, codings = response.values("content-length"), response.values("transfer-encoding")
    if len(lengths) > 1 or (lengths and not lengths[0].isdigit()):
        raise Malformed(f"Content-Length {lengths}")
    if lengths and codings:
        raise Malformed("Content-Length and Transfer-Encoding")
    if codings and codings != [b"chunked"]:
        raise Malformed(f"Transfer-Encoding {codings}")
    if (response.status < 200 or response.status == 204) and (lengths or codings):
        raise Malformed(f"a {response.status} with framing fields")
    for single in ("content-type", "date", "server", "etag", "location", "content-encoding"):
        if len(response.values(single)) > 1:
            raise Malformed(f"{single} came twice")
    return response


async def read_response_head(channel: Channel, method: str) -> Response:
    """The final head, with the 1xx before it in ``interim``; its framing decided."""
    interim = []
    while True:
        response = parse_response_head(await channel.until(b"\r\n\r\n"))
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


async def read_response_body(channel: Channel, response: Response) -> None:
    """Fill in the body; a cut leaves ``complete`` False."""
    try:
        if response.framing == "chunked":
            try:
                response.raw_body, _, response.trailers = await read_chunked(channel, response)
            finally:
                response.body = b"".join(response.chunks)
        elif response.framing == "length":
            response.body = response.raw_body = await channel.exactly(int(response.values("content-length")[0]))
        elif response.framing == "close":
            response.body = response.raw_body = await channel.to_end()
            response.complete = channel.how_closed == "fin"
            return
    except Ended as ended:
        if response.framing == "length":
            response.body = ended.partial
        channel.take(len(channel.buffer))
        return
    response.complete = True
