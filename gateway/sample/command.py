"""``packhorse sample-upstream``."""

import argparse
import asyncio

from rich.console import Console

from .serving import serving, split_address, stop_signal
from .upstream import application


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--listen", default="127.0.0.1:9000", metavar="ADDR", help="host:port (default: %(default)s)")
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
    errors = Console(stderr=True)
    try:
        split_address(arguments.listen)
    except ValueError as error:
        errors.print(f"sample-upstream: --listen: {error}", markup=False, highlight=False, soft_wrap=True)
        return 2
    if arguments.pace < 0:
        errors.print("sample-upstream: --pace: expected seconds, 0 or more", markup=False)
        return 2
    try:
        asyncio.run(_serve(arguments))
    except OSError as error:
        text = f"sample-upstream: cannot listen on {arguments.listen}: {error.strerror}. Choose another with --listen."
        errors.print(text, markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    made = application(arguments.seed, pace=arguments.pace, require_key=arguments.require_key)
    stop = stop_signal()
    async with serving(made, arguments.listen) as url:
        Console(soft_wrap=True).print(f"sample upstream on {url}  (curl {url}/ lists what it offers; Ctrl-C ends it)")
        await stop.wait()
