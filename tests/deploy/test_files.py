"""What can be said of deploy's files without a container engine: they parse, load, lint, and name each other rightly."""

import json
import re
import shutil
import subprocess
import tomllib
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.loader import load
from config.schema import Configuration
from gateway import metric_table as table

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ENVIRONMENT = {"ADMIN_TOKEN": "a-token-of-sixteen-or-more", "UPSTREAM": "http://sample:9000"}


@pytest.fixture(scope="module")
def settings() -> Configuration:
    return load(DEPLOY / "packhorse.yaml", environ=ENVIRONMENT, overrides={})


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return dict(json.loads((DEPLOY / "grafana/dashboard.json").read_text()))


def dockerfile() -> list[str]:
    """Instructions, continuation lines joined, comments gone."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_containers_settings_load(settings: Configuration) -> None:
    assert settings.store.kind == "sqlite"
    assert str(settings.store.path).startswith("/var/lib/packhorse/")
    assert settings.admin.token == ENVIRONMENT["ADMIN_TOKEN"]


def test_the_image_runs_as_nobody_in_particular_and_says_how_it_is(settings: Configuration) -> None:
    lines = dockerfile()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert all(line.split()[1] == "python:3.11-slim" for line in lines if line.startswith("FROM "))
    assert "USER 10001:10001" in last
    assert "STOPSIGNAL SIGTERM" in last
    (health,) = (line for line in last if line.startswith("HEALTHCHECK "))
    assert f"127.0.0.1:{settings.admin.listen.rpartition(':')[2]}/livez" in health
    assert not any("pip install" in line for line in last)
    command = json.loads(next(line for line in last if line.startswith("CMD "))[4:])
    target = next(line.split()[2] for line in last if line.startswith("COPY deploy/"))
    assert command == ["serve", "--config", target]


def test_the_image_is_given_every_package_and_nothing_else() -> None:
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {pattern.rstrip("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert allowed == packages | {"pyproject.toml", project["project"]["readme"], "LICENSE", "deploy/packhorse.yaml"}


def test_compose_names_what_exists(compose: dict[str, Any], settings: Configuration) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"], source
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), "published on loopback only"
        for secret in service.get("secrets", []):
            assert secret in compose["secrets"]
    gateway = compose["services"]["packhorse"]
    assert int(gateway["stop_grace_period"].removesuffix("s")) > settings.drain
    assert set(gateway["environment"]) == set(re.findall(r"\${(\w+)}", (DEPLOY / "packhorse.yaml").read_text()))
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())["scrape_configs"]
    host, _, port = job["static_configs"][0]["targets"][0].partition(":")
    assert host in compose["services"]
    assert port == settings.admin.listen.rpartition(":")[2]


def test_grafana_is_given_the_datasource_and_the_dashboard(compose: dict[str, Any]) -> None:
    provisioning = DEPLOY / "grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/packhorse.yaml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"]]
    assert any(path.startswith(provider["options"]["path"]) for path in mounted)


def test_the_dashboards_panels_have_their_own_ids_and_places(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = (
            one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        )  # fmt: skip
        assert apart, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_panel_says_what_it_shows_and_asks_the_chosen_datasource(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_every_metric_is_on_the_dashboard_or_in_the_rules(dashboard: dict[str, Any]) -> None:
    shown = json.dumps(dashboard) + (DEPLOY / "prometheus/rules.yaml").read_text()
    named = set(re.findall(r"\bpackhorse_\w+", shown)) - {"packhorse"}
    exported = {metric.name for metric in table.METRICS}
    assert {name.removesuffix("_bucket") for name in named} == exported, "each metric shown, no other named"


def test_savings_may_fall_below_zero_on_the_dashboard(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        if panel["title"].startswith("Saved"):
            assert "min" not in panel["fieldConfig"]["defaults"], panel["title"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/packhorse.service").read_text()
    unit = tmp_path / "packhorse.service"
    unit.write_text(text.replace("/opt/packhorse/bin/packhorse", "/bin/true"))  # verify wants a program that exists
    for arguments in (["verify"], ["security", "--offline=yes", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *arguments, str(unit)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert arguments != ["verify"] or not done.stderr, done.stderr


def test_the_unit_waits_longer_than_the_default_drain() -> None:
    text = (DEPLOY / "systemd/packhorse.service").read_text()
    patience = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert patience is not None
    assert int(patience[1]) > Configuration.model_fields["drain"].default
