"""For every test: with PACKHORSE_NO_SKIPS set, as in CI, a test that was skipped is a test that failed."""

import os

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what was skipped, and why."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        _skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that must not skip."""
    if _skipped and os.environ.get("PACKHORSE_NO_SKIPS") and not hasattr(session.config, "workerinput"):
        print("\nskipped where no skip is allowed:", *_skipped, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
