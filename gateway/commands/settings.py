"""What the commands share: which settings they speak of, and how a refusal is told."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from config.errors import ConfigError
from config.loader import Loaded, read


def add_settings_arguments(parser: ArgumentParser) -> None:
    """``--config`` and ``--upstream``, as ``packhorse serve`` takes them."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (or PACKHORSE_CONFIG)")
    parser.add_argument("--upstream", metavar="URL", help="upstream of all routes, in place of the file's")


def read_settings(args: Namespace) -> Loaded:
    """The settings that ``packhorse serve`` with the same arguments would run with; raises :class:`ConfigError`."""
    file = args.config or os.environ.get("PACKHORSE_CONFIG") or None
    return read(Path(file) if file else None, environ=os.environ, overrides={"upstream": args.upstream})


def report(error: ConfigError) -> int:
    """Tell every problem, a line each, and answer the exit code of misuse."""
    for problem in error.problems:
        sys.stderr.write(f"{problem}\n")
    return 2
