"""The table of metrics: names that Prometheus's conventions allow, and bounds that sort."""

from gateway import metric_table as table
from gateway.metric_table import METRICS


def test_every_metric_of_the_module_is_exported_once() -> None:
    defined = [value for value in vars(table).values() if isinstance(value, table.Metric)]
    assert sorted(m.name for m in defined) == sorted(m.name for m in METRICS)
    assert len({m.name for m in METRICS}) == len(METRICS)


def test_names_and_helps_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.name.startswith("packhorse_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")
        assert "\n" not in metric.help


def test_only_histograms_have_buckets_and_they_rise() -> None:
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_the_promised_overhead_can_be_read_off() -> None:
    assert 0.0015 in table.OVERHEAD_BUCKETS


def test_no_set_holds_the_word_for_what_is_not_in_it() -> None:
    for labels in (
        table.METHODS, table.STATUSES, table.OUTCOMES, table.DIRECTIONS, table.LINKS, table.PARTS, table.CODINGS, table.WHYS,
        table.LOOKUPS, table.UPSTREAM_ERRORS, table.SKIPS,
    ):  # fmt: skip
        assert len(set(labels)) == len(labels)
        assert "other" not in labels
