"""The rules and the Prometheus settings as promtool sees them, and as the operations page does."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
ALERTS = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
]


def promtool(*arguments: str) -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_valid() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(PROMETHEUS / "rules.yaml"))


def test_the_settings_are_valid_with_their_token_in_place(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    text = (PROMETHEUS / "prometheus.yaml").read_text().replace("/run/secrets/admin-token", str(token))
    (tmp_path / "prometheus.yaml").write_text(text)
    shutil.copy(PROMETHEUS / "rules.yaml", tmp_path)
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yaml"))


def test_each_alert_fires_and_each_is_silent_when_it_should(tmp_path: Path) -> None:
    text = Path(__file__).with_name("rules_test.yaml").read_text()
    assert {rule["alert"] for rule in ALERTS} <= set(re.findall(r"alertname: (\w+)", text))
    (tmp_path / "rules_test.yaml").write_text(text.replace("[RULES]", f"[{PROMETHEUS / 'rules.yaml'}]"))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "rules_test.yaml"))


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_an_alert_says_what_to_do_here_and_on_the_page(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "runbook"}
    page = (ROOT / "docs/operations.md").read_text()
    assert f"\n### {rule['alert']}\n" in page


def test_the_page_describes_no_alert_that_is_gone() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    section = page[page.index("## Alerts") : page.index("## Sizing")]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == [rule["alert"] for rule in ALERTS]
