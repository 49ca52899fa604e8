"""``packhorse sample-upstream``."""

import argparse
import asyncio

from rich.console import Console

from config.addresses import Listen, parse_listen
from gateway.listeners import CannotListen
from gateway.sample.serving import serving, stop_signal
from gateway.sample.upstream import application


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--listen",
        default="127.0.0.1:9000",
        metavar="ADDR",
        help="host:port, [v6]:port or unix:/path (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="same seed, same bytes (default: %(default)s)")
    parser.add_argument(
        "--pace",
        type=float,
        default=0.02,
        metavar="SECONDS",
        help="pause between two events of a stream (default: %(default)s)",
    )
    parser.add_argument("--require-key", action="store_true", help="answer 401 to chat requests without a key")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted. 0 then, 1 if the address cannot be had, 2 if it is none."""
    try:
        address = parse_listen(arguments.listen)
    except ValueError as error:
        return _fail(2, f"--listen {arguments.listen!r}: {error}")
    if not 0 <= arguments.pace < float("inf"):
        return _fail(2, "--pace: expected seconds, 0 or more")
    try:
        asyncio.run(_serve(arguments, address))
    except CannotListen as error:
        return _fail(1, f"--{error}")
    return 0


def _fail(status: int, sentence: str) -> int:
    Console(stderr=True).print(f"sample-upstream: {sentence}", markup=False, highlight=False, soft_wrap=True)
    return status


async def _serve(arguments: argparse.Namespace, address: Listen) -> None:
    made = application(arguments.seed, pace=arguments.pace, require_key=arguments.require_key)
    stop = stop_signal()
    async with serving(made, address) as url:
        Console(soft_wrap=True).print(f"sample upstream on {url}; GET / lists what it offers. Ctrl-C ends it.")
        await stop.wait()
