"""Sample minutes: one meeting of forty turns, each turn the whole text so far with one speech more.

Written for this project. Every person, ship and number in it is invented, and the text says so. It is formulaic, as the
minutes behind the seed's table were (a few hundred bytes under gzip), and of the same size: about 114,650 bytes over
all turns. Real meetings repeat themselves less; `measure --input` takes yours.
"""

from __future__ import annotations

from typing import Iterator

TURNS = 40

_HEAD = "# Ferry works (sample; names and figures invented)\n\n"

_SPEECHES = (
    "Maren: berth {n} is inspected; the report goes to the harbour office and to the yard, so that both have it in time"
    " before the next review.",
    "Kesper: we are still waiting for the second pump of berth {n}; the yard promises it in writing, and delivers it"
    " before the next review.",
    "Tobiah: agreed; action {n}: put the second pump on the list of the yard, ask for a date in writing, and report back"
    " at the next review.",
    "Ysolde: the timetable stays as it is until berth {n} is inspected; the harbour office tells the passengers"
    " before the next review.",
)


def minutes(turns: int = TURNS) -> Iterator[str]:
    """Yield the text of the minutes after each of `turns` turns. Always the same text."""
    text = _HEAD
    for turn in range(turns):
        speech = _SPEECHES[turn % len(_SPEECHES)].format(n=turn // len(_SPEECHES) + 1)
        text += f"{turn + 1}. {speech}\n"
        yield text
