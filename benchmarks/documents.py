"""The texts that are sent: minutes that grow by a speech a turn, the same bytes on every machine.

The shipped forty-turn minutes are formulaic (gzip makes a twentieth of them and is quick about it), which would flatter whoever
compresses. These speak with the vocabulary of the shipped samples, word after word as it follows there, with figures of their
own, so that gzip level 6 makes of them about what it makes of real meetings: 2.3 times fewer bytes at 8 KB, 3.2 at 32 KB.
"""

import itertools
import random
from dataclasses import dataclass
from functools import cache

from ctxpack import ContextPack
from gateway.sample.shelf import handbook, notes, questions

SIZES = {"8": 8 * 2**10, "32": 32 * 2**10, "256": 256 * 2**10}
"""Name of a class in paths and tables, and the middle size of its turns in bytes."""
TURNS = 40
_SPEAKERS = ("Maren", "Kesper", "Tobiah", "Ysolde", "Hanne", "Tomas", "Ilse", "Mira")
_FIGURES = 0.14
"""Share of words that are followed by a figure no other line has."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The document after one turn."""

    path: str
    """Request target of this turn."""
    body: bytes
    digest: str
    """Pack digest, ``sha256:...``: what a client that holds this turn calls it."""


@cache
def turns(name: str) -> tuple[Turn, ...]:
    """The turns of a class. The middle one has the size of the class; each is a speech longer than the one before."""
    whole, ends = _minutes(SIZES[name] + TURNS * 400)
    middle = next(index for index, end in enumerate(ends) if end >= SIZES[name])
    chosen = ends[middle - TURNS // 2 : middle + TURNS // 2]
    found = []
    pack: ContextPack | None = None
    for number, end in enumerate(chosen):
        pack = ContextPack.from_utf8(whole[:end], after=pack)
        found.append(Turn(f"/{name}/{number}", whole[:end], pack.digest))
    return tuple(found)


def _minutes(size: int) -> tuple[bytes, list[int]]:
    """At least ``size`` bytes of minutes, and where its speeches end."""
    chance = random.Random("packhorse benchmark")
    follows, starts = _vocabulary()
    parts = [b"# Minutes (sample text, everyone in it is invented)\n\n"]
    total, ends = len(parts[0]), []
    while total < size:
        speech = f"{chance.choice(_SPEAKERS)}: {_speech(chance, follows, starts)}\n".encode()
        parts.append(speech)
        total += len(speech)
        ends.append(total)
    return b"".join(parts), ends


def _speech(chance: random.Random, follows: dict[str, list[str]], starts: list[str]) -> str:
    words, length, wanted = [], 0, chance.randint(60, 260)
    word = chance.choice(starts)
    while length < wanted:
        words.append(word)
        length += len(word) + 1
        if chance.random() < _FIGURES:
            words.append(str(chance.randint(2, 9999)))
        word = chance.choice(follows.get(word, starts))
    return " ".join(words)


def _vocabulary() -> tuple[dict[str, list[str]], list[str]]:
    """For each word of the samples those that follow it there, and the words that begin a sentence."""
    text = "\n".join([handbook(), *notes(), *questions()])
    words = [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]
    follows: dict[str, list[str]] = {}
    for word, after in itertools.pairwise(words):
        follows.setdefault(word, []).append(after)
    return follows, [after for word, after in itertools.pairwise(words) if word.endswith((".", "?"))]
