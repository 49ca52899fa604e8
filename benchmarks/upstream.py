"""The service behind every proxy: answers made before the first request, written out whole. ``python -m benchmarks.upstream PORT``

It must never be what is measured, so it is a bare protocol: one dictionary look-up and one write an answer.
"""

import asyncio
import re
import sys
from typing import cast

import uvloop

from benchmarks.documents import SIZES, turns

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def answers() -> dict[bytes, bytes]:
    """Request target to the whole answer."""
    return {
        turn.path.encode(): b"HTTP/1.1 200 OK\r\nContent-Type: text/markdown; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
        % (len(turn.body), turn.body)
        for name in SIZES
        for turn in turns(name)
    }


class Upstream(asyncio.Protocol):
    """One connection, kept alive for as long as the other side wants it."""

    def __init__(self, known: dict[bytes, bytes]) -> None:
        self._known = known
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        """Answer every request that is here as a whole."""
        data = self._held + data if self._held else data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(data, 0, end + 2)
            stop = end + 4 + (int(length[1]) if length else 0)
            if stop > len(data):
                break
            target = data[data.find(b" ") + 1 : data.find(b" ", data.find(b" ") + 1)]
            self._transport.write(self._known.get(target, _MISSING))
            data = data[stop:]
        self._held = data


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    known = answers()
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(known), "127.0.0.1", port, backlog=256)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
