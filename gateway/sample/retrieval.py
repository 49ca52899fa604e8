"""Which passages of the handbook speak of a question: words in common, rare words counting more. No model, no clock."""

import re
from collections.abc import Sequence
from functools import cache
from math import log

from gateway.sample.shelf import Passage, passages

_WORD = re.compile(r"[a-z]{3,}|\d+|[\u4e00-\u9fff]")
_SHOWN = 6


def _words(text: str) -> frozenset[str]:
    return frozenset(word.rstrip("s") or word for word in _WORD.findall(text.lower()))


@cache
def _index() -> tuple[tuple[Passage, frozenset[str]], ...]:
    return tuple((passage, _words(f"{passage.heading} {passage.text}")) for passage in passages())


@cache
def _weight(word: str) -> float:
    holding = sum(word in words for _, words in _index())
    return log(1 + len(_index()) / holding) if holding else 0.0


def score(question: str, words: frozenset[str]) -> float:
    """How much of a question a text with these words speaks of; 0 for nothing in common."""
    return sum(sorted(_weight(word) for word in _words(question) & words))


def ranked(asked: Sequence[str]) -> tuple[Passage, ...]:
    """The six best passages for a conversation, best first.

    The newest question counts in full, the one before half and the one before that a quarter, so references come, go and
    change places from turn to turn, as those of a real retriever do. Ties keep the order of the handbook.
    """
    weights = list(zip(reversed(asked), (1.0, 0.5, 0.25), strict=False))

    def total(entry: tuple[Passage, frozenset[str]]) -> float:
        return -sum(weight * score(question, entry[1]) for question, weight in weights)

    return tuple(passage for passage, _ in sorted(_index(), key=total)[:_SHOWN])


def answer(question: str) -> str:
    """The first paragraph of the best passage, or an empty string where no passage has a word in common."""
    best, words = max(_index(), key=lambda entry: score(question, entry[1]))
    if not score(question, words):
        return ""
    return f"{best.text.partition(chr(10))[0]} ({best.heading})"
