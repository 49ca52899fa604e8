"""``packhorse check-config FILE``: 0 when the gateway would start with it, else 2 and every problem with its key.

Binds nothing, connects to nothing, writes nothing. The environment counts, as it would for ``serve``.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from config.errors import ConfigError
from config.loader import load
from gateway.commands.settings import report


def add_arguments(parser: ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="settings file")


def run(args: Namespace) -> int:
    """Check, say so, and answer the exit code."""
    try:
        configuration = load(args.file, environ=os.environ, overrides={})
    except ConfigError as error:
        return report(error)
    routes = ", ".join(f"{route.name} ({route.match})" for route in configuration.routes)
    sys.stdout.write(f"{args.file}: good; routes {routes}; {configuration.store.kind} store\n")
    return 0
