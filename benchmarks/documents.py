"""The texts that are sent: minutes that grow by a speech a turn, the same bytes on every machine.

The shipped forty-turn minutes are formulaic (gzip makes a twentieth of them and is quick about it), which would flatter whoever
compresses. These are made of the words of the shipped samples: now the word that follows there, now one drawn by a rank law as in
any language, now a figure. The shares are set so that gzip takes about as long over them as over real meetings, and gets about as
far. Over the test corpora's nine English and seven Chinese meetings, cut to 32 KB, level 6 took 0.94 to 1.40 ms (median 1.13) and
reached 2.4 to 3.5 (median 3.0); over this text 1.03 ms and 3.0.
"""

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from functools import cache

from ctxpack import ContextPack
from gateway.sample.shelf import handbook, notes, questions

SIZES = {"8": 8 * 2**10, "32": 32 * 2**10, "256": 256 * 2**10}
"""Name of a class in paths and tables, and the middle size of its turns in bytes."""
TURNS = 40
_SPEAKERS = ("Maren", "Kesper", "Tobiah", "Ysolde", "Hanne", "Tomas", "Ilse", "Mira")
_FIGURES = 0.03
"""Share of words that are followed by a figure."""
_FOLLOWS = 0.6
"""Share of words that follow the one before as they do in the samples; the others are drawn by their rank."""
_FLAT = 3
"""Added to ranks, so that the commonest word is not every tenth one."""


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
    chance, language = random.Random("packhorse benchmark"), _Language()
    parts = [b"# Minutes (sample text, everyone in it is invented)\n\n"]
    total, ends = len(parts[0]), []
    while total < size:
        speech = f"{chance.choice(_SPEAKERS)}: {language.speech(chance)}\n".encode()
        parts.append(speech)
        total += len(speech)
        ends.append(total)
    return b"".join(parts), ends


class _Language:
    """The words of the shipped samples, how often they come, and what follows what."""

    def __init__(self) -> None:
        text = "\n".join([handbook(), *notes(), *questions()])
        self._words = [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]
        self._follows: dict[str, list[str]] = {}
        for word, after in itertools.pairwise(self._words):
            self._follows.setdefault(word, []).append(after)
        counts = Counter(self._words)
        self._ranked = sorted(counts, key=lambda word: (-counts[word], word))
        self._weights = list(itertools.accumulate(1 / (rank + _FLAT) for rank in range(len(self._ranked))))

    def speech(self, chance: random.Random) -> str:
        """A line somebody says, 60 to 260 characters and a word long."""
        words: list[str] = []
        length, wanted, word = 0, chance.randint(60, 260), chance.choice(self._words)
        while length < wanted:
            words.append(word)
            length += len(word) + 1
            if chance.random() < _FIGURES:
                words.append(str(chance.randint(2, 9999)))
            word = self._after(word, chance)
        return " ".join(words)

    def _after(self, word: str, chance: random.Random) -> str:
        if chance.random() < _FOLLOWS:
            return chance.choice(self._follows.get(word, self._words))
        return chance.choices(self._ranked, cum_weights=self._weights)[0]
