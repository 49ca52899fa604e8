"""A pack costs about its text: a gateway keeps hundreds of megabytes of them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from ctxpack import ContextPack, ContextPackDelta, apply_delta

COUNT, SIZE, TURN = 200, 64_000, 400
LINES = b"".join(b"%d: a line of minutes, about as long as they are, each with a number of its own\n" % n for n in range(2000))

KINDS: dict[str, Callable[[bytes, ContextPack | None], ContextPack]] = {
    "successive": lambda text, before: ContextPack.from_utf8(text, after=before),
    "unrelated": lambda text, before: ContextPack.from_utf8(text),
    "from text": lambda text, before: ContextPack.from_content(text.decode()),
    "read": lambda text, before: ContextPack.from_bytes(ContextPack.from_utf8(text).to_bytes()),
    "rebuilt": lambda text, before: rebuilt(before or ContextPack(), text),
}


def rebuilt(base: ContextPack, text: bytes) -> ContextPack:
    return apply_delta(base, ContextPackDelta.between(base, ContextPack.from_utf8(text)))


def texts(kind: str) -> Iterable[bytes]:
    """Yield texts, each an object of its own that nobody else holds."""
    for number in range(COUNT):
        if kind == "unrelated":
            yield b"%d: " % number + LINES[number * 7 : number * 7 + SIZE]
        else:
            yield LINES[: SIZE + number * TURN]


@pytest.mark.parametrize("kind", KINDS)
def test_packs_cost_little_more_than_their_text(kind: str) -> None:
    packs: list[ContextPack] = []
    gc.collect()
    tracemalloc.start()
    try:
        for text in texts(kind):
            packs.append(KINDS[kind](text, packs[-1] if packs else None))
            assert packs[-1].digest
            assert packs[-1].chunk_bytes  # asking for more keeps nothing
            assert packs[-1].to_bytes()
        del text
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    held = sum(pack.total_bytes for pack in packs)
    assert len(packs) == COUNT
    assert held <= used < 1.05 * held


def test_packing_holds_little_for_a_moment() -> None:
    text = LINES * 100
    tracemalloc.start()
    try:
        assert ContextPack.from_utf8(text).digest
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(text) / 5
