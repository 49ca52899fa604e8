"""A sample upstream on a real socket, and a client that undoes nothing."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from gateway.sample.serving import serving
from gateway.sample.upstream import application


@pytest.fixture
async def sample() -> AsyncIterator[ClientSession]:
    async with serving(application(1)) as url, ClientSession(url, auto_decompress=False) as client:
        yield client
