"""One way to put a small aiohttp application of ours on a socket: what the sample upstream, replay and the tour share."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``; `ValueError` with a sentence for anything else."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host:
        raise ValueError(f"{listen!r} is not an address; expected host:port, such as 127.0.0.1:9000 or [::1]:9000")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def serving(application: web.Application, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Serve ``application`` until the block ends; yields its URL, with the real port where ``listen`` asks for port 0.

    A client that leaves cancels its handler at once. `OSError` if the address cannot be had, `ValueError` if it is none.
    """
    host, port = split_address(listen)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        yield f"http://{shown}:{bound[1]}"
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
