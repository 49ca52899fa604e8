"""What a replay measured, as a table for people and as JSON for machines. No sockets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.replay.forms import Form
from gateway.replay.measuring import Arrival

_BAR = 32


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


def bar(part: int, longest: int, *, ascii_only: bool = False) -> str:
    """A bar in proportion; never empty for what is not nothing."""
    width = max(1, round(_BAR * part / longest)) if longest and part else 0
    return ("#" if ascii_only else "█") * width


def print_table(console: Console, rows: Sequence[Row], title: str) -> None:
    """Bytes of every form, its share of raw, and a bar; on anything but a terminal without colour or frame."""
    ascii_only = not (console.encoding or "").lower().startswith("utf")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("form", no_wrap=True)
    table.add_column("body bytes", justify="right", no_wrap=True)
    table.add_column("of raw", justify="right", no_wrap=True)
    table.add_column("head bytes", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    longest = max(row.body for row in rows)
    raw = rows[0].body
    best = min(row.body for row in rows)
    for row in rows:
        style = "green" if row.body == best else "cyan"
        drawn = f"[{style}]{bar(row.body, longest, ascii_only=ascii_only)}[/]"
        table.add_row(row.form.name, f"{row.body:,}", share(row.body, raw), f"{row.head:,}", drawn)
    console.print(table)


def codings_lines(rows: Sequence[Row]) -> list[str]:
    """One line a form: how many turns came in which coding."""
    return [
        f"{row.form.name}: " + ", ".join(f"{count} x {coding}" for coding, count in row.codings.most_common()) for row in rows
    ]


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
