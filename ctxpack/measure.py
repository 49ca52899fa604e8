"""What forty turns cost, sent in different ways: the seed's table, and the gateway's `dcz` beside it.

Every row is the sum, over all turns, of the body bytes sent for a turn; no header fields, no connection.
"""

from __future__ import annotations

import gzip
import importlib
from typing import Any, Callable, Iterable, List, NamedTuple, Optional

from ctxpack.delta import ContextPackDelta
from ctxpack.pack import ContextPack

_DCZ_HEAD_BYTES = 40  # RFC 9842 section 4: 8 bytes of magic number and the SHA-256 of the base

_WINDOW_LOG_LEAST, _WINDOW_LOG_MOST = 10, 27  # 1 KiB, the least zstd takes; 128 MiB, the most RFC 9842 allows
_WINDOW_BYTES = 8 << 20  # RFC 9842 section 5: 8 MiB, or 1.25 times a larger base


class Row(NamedTuple):
    """One way to send all turns."""

    name: str
    """Stable, for programs."""
    label: str
    """For people."""
    sent_bytes: int

    def saved(self, raw_bytes: int) -> float:
        """Share of the raw bytes that was not sent, in per cent; negative where more was sent."""
        return 100.0 * (1 - self.sent_bytes / raw_bytes) if raw_bytes else 0.0


class Table(NamedTuple):
    """What `measure` found."""

    turns: int
    rows: List[Row]


def measure(turns: Iterable[bytes]) -> Table:
    """Return the seed's four rows for `turns` (UTF-8, one whole text a turn), and `dcz` where zstd is installed.

    Holds two turns in memory at a time. Raises `ContextPackError` with `invalid_utf8`.
    """
    compress = dcz_compressor()
    count = raw = packed = delta = gzipped = dcz = 0
    held: Optional[ContextPack] = None
    for turn in turns:
        pack = ContextPack.from_utf8(turn, after=held)
        count += 1
        raw += len(turn)
        packed += pack.byte_count
        delta += pack.byte_count if held is None else ContextPackDelta.between(held, pack).byte_count
        gzipped += len(gzip.compress(turn, 9, mtime=0))
        if compress is not None:
            dcz += len(compress(turn, b"")) if held is None else _DCZ_HEAD_BYTES + len(compress(turn, held.content_bytes))
        held = pack
    rows = [
        Row("raw", "raw text", raw),
        Row("pack", "a full pack every turn", packed),
        Row("delta", "delta protocol (pack, then deltas)", delta),
        Row("gzip", "gzip -9 every turn", gzipped),
    ]
    if compress is not None:
        rows.append(Row("dcz", "dcz, as the next release (zstd, then dcz)", dcz))
    return Table(count, rows)


def dcz_compressor() -> Optional[Callable[[bytes, bytes], bytes]]:
    """Return a function `(body, base) -> zstd frame` (level 3, base as prefix, checksum), or None without zstd."""
    zstd: Any = _zstd()
    if zstd is None:
        return None

    def compress(body: bytes, base: bytes) -> bytes:
        most = max(_WINDOW_BYTES, len(base) * 5 // 4).bit_length() - 1
        window = min((len(base) + len(body)).bit_length(), most)
        options = {
            zstd.CompressionParameter.compression_level: 3,
            zstd.CompressionParameter.checksum_flag: 1,
            zstd.CompressionParameter.window_log: min(max(window, _WINDOW_LOG_LEAST), _WINDOW_LOG_MOST),
        }
        prefix = zstd.ZstdDict(base, is_raw=True).as_prefix if len(base) >= 8 else None
        return bytes(zstd.ZstdCompressor(options=options, zstd_dict=prefix).compress(body, 2))

    return compress


def _zstd() -> Any:
    """Return the zstd module of Python 3.14, or its backport, or None."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
