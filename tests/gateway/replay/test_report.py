"""Tables and JSON of what was measured."""

import io
import json
from dataclasses import replace

from rich.console import Console

from gateway.replay.forms import FORMS
from gateway.replay.measuring import Arrival
from gateway.replay.report import Row, as_json, bar, codings_lines, print_table, saved_line, share

ROWS = [
    Row(form, tuple(Arrival(turn, size, 200, coding, b"") for turn in (1, 2)))
    for form, size, coding in zip(
        FORMS,
        (50_000, 70_000, 5_000, 600, 9_000),
        ("identity", "ctxpack.pack.v1", "ctxpack.delta.v1", "ctxpack.delta.v1, gzip", "gzip"),
        strict=True,
    )
]


def printed(encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    with io.TextIOWrapper(buffer, encoding=encoding) as file:
        print_table(Console(file=file, width=100), ROWS, "title")
        file.flush()
        return buffer.getvalue().decode(encoding)


def test_table_has_bytes_shares_and_bars_in_the_order_of_the_seed() -> None:
    lines = printed().splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == ["raw", "full packs", "deltas", "deltas + gzip", "gzip"]
    assert "140,000  140.0 %         400   140,400  ████████████████████████████████████" in lines[3]
    assert "1,200    1.2 %         400     1,600" in lines[5]
    assert lines[5].rstrip().endswith("█")


def test_table_without_unicode() -> None:
    assert "################" in printed("ascii")


def test_bars_and_shares() -> None:
    assert (bar(0, 10, 32), bar(1, 10_000, 32), len(bar(5, 10, 32))) == ("", "█", 16)
    assert (share(1, 3), share(1, 1000), share(0, 0)) == ("33.3 %", "0.10 %", "-")


def test_json_has_every_turn() -> None:
    report = json.loads(json.dumps(as_json(ROWS, "a file", "somewhere")))
    assert (report["turns"], report["verified"]) == (2, True)
    assert list(report["forms"]) == ["raw", "packs", "deltas", "deltas-gzip", "gzip"]
    deltas = report["forms"]["deltas-gzip"]
    assert (deltas["body_bytes"], deltas["head_bytes"], deltas["share_of_raw"]) == (1_200, 400, 0.012)
    assert deltas["codings"] == {"ctxpack.delta.v1, gzip": 2}
    assert [turn["turn"] for turn in deltas["turns"]] == [1, 2]


def test_codings_are_told_in_words() -> None:
    assert codings_lines(ROWS)[3] == "deltas + gzip: 2 x ctxpack.delta.v1, gzip"


def test_savings_are_told_in_one_line_and_gzip_gets_its_due() -> None:
    assert saved_line(ROWS) == (
        "Heads included, deltas took 89.6 % less than raw and 43.5 % less than gzip;"
        " deltas + gzip took 98.4 % less than raw and 91.3 % less than gzip."
    )
    small = replace(ROWS[4], arrivals=(Arrival(1, 1_000, 0, "gzip", b""),))
    assert "deltas took 89.6 % less than raw and 940.0 % more than gzip" in saved_line([*ROWS[:4], small])
