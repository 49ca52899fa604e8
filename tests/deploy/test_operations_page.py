"""docs/operations.md says of the metrics what the registry does."""

import re
from pathlib import Path

from gateway import metric_table as table

PAGE = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()


def test_the_metrics_table_is_the_registrys() -> None:
    rows = re.findall(r"^\| `(packhorse_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE, re.MULTILINE)
    expected = [(m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels), m.help) for m in table.METRICS]
    assert rows == expected


def test_every_word_a_label_can_hold_is_explained() -> None:
    for words in (table.OUTCOMES, table.SKIPS, table.UPSTREAM_ERRORS):
        for word in words:
            assert f"`{word}`" in PAGE, word


def test_what_it_names_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (root / "docs" / link).exists(), link
