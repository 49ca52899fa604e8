"""Reading the gateway's counters."""

import io

from rich.console import Console

from gateway.replay.counted import Counted, counted, differences, print_counted
from gateway.replay.forms import FORMS
from gateway.replay.measuring import Arrival
from gateway.replay.report import Row

PAGE = """\
# HELP packhorse_requests_total Exchanges.
# TYPE packhorse_requests_total counter
packhorse_requests_total{route="a",method="GET",status="2xx",outcome="ok"} 3
packhorse_requests_total{route="b",method="GET",status="4xx",outcome="refused"} 2
# HELP packhorse_link_bytes_total Bytes.
# TYPE packhorse_link_bytes_total counter
packhorse_link_bytes_total{route="a",direction="down",link="metered",part="body"} 100
packhorse_link_bytes_total{route="b",direction="down",link="weak",part="body"} 11
packhorse_link_bytes_total{route="a",direction="down",link="metered",part="head"} 30
packhorse_link_bytes_total{route="a",direction="up",link="metered",part="body"} 7000
# HELP packhorse_link_original_bytes_total Bytes.
# TYPE packhorse_link_original_bytes_total counter
packhorse_link_original_bytes_total{route="a",direction="down",link="metered"} 900
packhorse_link_original_bytes_total{route="a",direction="up",link="metered"} 7000
"""


def test_totals_are_of_what_went_down() -> None:
    assert counted(PAGE) == Counted(exchanges=5, body=111, head=30, original=900)


def test_differences_name_the_form_and_both_figures() -> None:
    rows = [Row(form, (Arrival(1, 10, 5, "identity", b""),)) for form in FORMS[:2]]
    right = Counted(1, 10, 5, 10)
    assert differences(rows, [right, right]) == []
    assert differences(rows, [right, Counted(1, 11, 5, 10)]) == ["full packs: body bytes measured 10, counted 11"]


def test_table_has_a_row_a_form() -> None:
    rows = [Row(form, (Arrival(1, 10, 5, "identity", b""),)) for form in FORMS]
    console = Console(file=io.StringIO(), width=120)
    print_counted(console, rows, [Counted(1, 1234, 5, 10)] * 5)
    assert console.file.getvalue().count("1,234") == 5
