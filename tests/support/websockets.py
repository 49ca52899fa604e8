"""Just enough of RFC 6455 to see that frames cross a tunnel as they are: nothing is negotiated, nothing is undone."""

import base64
import hashlib
import struct
import zlib

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()  # noqa: S324
ASK = [
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
]
AGREE = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Accept", ACCEPT)]


def frame(payload: bytes, *, opcode: int = 1, mask: bytes = b"", compressed: bool = False) -> bytes:
    """A final frame; ``compressed`` sets RSV1, as permessage-deflate does."""
    if compressed:
        deflate = zlib.compressobj(wbits=-15)
        payload = (deflate.compress(payload) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
    first = 0x80 | (0x40 if compressed else 0) | opcode
    size = len(payload)
    length = (
        struct.pack("!B", size)
        if size < 126
        else struct.pack("!BH", 126, size)
        if size < 2**16
        else struct.pack("!BQ", 127, size)
    )
    if mask:
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        length = bytes([length[0] | 0x80]) + length[1:]
    return bytes([first]) + length + mask + payload


def closing(code: int, reason: bytes = b"", mask: bytes = b"") -> bytes:
    return frame(struct.pack("!H", code) + reason, opcode=8, mask=mask)
