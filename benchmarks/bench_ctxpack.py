"""How fast packs and deltas are made, read and applied, and that time grows with size and no faster.

    python benchmarks/bench_ctxpack.py [--json] [--sizes 4KB,64KB,1MB,16MB]

Every figure is the best of several runs on one core. MB/s are of content (1 MB = 1,000,000 bytes). `append` is what a
gateway does at each turn: pack a text that grew by 400 bytes, and make the delta to the pack before. Memory is what 50
packs with their digests hold, over the bytes of their texts.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ctxpack import ContextPack, ContextPackDelta, apply_delta

SIZES = {"4KB": 4_000, "64KB": 64_000, "1MB": 1_000_000, "16MB": 16_000_000}
WORDS = b"harbour crane berth paper ferry office pump review timetable yard".split()
TURN = b"One line more, as long as a speech in a meeting is, so that the turn counts.\n" * 5


class Figure(NamedTuple):
    """One operation at one size."""

    operation: str
    size: str
    milliseconds: float
    mb_per_second: float


def text_of(size: int, wide: bool = False) -> bytes:
    """Return `size` bytes of lines of 40 to 160 bytes that do not repeat; `wide` takes Chinese text."""
    lines: list[bytes] = []
    made, number = 0, 12345
    word_list = [word.decode() for word in WORDS] if not wide else list("港口吊机泊位文件渡轮办公室水泵评审时刻表船厂")
    while made < size:
        words: list[str] = []
        for _ in range(5 + number % 15):
            number = (number * 1103515245 + 12345) % 2**31
            words.append(word_list[number // 65536 % len(word_list)])
        line = f"{number} {('' if wide else ' ').join(words)}\n".encode()
        lines.append(line)
        made += len(line)
    return b"".join(lines)[:size].decode("utf-8", "ignore").encode()


def best(act: Callable[[], object], seconds: float = 0.6) -> float:
    """Return the shortest time of `act` in seconds, over about `seconds` and at least three runs."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < until and len(times) < 2000):
        started = time.perf_counter()
        act()
        times.append(time.perf_counter() - started)
    return min(times)


def figures(name: str, size: int) -> list[Figure]:
    """Measure every operation on a text of `size` bytes."""
    data, wide = text_of(size), text_of(size, wide=True)
    pack = ContextPack.from_utf8(data)
    wire = pack.to_bytes()
    edited = ContextPack.from_utf8(data[: size // 2] + b"!" + data[size // 2 :])
    grown = ContextPack.from_utf8(data + TURN)
    grown_data = grown.content_bytes
    delta_wire = ContextPackDelta.between(pack, edited).to_bytes()
    edit_delta = ContextPackDelta.from_bytes(delta_wire)
    operations: dict[str, Callable[[], object]] = {
        "digest": lambda: ContextPack.from_utf8(data).digest,
        "digest after, edit in the middle": lambda: ContextPack.from_utf8(edited.content_bytes, after=pack).digest,
        "pack": lambda: ContextPack.from_utf8(data).to_bytes(),
        "pack, Chinese": lambda: ContextPack.from_utf8(wide).to_bytes(),
        "from_bytes": lambda: ContextPack.from_bytes(wire),
        "between, edit in the middle": lambda: ContextPackDelta.between(pack, edited).to_bytes(),
        "apply, edit in the middle": lambda: apply_delta(pack, edit_delta),
        "append: pack after, delta": lambda: ContextPackDelta.between(
            pack, ContextPack.from_utf8(grown_data, after=pack)
        ).to_bytes(),
    }
    found = []
    for operation, act in operations.items():
        seconds = best(act)
        found.append(Figure(operation, name, seconds * 1000, size / 1e6 / seconds))
    return found


def memory(successive: bool, count: int = 50, size: int = 64_000) -> float:
    """Return what packs of growing or of unrelated texts cost in memory, the text itself being 1."""
    data = text_of(size + count * 1000)
    packs: list[ContextPack] = []
    tracemalloc.start()
    for number in range(count):
        text = data[: size + number * 400] if successive else data[number * 1000 : number * 1000 + size]
        packs.append(ContextPack.from_utf8(text, after=packs[-1] if packs and successive else None))
        _ = packs[-1].digest
    del text
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / sum(pack.total_bytes for pack in packs)


def main() -> int:
    """Print the table and return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"some of {', '.join(SIZES)}")
    options = parser.parse_args()
    unknown = set(options.sizes.split(",")) - SIZES.keys()
    if unknown:
        parser.error(f"unknown size {', '.join(sorted(unknown))}; give some of {', '.join(SIZES)}")
    rows = [row for name in options.sizes.split(",") for row in figures(name, SIZES[name])]
    held = {"successive": memory(successive=True), "unrelated": memory(successive=False)}
    if options.json:
        figures_now = [row._asdict() for row in rows]
        print(json.dumps({"python": platform.python_version(), "figures": figures_now, "memory": held}))
        return 0
    print(f"Python {platform.python_version()}, {platform.machine()}")
    print(f"{'operation':<34}{'size':>6}{'ms':>10}{'MB/s':>10}")
    for row in sorted(rows, key=lambda row: row.operation):
        print(f"{row.operation:<34}{row.size:>6}{row.milliseconds:>10.3f}{row.mb_per_second:>10.0f}")
    for kind, times in held.items():
        print(f"memory of {kind} packs: {times:.2f} times their text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
