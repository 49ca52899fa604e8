"""One upstream and one gateway for all tests of a worker; each test takes paths and names of its own. Every test is bounded."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from contract.kit import Gateway, Upstream, end_zygote, gateway

LIMIT = 60.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What hangs is interrupted and says where it stood."""
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError("the test hung")


@pytest.fixture(scope="session", autouse=True)
def _zygote() -> Iterator[None]:
    yield
    end_zygote()


@pytest.fixture(scope="session")
def up() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


@pytest.fixture(scope="session")
def second() -> Iterator[Upstream]:
    """Another upstream: nothing of ``up`` is known there."""
    made = Upstream()
    yield made
    made.close()


@pytest.fixture(scope="session")
def gw(up: Upstream, second: Upstream) -> Iterator[Gateway]:
    """Default settings, a route of each kind before one upstream, ``/second`` before another."""
    routes = [
        {"name": "prepare", "match": "/", "upstream": up.url, "kind": "prepare"},
        {"name": "chat", "match": "/v1/", "upstream": up.url, "kind": "openai"},
        {"name": "anthropic", "match": "/anthropic", "upstream": up.url, "kind": "anthropic"},
        {"name": "plain", "match": "/plain", "upstream": up.url, "kind": "plain"},
        {"name": "strip", "match": "/strip", "upstream": up.url, "kind": "prepare", "strip_prefix": True},
        {"name": "normal", "match": "/normal", "upstream": up.url, "kind": "prepare", "link": "normal"},
        {"name": "weak", "match": "/weak", "upstream": up.url, "kind": "prepare", "link": "weak"},
        {"name": "second", "match": "/second", "upstream": second.url, "kind": "prepare"},
        {"name": "dead", "match": "/dead", "upstream": "http://127.0.0.1:9", "kind": "prepare"},
    ]
    with tempfile.TemporaryDirectory(prefix="phc") as folder, gateway(up, routes=routes, folder=Path(folder)) as made:
        yield made
