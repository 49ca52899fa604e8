"""``packhorse serve``: run the gateway until it is told to stop (SIGTERM or SIGINT drain, SIGHUP reloads)."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from config.changes import non_default
from config.errors import ConfigError
from config.loader import load
from config.schema import Configuration
from gateway import log as logs
from gateway.listeners import CannotListen
from gateway.service import Gateway, running

log = logging.getLogger("packhorse")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file")
    parser.add_argument("--upstream", metavar="URL", help="serve this upstream, with no routes in a file")
    parser.add_argument("--listen", metavar="ADDR", help="host:port, [v6]:port or unix:/path (default 127.0.0.1:8080)")
    parser.add_argument("--admin-listen", metavar="ADDR", help="the same for metrics and health (default 127.0.0.1:8081)")


def run(args: argparse.Namespace) -> int:
    """Serve. Exit 0 after a drain, 1 where it cannot listen, 2 where the settings are wrong."""
    overrides = {"upstream": args.upstream, "listen": args.listen, "admin.listen": args.admin_listen}
    loader = partial(load, args.config, environ=os.environ, overrides=overrides)
    try:
        configuration = loader()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    listener = logs.start(configuration.log)
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
        log.info("not by default: %s", ", ".join(non_default(configuration)) or "nothing")
        for trouble in gateway.degraded():
            log.warning("degraded: %s", trouble)
        await gateway.drained.wait()
        log.info("draining: answers under way have %g s", configuration.drain)
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
        loop.add_signal_handler(number, gateway.begin_drain)
    loop.add_signal_handler(signal.SIGHUP, reload)
