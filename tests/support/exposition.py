"""Reading a metrics page as Prometheus does."""

import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


def read_page(page: bytes | str) -> Series:
    """Every series of a page, as a parser of the format reads it."""
    text = page if isinstance(page, str) else page.decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def promtool_check(page: bytes) -> None:
    """Debian's own linter finds nothing to say about the page. Skips where it is not installed."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    done = subprocess.run([found, "check", "metrics"], input=page, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
