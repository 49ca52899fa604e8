"""Documents in turns, for prepare requests. Each is a function from a seed to its turns; the same seed, the same bytes."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ctxpack.minutes import minutes
from gateway.sample import retrieval
from gateway.sample.shelf import handbook, meeting, notes, questions

_REVISIONS = 20
_NUMBER = re.compile(r"\b\d+\b")


@dataclass(frozen=True)
class Document:
    """A text in turns, and how the service hands it out."""

    name: str
    """Its path below ``/prepare/``."""
    about: str
    """One sentence for the index page."""
    write: Callable[[int], tuple[str, ...]]
    """From a seed to the whole text of every turn."""
    strong_tag: bool = False
    """Whether a GET is answered with a strong ``ETag`` (and 304 where the client names it)."""
    cache_control: str | None = None
    """``Cache-Control`` of its answers."""


def _meeting(_seed: int) -> tuple[str, ...]:
    return meeting()


def _minutes(_seed: int) -> tuple[str, ...]:
    return tuple(minutes())


def _references(seed: int) -> tuple[str, ...]:
    asked = list(questions())
    random.Random(f"questions {seed}").shuffle(asked)
    turns = []
    for number in range(1, len(asked) + 1):
        lines = [f"# Prepared context, turn {number} (sample text, everyone in it is invented)\n", "## References\n"]
        for place, passage in enumerate(retrieval.ranked(asked[:number]), 1):
            lines.append(f"[{place}] {passage.heading}\n\n{passage.text}\n")
        lines.append("## Conversation\n")
        for question in asked[: number - 1]:
            lines.append(f"User: {question}\n\nAssistant: {retrieval.answer(question)}\n")
        lines.append(f"User: {asked[number - 1]}\n")
        turns.append("\n".join(lines))
    return tuple(turns)


def _another_number(chance: random.Random, paragraph: str) -> str:
    """The paragraph with one of its numbers changed, if it has any."""
    found = list(_NUMBER.finditer(paragraph))
    if not found:
        return paragraph
    match = chance.choice(found)
    return f"{paragraph[: match.start()]}{int(match[0]) + chance.randint(1, 3)}{paragraph[match.end() :]}"


def _revisions(seed: int) -> tuple[str, ...]:
    """Edits in the middle: numbers change, notes are added, and now and then one is taken out again."""
    chance = random.Random(f"revisions {seed}")
    paragraphs = handbook().rstrip("\n").split("\n\n")
    turns = ["\n\n".join(paragraphs) + "\n"]
    for number in range(2, _REVISIONS + 1):
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(2, len(paragraphs) - 1)
            if not paragraphs[place].startswith(("#", "*")):
                paragraphs[place] = _another_number(chance, paragraphs[place])
        place = chance.randrange(3, len(paragraphs))
        if paragraphs[place].startswith("*"):
            del paragraphs[place]
        else:
            paragraphs.insert(place, f"*Revision {number}: {chance.choice(notes())}*")
        turns.append("\n\n".join(paragraphs) + "\n")
    return tuple(turns)


DOCUMENTS = (
    Document("meeting", "The record of one long meeting; each turn adds a speech at the end.", _meeting, strong_tag=True),
    Document("minutes", "Formulaic minutes of the size of the seed's; each turn adds a line.", _minutes, strong_tag=True),
    Document(
        "handbook/references",
        "What a retriever hands a model: six references, which change places, and a conversation that grows.",
        _references,
    ),
    Document(
        "handbook",
        "Revisions of one file, edited in the middle.",
        _revisions,
        strong_tag=True,
        cache_control="private, max-age=60",
    ),
    Document("private", "The minutes again, with an order not to store them.", _minutes, cache_control="no-store"),
)
"""Everything below ``/prepare/``."""


@lru_cache(maxsize=64)
def turns(name: str, seed: int) -> tuple[str, ...]:
    """The text of every turn of a document. `KeyError` for a name that is not offered."""
    for document in DOCUMENTS:
        if document.name == name:
            return document.write(seed)
    raise KeyError(name)
