"""All forms one after the other, with a progress bar on a terminal and a plain line a form elsewhere."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from gateway.replay.forms import FORMS
from gateway.replay.measuring import Arrival, Client, Turn
from gateway.replay.report import Row

AfterForm = Callable[[Row], Awaitable[None]]


async def _nothing(_row: Row) -> None:
    return


async def run_all(client: Client, turns: Sequence[Turn], console: Console, after_form: AfterForm = _nothing) -> list[Row]:
    """Measure every form; ``after_form`` is awaited between two forms, when no request is under way.

    What the raw form gets is what all others must lead back to. Raises `ReplayFailed` at the first turn that does not.
    """
    rows: list[Row] = []
    columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for form in FORMS:
            task = progress.add_task(form.name, total=len(turns))
            arrivals: list[Arrival] = []
            async for arrival in client.run(form, turns):
                arrivals.append(arrival)
                progress.advance(task)
            if not rows:
                turns = [replace(turn, text=arrival.text) for turn, arrival in zip(turns, arrivals, strict=True)]
            rows.append(Row(form, tuple(arrivals)))
            await after_form(rows[-1])
            if not console.is_terminal:
                console.print(f"{form.name}: {len(arrivals)} turns, {rows[-1].body:,} bytes")
    return rows
