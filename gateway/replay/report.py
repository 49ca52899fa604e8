"""What a replay measured, as a table for people and as JSON for machines. No sockets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.replay.forms import Form
from gateway.replay.measuring import Arrival

_BAR, _LEAST_BAR = 40, 8
_FIGURES = 64
"""Columns that the figures take, with room for gigabytes."""


@dataclass(frozen=True)
class Row:
    """One form over all turns."""

    form: Form
    arrivals: tuple[Arrival, ...]

    @property
    def body(self) -> int:
        """Body bytes of all turns."""
        return sum(arrival.body for arrival in self.arrivals)

    @property
    def head(self) -> int:
        """Head bytes of all turns."""
        return sum(arrival.head for arrival in self.arrivals)

    @property
    def codings(self) -> Counter[str]:
        """How many turns came in which coding."""
        return Counter(arrival.coding for arrival in self.arrivals)


def share(part: int, whole: int) -> str:
    """A percentage with one decimal, two below one per cent."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2f} %"


def bar(part: int, longest: int, width: int, *, ascii_only: bool = False) -> str:
    """A bar in proportion, ``width`` for the longest; never empty for what is not nothing."""
    filled = max(1, round(width * part / longest)) if longest and part else 0
    return ("#" if ascii_only else "█") * filled


def print_table(console: Console, rows: Sequence[Row], title: str) -> None:
    """Bytes of every form, its share of raw, what heads add, and a bar of the bodies in what width is left."""
    ascii_only = not (console.encoding or "").lower().startswith("utf")
    console.print(title, style="bold", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("form", no_wrap=True)
    for heading in ("body bytes", "of raw", "head bytes", "together"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bodies", no_wrap=True)
    longest, least = max(row.body for row in rows), min(row.body for row in rows)
    width = max(_LEAST_BAR, min(_BAR, console.width - _FIGURES))
    for row in rows:
        style = "green" if row.body == least else "cyan"
        drawn = f"[{style}]{bar(row.body, longest, width, ascii_only=ascii_only)}[/]"
        figures = (f"{row.body:,}", share(row.body, rows[0].body), f"{row.head:,}", f"{row.body + row.head:,}")
        table.add_row(row.form.name, *figures, drawn)
    console.print(table)


def codings_lines(rows: Sequence[Row]) -> list[str]:
    """One line a form: how many turns came in which coding."""
    return [
        f"{row.form.name}: " + ", ".join(f"{count} x {coding}" for coding, count in row.codings.most_common()) for row in rows
    ]


def saved_line(rows: Sequence[Row]) -> str:
    """One sentence: what the deltas took less, or more, than raw and than gzip, heads included."""
    cost = {row.form.key: row.body + row.head for row in rows}
    told = [
        f"{row.form.name} took {_compared(cost[row.form.key], cost['raw'])} than raw"
        f" and {_compared(cost[row.form.key], cost['gzip'])} than gzip"
        for row in rows
        if row.form.bases == "last"
    ]
    return f"Heads included, {'; '.join(told)}."


def _compared(part: int, whole: int) -> str:
    return f"{share(abs(whole - part), whole)} {'less' if part <= whole else 'more'}"


def as_json(rows: Sequence[Row], what: str, through: str) -> dict[str, Any]:
    """Everything measured, turn by turn. Reached only when every body was proven, hence ``verified``."""
    raw = rows[0].body
    return {
        "what": what,
        "through": through,
        "turns": len(rows[0].arrivals),
        "verified": True,
        "forms": {
            row.form.key: {
                "accept_encoding": row.form.accept,
                "body_bytes": row.body,
                "head_bytes": row.head,
                "share_of_raw": round(row.body / raw, 6) if raw else None,
                "codings": dict(row.codings),
                "turns": [
                    {"turn": item.turn, "body_bytes": item.body, "head_bytes": item.head, "coding": item.coding}
                    for item in row.arrivals
                ],
            }
            for row in rows
        },
    }
