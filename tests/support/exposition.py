"""Debian's own linter of metrics pages."""

import shutil
import subprocess

import pytest


def promtool_check(page: bytes) -> None:
    """``promtool check metrics`` finds nothing to say about the page. Skips where it is not installed."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    done = subprocess.run([found, "check", "metrics"], input=page, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
