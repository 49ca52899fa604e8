"""``packhorse serve``: run the gateway until it is told to stop (SIGTERM or SIGINT drain, SIGHUP reloads)."""

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable

import uvloop

from config.changes import non_default
from config.errors import ConfigError
from config.schema import Configuration
from gateway import log as logs
from gateway.commands.settings import add_settings_arguments, read_settings, report
from gateway.listeners import CannotListen
from gateway.service import Gateway, running

log = logging.getLogger("packhorse")

_COLLECT_AFTER = 20_000
"""Objects made between two collections of the young: an exchange makes some hundreds and leaves no cycle behind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve. Exit 0 after a drain, 1 where it cannot listen, 2 where the settings are wrong."""

    def loader() -> Configuration:
        return read_settings(args).configuration

    try:
        configuration = loader()
    except ConfigError as error:
        return report(error)
    listener = logs.start(configuration.log)
    gc.freeze()  # what is loaded stays: the collector need not look at it again
    gc.set_threshold(_COLLECT_AFTER)
    try:
        return uvloop.run(_serve(configuration, loader))
    except CannotListen as error:
        sys.stderr.write(f"packhorse: {error}\n")
        return 1
    finally:
        listener.stop()


async def _serve(configuration: Configuration, loader: Callable[[], Configuration]) -> int:
    async with running(configuration, loader) as gateway:
        _on_signals(gateway)
        log.info("serving on %s, admin on %s", gateway.url, gateway.admin_url or "no listener")
        log.info("not by default: %s", ", ".join(non_default(configuration)))
        for trouble in gateway.degraded():
            log.warning("degraded: %s", trouble)
        await gateway.ended.wait()
    log.info("stopped")
    return 0


def _on_signals(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[list[str]]] = set()

    def reload() -> None:
        task = loop.create_task(gateway.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.end)
    loop.add_signal_handler(signal.SIGHUP, reload)
