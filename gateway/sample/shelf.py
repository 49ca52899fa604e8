"""Texts that ship with the project, read from the installed package. Everyone in them is invented, and the texts say so."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import accumulate

SECTION = "## "


@dataclass(frozen=True)
class Passage:
    """One section of the handbook: its heading without the marks, and its text without the heading."""

    heading: str
    text: str


@cache
def _read(name: str) -> str:
    return resources.files("gateway").joinpath("samples", name).read_text(encoding="utf-8")


def handbook() -> str:
    """The harbour handbook, about 5.6 KB of Markdown with a section in Chinese."""
    return _read("handbook.md")


def questions() -> tuple[str, ...]:
    """Questions the handbook answers."""
    return tuple(_read("questions.txt").splitlines())


def notes() -> tuple[str, ...]:
    """Remarks that a revision of the handbook may add."""
    return tuple(_read("notes.txt").splitlines())


@cache
def meeting() -> tuple[str, ...]:
    """The record of a long meeting after each of its forty speeches: the text up to and with that speech."""
    speeches = _read("meeting.md").split("\n" + SECTION)
    _opening, *texts = accumulate(speeches, lambda text, speech: f"{text}\n{SECTION}{speech}")
    return tuple(texts)


@cache
def passages() -> tuple[Passage, ...]:
    """The sections of the handbook, in its order."""
    _, *sections = handbook().split("\n" + SECTION)
    split = (section.partition("\n") for section in sections)
    return tuple(Passage(heading, text.strip()) for heading, _, text in split)
