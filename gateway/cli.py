"""The command line (contract 9). Each command is a module with ``add_arguments`` and ``run``; this one only finds it."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from gateway.version import VERSION

COMMANDS = {
    "serve": ("gateway.commands.serve", "the gateway"),
    "check-config": ("gateway.commands.check_config", "check a settings file: exit 0, or 2 with the keys that are wrong"),
    "show-config": ("gateway.commands.show_config", "the settings in force, secrets hidden"),
    "doctor": ("gateway.commands.doctor", "probe routes, store and codings; say what is degraded"),
    "sample-upstream": ("gateway.sample.command", "a prepare and chat service to try things on"),
    "replay": ("gateway.replay.command", "send a growing document or conversation turn by turn; table of bytes"),
    "tour": ("gateway.tour", "sample upstream, gateway and a 40-turn meeting through both: what make run does"),
}


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="packhorse", description="HTTP gateway that sends only what the other side does not hold yet."
    )
    top.add_argument("--version", action="version", version=f"packhorse {VERSION}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
        command.set_defaults(module=module)
        import_module(module).add_arguments(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Exit 0 done, 1 failed, 2 misuse."""
    chosen = sys.argv[1:] if arguments is None else list(arguments)
    args = parser().parse_args(chosen)
    try:
        return int(import_module(args.module).run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
