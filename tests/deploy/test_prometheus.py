"""Debian's real Prometheus with deploy's settings, rules and dashboard, against a gateway under traffic."""

import asyncio
import re
import shutil
from typing import Any

import pytest
from support import prometheus_scene as scenery
from support.exposition import promtool_check

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus and promtool (Debian's package prometheus) are not installed",
)


TARGETS = scenery.dashboard_targets()
RULES = scenery.rules()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> scenery.Scene:
    return asyncio.run(scenery.play(tmp_path_factory.mktemp("scene")))


def test_the_page_passes_promtool(scene: scenery.Scene) -> None:
    promtool_check(scene.page)


def test_prometheus_holds_every_counter_to_the_byte(scene: scenery.Scene) -> None:
    assert scene.counters
    for name, value in scene.counters.items():
        assert value == scene.total(name), name


def test_no_rule_has_an_error(scene: scenery.Scene) -> None:
    assert scene.health == []


@pytest.mark.parametrize(("title", "panel", "target"), TARGETS, ids=[f"{t} {q['refId']}" for t, _, q in TARGETS])
def test_no_panel_is_empty_or_nonsense(scene: scenery.Scene, title: str, panel: dict[str, Any], target: dict[str, Any]) -> None:
    found = scene.panels[title, target["refId"]]
    assert scenery.finite(found), f"{title} is empty"
    for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
        assert all(label in series["metric"] for series in found), f"{title} names {label}, which its series do not have"
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for value in scenery.values(found):
        if unit == "percentunit":
            assert value != value or value <= 1, f"{title}: over 100%"
        elif not title.startswith("Saved"):
            assert value != value or value >= 0, f"{title}: below nothing"


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("record") or rule["alert"] for rule in RULES])
def test_no_rule_looks_at_nothing(scene: scenery.Scene, rule: dict[str, str]) -> None:
    found = scene.rules[rule.get("record") or rule["alert"]]
    assert scenery.finite(found)


def test_the_alerts_compare_what_is_there(scene: scenery.Scene) -> None:
    """This traffic fails often and loses to gzip on one route; nothing is degraded and the settings were taken."""

    def would_fire(alert: str) -> bool:
        _, operator, bound = scenery.compared_value(next(r["expr"] for r in RULES if r.get("alert") == alert))
        compare = {"==": float.__eq__, ">": float.__gt__, "<": float.__lt__}[operator]
        return any(compare(value, bound) for value in scenery.values(scene.rules[alert]))

    assert would_fire("PackhorseErrors")
    assert would_fire("PackhorseUpstreamCut")
    assert would_fire("PackhorseWorseThanGzip")
    assert not would_fire("PackhorseDown")
    assert not would_fire("PackhorseDegraded")
    assert not would_fire("PackhorseReloadFailed")


def test_the_totals_panel_is_the_gateways_own_sums(scene: scenery.Scene) -> None:
    series = {
        "A": ("packhorse_link_original_bytes_total", {}),
        "B": ("packhorse_link_bytes_total", {"part": "body"}),
        "C": ("packhorse_link_bytes_total", {"part": "head"}),
        "D": ("packhorse_gzip_compared_original_bytes_total", {}),
        "E": ("packhorse_gzip_compared_sent_bytes_total", {}),
        "F": ("packhorse_gzip_compared_gzip_bytes_total", {}),
    }
    for letter, (name, labels) in series.items():
        for (route, direction), value in scenery.by(
            scene.panels["Totals since the start", letter], "route", "direction"
        ).items():
            assert value == scene.total(name, route=route, direction=direction, **labels), (letter, route, direction)


def test_savings_are_what_the_pages_bytes_make_them(scene: scenery.Scene) -> None:
    sent = scene.grown("packhorse_link_bytes_total", direction="down", part="body")
    original = scene.grown("packhorse_link_original_bytes_total", direction="down")
    (saved,) = scenery.values(scene.panels["Saved of what would have crossed", "A"])
    assert saved == pytest.approx(1 - sent / original, abs=0.03)
    compared = scene.grown("packhorse_gzip_compared_sent_bytes_total", direction="down")
    gzip = scene.grown("packhorse_gzip_compared_gzip_bytes_total", direction="down")
    (over_gzip,) = scenery.values(scene.panels["Saved on top of gzip", "A"])
    assert over_gzip == pytest.approx(1 - compared / gzip, abs=0.03)


def test_losses_are_shown_as_losses(scene: scenery.Scene) -> None:
    saved = scenery.by(scene.panels["Saved on top of gzip by route, bytes a second", "A"], "route", "direction")
    assert saved["bare", "down"] < 0, "its clients took no coding: gzip would have been smaller"
    assert saved["prepare", "down"] > 0
    recorded = scenery.by(scene.rules["packhorse:gzip_saving:ratio_rate1h"], "route", "direction")
    assert recorded["bare", "down"] < 0 < recorded["prepare", "down"]


def test_deltas_save_on_the_metered_link_and_nothing_on_the_normal_one(scene: scenery.Scene) -> None:
    share = scenery.by(scene.panels["Saved by route and link, share", "A"], "route", "link")
    assert share["prepare", "metered"] > 0.5
    assert share["prepare", "normal"] == pytest.approx(0, abs=0.01)
    assert share["bare", "metered"] == pytest.approx(0, abs=0.01)


def test_every_outcome_and_lookup_was_seen(scene: scenery.Scene) -> None:
    outcomes = {outcome for _, outcome in scenery.by(scene.panels["Outcomes other than ok", "A"], "route", "outcome")}
    assert outcomes == {"client_gone", "upstream_cut", "refused", "failed"}
    lookups = scenery.by(scene.panels["Base lookups by result", "A"], "direction", "result")
    assert lookups["down", "hit"] > 0
    assert lookups["down", "unknown"] > 0
    errors = scenery.by(scene.panels["Upstream errors by reason", "A"], "route", "reason")
    assert errors["gone", "connect"] > 0
    assert errors["prepare", "cut"] > 0
