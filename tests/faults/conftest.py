"""Bounds and fixtures of the fault tests. Every one runs against real sockets and within a time of its own."""

import asyncio
import functools
import inspect
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from support.certificates import Authority, authority

LIMIT = 30.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): this test may take that long instead of 30 s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No fault may hang the suite: the report says which test hung."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("limit")
            item.obj = _bounded(item.obj, marker.args[0] if marker else LIMIT)


def _bounded(test, seconds):
    @functools.wraps(test)
    async def bounded(*args, **kwargs):
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return bounded


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The last resort: what hangs the loop itself, or the end of a test, is interrupted and says where it stood."""
    marker = item.get_closest_marker("limit")
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, (marker.args[0] if marker else LIMIT) + 15)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError("the test hung")


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that this run made."""
    return authority(tmp_path_factory.mktemp("ca"))
