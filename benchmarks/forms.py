"""Bytes of each form of the same bodies: what a turn costs a client that holds the turn before. No sockets, no heads."""

import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from aiohttp.test_utils import make_mocked_request

from benchmarks import corpora
from benchmarks.processes import cores
from ctxpack import ContextPack, ContextPackDelta
from ctxpack.measure import dcz_compressor
from middleware.codings import gzip_encode, zstd_encode
from middleware.forms import Material, choose
from middleware.offers import DELTA, offers_of
from middleware.stores import Base

FORMS = {
    "raw": "raw",
    "packs": "full pack every turn",
    "gzip9": "gzip -9",
    "gzip6": "gzip -6",
    "zstd3": "zstd -3",
    "delta": "delta v1",
    "delta_gzip": "delta v1 + gzip",
    "chosen": "smallest, as the gateway",
    "dcz": "dcz -3 (next release)",
}
"""Key to label, in the order of the table."""
_DCZ_HEAD = 40
"""Bytes: RFC 9842 section 4."""


@dataclass(slots=True)
class Sums:
    """Bytes by form, over all turns."""

    documents: int = 0
    turns: int = 0
    sizes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FORMS, 0))

    def add(self, other: "Sums") -> None:
        """Take in another's."""
        self.documents += other.documents
        self.turns += other.turns
        for name, size in other.sizes.items():
            self.sizes[name] += size


def count(turns: Iterable[bytes]) -> Sums:
    """The sums of one document. Its first turn has no base: delta rows send it plain there, or as plain gzip."""
    sums = Sums(documents=1)
    dcz = dcz_compressor()
    held: ContextPack | None = None
    for body in turns:
        pack = ContextPack.from_utf8(body, after=held)
        gzip6, zstd3 = len(gzip_encode(body, 6)), len(zstd_encode(body))
        delta = None if held is None else ContextPackDelta.between(held, pack).to_bytes()
        sizes = {
            "raw": len(body),
            "packs": pack.byte_count,
            "gzip9": len(zlib.compress(body, 9, wbits=31)),
            "gzip6": gzip6,
            "zstd3": zstd3,
            "delta": len(body) if delta is None else len(delta),
            "delta_gzip": gzip6 if delta is None else len(gzip_encode(delta, 9)),
            "chosen": _chosen(body, pack, held),
            "dcz": 0 if dcz is None else zstd3 if held is None else _DCZ_HEAD + len(dcz(body, held.content_bytes)),
        }
        sums.turns += 1
        for name, size in sizes.items():
            sums.sizes[name] += size
        held = pack
    return sums


def _chosen(body: bytes, pack: ContextPack, held: ContextPack | None) -> int:
    bases = () if held is None else (Base(held.content_bytes, (held.digest,), held),)
    fields = {"Accept-Encoding": f"{DELTA}, gzip, zstd"} | ({} if held is None else {"Ctxpack-Base": held.digest})
    offers = offers_of(make_mocked_request("GET", "/", headers=fields))
    return len(choose(Material(body, pack, bases), offers).form.body)


def _one(kind: str, name: str) -> tuple[str, Sums]:
    return kind, count(corpora.bodies(kind, name))


def measure(found: list[tuple[str, str]], progress: Callable[[str], None]) -> dict[str, Sums]:
    """The sums of each set, counted on all cores."""
    sums: dict[str, Sums] = {}
    with ProcessPoolExecutor(max_workers=len(cores())) as pool:
        futures = {pool.submit(_one, kind, name): f"{kind} {name}" for kind, name in found}
        for future in as_completed(futures):
            kind, one = future.result()
            sums.setdefault(kind, Sums()).add(one)
            progress(futures[future])
    return {kind: sums[kind] for kind in corpora.SETS if kind in sums}
