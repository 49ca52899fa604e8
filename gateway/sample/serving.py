"""One way to put a small aiohttp application of ours on a socket: what the sample upstream, replay and the tour share."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from config.addresses import Listen
from gateway.aiohttp_seams import bound_port
from gateway.listeners import listen_on

LOOPBACK = Listen("127.0.0.1", 0)
"""Any free port, for this machine only."""


@asynccontextmanager
async def serving(application: web.Application, address: Listen = LOOPBACK) -> AsyncIterator[str]:
    """Serve ``application`` until the block ends; yields its URL, with the real port where port 0 was asked for.

    A client that leaves cancels its handler at once. Raises `gateway.listeners.CannotListen`.
    """
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = await listen_on(runner, address, None, "listen")
        yield str(address) if address.path else f"http://{Listen(address.host, bound_port(site))}"
    finally:
        await runner.cleanup()


def stop_signal() -> asyncio.Event:
    """An event that SIGINT or SIGTERM sets from now on. Ask for it before telling anyone that the service is up."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.set)
    return stop
