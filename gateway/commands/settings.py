"""What the commands share: which settings they speak of, and how a refusal is told."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from config.errors import ConfigError
from config.loader import Loaded, read


def add_settings_arguments(parser: ArgumentParser) -> None:
    """The options that name settings, the same for every command that speaks of a running gateway's."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (or PACKHORSE_CONFIG)")
    parser.add_argument(
        "--upstream", metavar="URL", help="upstream of all routes, in place of the file's (or PACKHORSE_UPSTREAM)"
    )
    parser.add_argument("--listen", metavar="ADDR", help="host:port, [v6]:port or unix:/path (default 127.0.0.1:8080)")
    parser.add_argument(
        "--admin-listen", metavar="ADDR", help="the same for metrics and health, or off (default 127.0.0.1:8081)"
    )


def read_settings(args: Namespace) -> Loaded:
    """The settings in force with those options and this environment, read anew at each call; raises :class:`ConfigError`."""
    named = args.config or os.environ.get("PACKHORSE_CONFIG") or None
    overrides = {"upstream": args.upstream, "listen": args.listen, "admin.listen": args.admin_listen}
    return read(Path(named) if named else None, environ=os.environ, overrides=overrides)


def report(error: ConfigError) -> int:
    """Tell every problem, a line each, and answer the exit code of misuse."""
    for problem in error.problems:
        sys.stderr.write(f"{problem}\n")
    return 2
