"""What one route counts: labels bounded, histograms cumulative."""

from itertools import pairwise
from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import metric_table as table
from gateway.route_counters import Distribution, RouteCounters, coding_label


@pytest.mark.parametrize(
    ("content_encoding", "label"),
    [
        ("", "identity"), ("identity", "identity"), ("gzip", "gzip"), ("x-gzip", "gzip"), ("GZIP", "gzip"), ("dcz", "dcz"),
        ("ctxpack.delta.v1", "ctxpack.delta.v1"), ("ctxpack.delta.v1, gzip", "ctxpack.delta.v1"),
        ("ctxpack.delta.v2,zstd", "ctxpack.delta.v2"),
        ("br, gzip", "br"), ("aws-chunked", "other"), ("\x00", "other"), ("gzip\n", "gzip"),
    ],
)  # fmt: skip
def test_a_stack_is_labelled_by_its_first_coding(content_encoding: str, label: str) -> None:
    assert coding_label(content_encoding) == label


def test_status_classes() -> None:
    counted = RouteCounters(Lock())
    for status in (0, 100, 204, 299, 302, 451, 599, 600, 999, 1000):
        counted.request("get", status, "ok", 0.0, None, None)
    classes = {key[1]: total for key, total in counted.totals[table.REQUESTS.name].items()}
    assert classes == {"none": 1, "1xx": 1, "2xx": 2, "3xx": 1, "4xx": 1, "5xx": 1, "other": 3}
    assert {key[0] for key in counted.totals[table.REQUESTS.name]} == {"other"}, "methods are case-sensitive"


def test_times_that_are_not_there_are_not_observed() -> None:
    counted = RouteCounters(Lock())
    counted.request("GET", 0, "client_gone", 2.0, None, None)
    counts = {name: sum(d.counts) for name, d in counted.distributions.items()}
    assert counts == {
        table.REQUEST_SECONDS.name: 1,
        table.OVERHEAD_SECONDS.name: 0,
        table.FIRST_BYTE_SECONDS.name: 0,
        table.UPSTREAM_SECONDS.name: 0,
    }


@given(st.lists(st.floats(0, 1000)))
def test_a_distribution_is_cumulative_and_loses_nothing(seconds: list[float]) -> None:
    distribution = Distribution(table.WAIT_BUCKETS)
    for each in seconds:
        distribution.observe(each)
    buckets, total = distribution.buckets()
    assert all(low <= high for (_, low), (_, high) in pairwise(buckets))
    assert buckets[-1] == ("+Inf", len(seconds))
    assert total == pytest.approx(sum(seconds))
    for name, count in buckets[:-1]:
        assert count == sum(each <= float(name) for each in seconds)
