"""What the gateway's own counters say of the bytes that were just measured from outside."""

import asyncio
from dataclasses import dataclass

from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from gateway.replay.report import Row

_PATIENCE = 2.0
"""Seconds a counter may lag behind the last byte of an answer."""


@dataclass(frozen=True)
class Counted:
    """Totals of the counters that speak of the client's link, downwards."""

    exchanges: int = 0
    body: int = 0
    head: int = 0
    original: int = 0
    """The same bodies uncoded."""

    def __sub__(self, before: "Counted") -> "Counted":
        """What was counted since ``before``."""
        return Counted(
            self.exchanges - before.exchanges,
            self.body - before.body,
            self.head - before.head,
            self.original - before.original,
        )


def counted(metrics: str) -> Counted:
    """Totals over all routes and links from a page of ``/metrics``."""
    sums = {"exchanges": 0.0, "body": 0.0, "head": 0.0, "original": 0.0}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            down = sample.labels.get("direction") == "down"
            if sample.name == "packhorse_requests_total":
                sums["exchanges"] += sample.value
            elif sample.name == "packhorse_link_bytes_total" and down:
                sums[sample.labels["part"]] += sample.value
            elif sample.name == "packhorse_link_original_bytes_total" and down:
                sums["original"] += sample.value
    return Counted(**{name: int(value) for name, value in sums.items()})


class Reader:
    """Reads the counters before and after each form. `begin` before the first, `after` after every one."""

    def __init__(self, session: ClientSession, admin_url: str) -> None:
        """``session`` is for the admin listener only: nothing here must add to the counters of the data listener."""
        self._session, self._url = session, f"{admin_url}/metrics"
        self._before = Counted()
        self.forms: list[Counted] = []
        """What each form added."""

    async def begin(self) -> None:
        """Take the counters as they stand."""
        self._before = await self._read()

    async def after(self, row: Row) -> None:
        """Take what the form of ``row`` added, once its last exchange is counted or `_PATIENCE` is over."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        now = await self._read()
        while (now - self._before).exchanges < len(row.arrivals) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
            now = await self._read()
        self.forms.append(now - self._before)
        self._before = now

    async def _read(self) -> Counted:
        async with self._session.get(self._url, raise_for_status=True) as answer:
            return counted(await answer.text())


def differences(rows: list[Row], forms: list[Counted]) -> list[str]:
    """Sentences on every figure that the gateway counted otherwise than the client; none if the books agree."""
    found = []
    raw = rows[0].body
    for row, seen in zip(rows, forms, strict=True):
        pairs = (("body", row.body, seen.body), ("head", row.head, seen.head), ("original", raw, seen.original))
        found += [
            f"{row.form.name}: {what} bytes measured {measured:,}, counted {count:,}"
            for what, measured, count in pairs
            if measured != count
        ]
    return found


def print_counted(console: Console, rows: list[Row], forms: list[Counted]) -> None:
    """The same figures as the gateway's counters have them."""
    title = "The same, read back from /metrics (what each form added, direction=down)"
    console.print(title, style="bold", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("form", no_wrap=True)
    for name in ("link_bytes part=body", "part=head", "link_original_bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, seen in zip(rows, forms, strict=True):
        table.add_row(row.form.name, f"{seen.body:,}", f"{seen.head:,}", f"{seen.original:,}")
    console.print(table)
